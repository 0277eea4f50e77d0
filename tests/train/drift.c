/* A solver, a consistency model and a layer, for tests of ranks that drift apart: a
 * step that depends on the process, a model that forgets weights on one rank, and a
 * layer whose running average should be the same on all ranks and is not. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dlcore/consistency.h>
#include <dlcore/layer.h>
#include <dlcore/rule.h>
#include <dlcore/solver.h>

#include "plain_family.h"

/* ---- The solver "process" ------------------------------------------------------ */

DLC_RULE(process, 1) {
    *weight -= step->learning_rate * gradient;
    slot[0] = step->own[0]; /* so weights follow in the next iteration, if `drifts` */
    *weight -= step->own[1] * slot[0];
}

static dlc_status solver_needs(const dlc_settings *settings, dlc_solver_needs *needs) {
    (void)settings;
    needs->rule = &process;
    needs->slot_name[0] = "state";
    needs->slot_saved = 1u << 0;
    return DLC_OK;
}

static dlc_status solver_values(const dlc_settings *settings, int64_t iteration,
                                dlc_rule_values *values) {
    const char *drifts = host->get_string(settings, "drifts");
    (void)iteration;
    values->own[0] = strcmp(drifts, "no") == 0 ? 0 : (float)(getpid() % 1000);
    values->own[1] = strcmp(drifts, "weights") == 0 ? 1e-3f : 0;
    return DLC_OK;
}

static const dlc_option solver_options[] = {
    DLC_FLOAT("learning_rate", "0.01", 0, 1e9, "base learning rate"),
    DLC_CHOICE("drifts", "no", "no|slot|weights", "what depends on the process"),
    DLC_OPTIONS_END,
};

static const dlc_solver_ops solver_ops = {
    .size = sizeof(dlc_solver_ops), .needs = solver_needs, .values = solver_values};

/* ---- The consistency model "forgetful" ----------------------------------------- */

enum { FORGOTTEN = 256 };

struct dlc_consistency {
    dlc_consistency_args args;
    int64_t rank; /* that forgets */
};

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
    made->args = *args;
    made->rank = host->get_int(args->settings, "forgets");
    if ((strcmp(host->get_string(args->settings, "of"), "rows") == 0) !=
        (args->parameters != NULL))
        made->rank = -1;
    *model = made;
    return DLC_OK;
}

static void model_destroy(dlc_consistency *model) {
    host->free(model);
}

static dlc_status model_ready(dlc_consistency *model, int64_t iteration,
                              int32_t bucket) {
    const dlc_exchange *exchange = model->args.exchange;
    (void)iteration;
    return exchange->start(exchange->context, bucket);
}

static dlc_status model_finish(dlc_consistency *model, int64_t iteration) {
    const dlc_consistency_args *args = &model->args;
    const dlc_exchange *exchange = args->exchange;
    size_t count = args->count - args->control_words;
    dlc_rule_values values;
    for (int32_t b = 0; b < exchange->buckets; b++) {
        dlc_status status = exchange->wait(exchange->context, b);
        if (status != DLC_OK)
            return status;
    }
    if (args->job_rank == model->rank)
        count -= FORGOTTEN;
    dlc_status status = args->updater->values(args->updater->context, iteration,
                                              &values);
    return status == DLC_OK
               ? args->updater->update(args->updater->context, NULL, &values, 0, count,
                                       1, args->gradients, args->slots, args->weights)
               : status;
}

static dlc_status model_synchronize(dlc_consistency *model, int64_t iteration) {
    (void)model;
    (void)iteration;
    return DLC_OK;
}

static const dlc_option model_options[] = {
    DLC_INT("forgets", "-1", -1, 1000, "the rank that does not update all weights"),
    DLC_CHOICE("of", "whole", "whole|rows", "which set of parameters they are of"),
    DLC_OPTIONS_END,
};

static const dlc_consistency_ops model_ops = {.size = sizeof(dlc_consistency_ops),
                                              .needs = model_needs,
                                              .create = model_create,
                                              .destroy = model_destroy,
                                              .ready = model_ready,
                                              .finish = model_finish,
                                              .synchronize = model_synchronize};

/* ---- The layer "average" --------------------------------------------------------- */

/* Copies its input; the running average is a number of the process. */
struct dlc_layer {
    size_t bytes;
    int is_training;
};

static dlc_status layer_create(const dlc_layer_args *args, dlc_layer **layer) {
    dlc_layer *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->is_training = args->phase == DLC_PHASE_TRAIN;
    *layer = made;
    return DLC_OK;
}

static void layer_destroy(dlc_layer *layer) {
    host->free(layer);
}

static dlc_status layer_infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    (void)layer;
    shapes->out[0] = shapes->in[0];
    shapes->collective = 1;
    shapes->params = 1;
    shapes->param[0].name = "average";
    shapes->param[0].shape = (dlc_shape){.rank = 1, .dims = {1}};
    shapes->param[0].flags = DLC_PARAM_BUFFER;
    return DLC_OK;
}

static dlc_status layer_prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    memory->in[0].layout = memory->out[0].layout = NULL;
    memory->in[0].dtype = memory->out[0].dtype = DLC_F32;
    layer->bytes = (size_t)dlc_shape_count(&memory->in[0].shape) * sizeof(float);
    return DLC_OK;
}

static dlc_status layer_forward(dlc_layer *layer, const dlc_layer_run *run) {
    memcpy(run->out[0], run->in[0], layer->bytes);
    if (layer->is_training)
        *(float *)run->param[0] = (float)(getpid() % 1000);
    return DLC_OK;
}

static dlc_status layer_backward(dlc_layer *layer, const dlc_layer_run *run) {
    if (run->in_diff[0])
        memcpy(run->in_diff[0], run->out_diff[0], layer->bytes);
    return DLC_OK;
}

static dlc_status family_open(const dlc_family_args *args, void **context) {
    (void)args;
    *context = NULL;
    return DLC_OK;
}

static const dlc_family family = {.size = sizeof(dlc_family),
                                  .name = "drift",
                                  .infers_without_device = 1,
                                  .open = family_open,
                                  .close = family_close,
                                  .same_layout = same_layout,
                                  .reorder_create = reorder_create,
                                  .reorder_run = reorder_run,
                                  .reorder_destroy = reorder_destroy};

static const dlc_layer_ops layer_ops = {.size = sizeof(dlc_layer_ops),
                                        .family = &family,
                                        .create = layer_create,
                                        .destroy = layer_destroy,
                                        .infer = layer_infer,
                                        .prepare = layer_prepare,
                                        .forward = layer_forward,
                                        .backward = layer_backward};

/* ---- The plugin ------------------------------------------------------------------ */

static dlc_status load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_SOLVER,
     .name = "process",
     .help = "a step that depends on the process",
     .options = solver_options,
     .ops = &solver_ops},
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_CONSISTENCY,
     .name = "forgetful",
     .help = "synchronous, but one rank forgets weights",
     .options = model_options,
     .ops = &model_ops},
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_LAYER,
     .name = "average",
     .help = "a running average of its own on each rank",
     .ops = &layer_ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("drift", "1.0.0", "BSD-2-Clause", features, load);
