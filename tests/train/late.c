/* Consistency model "late", for test_lost_requests.py: ranks agree on a request only
 * after the longest time that a model may take, after the end of the job. The
 * weights stay as they are. */
#include <dlcore/consistency.h>

static const dlc_host *host;

struct dlc_consistency {
    dlc_consistency_args args;
};

static dlc_status late_load(const dlc_host *given) {
    host = given;
    return DLC_OK;
}

static dlc_status late_needs(const dlc_settings *settings,
                             dlc_consistency_needs *needs) {
    (void)settings;
    needs->allows_skew = 1;
    return DLC_OK;
}

static dlc_status late_create(const dlc_consistency_args *args,
                              dlc_consistency **model) {
    dlc_consistency *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->args = *args;
    *model = made;
    return DLC_OK;
}

static void late_destroy(dlc_consistency *model) {
    host->free(model);
}

static dlc_status late_ready(dlc_consistency *model, int64_t iteration,
                             int32_t bucket) {
    (void)model, (void)iteration, (void)bucket;
    return DLC_OK;
}

/* Keeps the loss, the first control word, and clears the others. */
static dlc_status late_finish(dlc_consistency *model, int64_t iteration) {
    const dlc_consistency_args *args = &model->args;
    size_t trained = args->count - args->control_words;
    (void)iteration;
    return args->device_ops->fill(args->device, NULL, args->gradients + trained + 1, 0,
                                  (args->control_words - 1) * sizeof(float));
}

static dlc_status late_synchronize(dlc_consistency *model, int64_t iteration) {
    (void)model, (void)iteration;
    return DLC_OK;
}

static const dlc_option options[] = {DLC_OPTIONS_END};

static const dlc_consistency_ops ops = {
    .size = sizeof ops,
    .needs = late_needs,
    .create = late_create,
    .destroy = late_destroy,
    .ready = late_ready,
    .finish = late_finish,
    .synchronize = late_synchronize,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_CONSISTENCY,
     .name = "late",
     .help = "never agrees on a request",
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

__attribute__((visibility("default")))
DLC_PLUGIN("late", "1.0.0", "BSD-2-Clause", features, late_load);
