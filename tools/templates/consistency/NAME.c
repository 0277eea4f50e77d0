/* The consistency model "@NAME@": all ranks have the same weights after each iteration.
 *
 * It starts to all-reduce a bucket as soon as backward has filled it. At the end of the
 * iteration it waits for each bucket and applies the solver's rule to it, so that every
 * rank makes the same update. It works with any solver, because the core's updater
 * knows the rule. */
#include <dlcore/consistency.h>

static const dlc_host *host;

struct dlc_consistency {
    const dlc_exchange *exchange;
    const dlc_updater *updater;
    float *weights, *gradients, *slots[DLC_MAX_SLOTS];
    size_t trained;   /* elements before the control words of the core */
    dlc_queue *queue; /* NULL: work is done when a call returns */
};

static dlc_status model_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

/* Keeps the defaults: no messages between ranks beside the exchange, and no servers. */
static dlc_status model_needs(const dlc_settings *settings,
                              dlc_consistency_needs *needs) {
    (void)settings;
    (void)needs;
    return DLC_OK;
}

static dlc_status model_create(const dlc_consistency_args *args,
                               dlc_consistency **model) {
    dlc_consistency *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->exchange = args->exchange;
    made->updater = args->updater;
    made->weights = args->weights;
    made->gradients = args->gradients;
    made->trained = args->count - args->control_words;
    made->queue = args->queue;
    for (int32_t i = 0; i < args->updater->slots; i++)
        made->slots[i] = args->slots[i];
    *model = made;
    return DLC_OK;
}

static void model_destroy(dlc_consistency *model) {
    host->free(model);
}

/* Starts to all-reduce a bucket that backward has filled, while backward goes on. */
static dlc_status model_ready(dlc_consistency *model, int64_t iteration,
                              int32_t bucket) {
    (void)iteration;
    return model->exchange->start(model->exchange->context, bucket);
}

/* Updates the weights of one bucket. The last bucket includes the control words of the
 * core, which are reduced but never updated. */
static dlc_status update(dlc_consistency *model, const dlc_rule_values *values,
                         int32_t bucket) {
    size_t begin = model->exchange->bucket_begin[bucket];
    size_t end = model->exchange->bucket_begin[bucket + 1];
    float *slots[DLC_MAX_SLOTS] = {0};
    if (end > model->trained)
        end = model->trained;
    if (begin >= end)
        return DLC_OK;
    for (int32_t i = 0; i < model->updater->slots; i++)
        slots[i] = model->slots[i] + begin;
    return model->updater->update(model->updater->context, model->queue, values, begin,
                                  end - begin, 1, model->gradients + begin, slots,
                                  model->weights + begin);
}

static dlc_status model_finish(dlc_consistency *model, int64_t iteration) {
    const dlc_exchange *exchange = model->exchange;
    dlc_rule_values values;
    dlc_status rc = model->updater->values(model->updater->context, iteration, &values);
    for (int32_t b = 0; rc == DLC_OK && b < exchange->buckets; b++) {
        rc = exchange->wait(exchange->context, b);
        if (rc == DLC_OK)
            rc = update(model, &values, b);
    }
    return rc;
}

/* The ranks never differ. */
static dlc_status model_synchronize(dlc_consistency *model, int64_t iteration) {
    (void)model;
    (void)iteration;
    return DLC_OK;
}

static const dlc_consistency_ops ops = {
    .size = sizeof ops,
    .needs = model_needs,
    .create = model_create,
    .destroy = model_destroy,
    .ready = model_ready,
    .finish = model_finish,
    .synchronize = model_synchronize,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_CONSISTENCY,
     .name = "@NAME@",
     .help = "the same weights on all ranks after each iteration",
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("@NAME@", PLUGIN_VERSION, "BSD-2-Clause", features, model_load);
