/* The layers: those of the cpu's family, whose work is queued on the net's queue. */
#include <string.h>

#include "async.h"

enum {
#define X(name) TYPE_##name,
    ASYNC_TYPES(X)
#undef X
        TYPE_COUNT
};

static const dlc_feature *near_type[TYPE_COUNT];

typedef struct context {
    dlc_device *device;
    dlc_queue *queue; /* NULL: work is done when a call returns */
    void *cpu;
    layer_thread *layer_thread; /* NULL without collective layers */
} context;

struct dlc_layer {
    context *net;
    const dlc_layer_ops *ops; /* of the cpu's family */
    dlc_layer *cpu;
    int32_t inputs, outputs, params;
    const dlc_layer_group *group; /* the core's; NULL: there is none */
    dlc_layer_group cpu_group;
    gather_place place[8]; /* by kind of pass: backward, recompute, empty */
};

/* ---- The family -------------------------------------------------------------- */

static const dlc_family *near_family(void) {
    return ((const dlc_layer_ops *)near_type[0]->ops)->family;
}

static dlc_status family_open(const dlc_family_args *args, void **opaque) {
    context *net = host->alloc(sizeof *net);
    if (!net)
        return DLC_ERR_NOMEM;
    dlc_family_args cpu = *args;
    host->log(DLC_LOG_DEBUG, "async: autotune is %d", (int)args->autotune);
    cpu.device_ops = cpu_device;
    cpu.device = args->device ? args->device->cpu : NULL;
    cpu.queue = NULL;
    /* The cpu's family does not support half precision; all that comes with it, the
     * loss scale, is tested nevertheless. */
    if (args->precision == DLC_F16)
        cpu.precision = DLC_F32;
    dlc_status status = near_family()->open(&cpu, &net->cpu);
    if (status != DLC_OK) {
        host->free(net);
        return status;
    }
    net->device = args->device;
    net->queue = args->queue;
    *opaque = net;
    return DLC_OK;
}

static void family_close(void *opaque) {
    context *net = opaque;
    if (!net)
        return;
    layer_thread_close(net->layer_thread);
    near_family()->close(net->cpu);
    host->free(net);
}

static int family_same_layout(const dlc_tensor *a, const dlc_tensor *b) {
    return near_family()->same_layout(a, b);
}

struct dlc_reorder {
    context *net;
    dlc_reorder *cpu;
};

static dlc_status reorder_create(void *opaque, const dlc_tensor *from,
                                 const dlc_tensor *to, dlc_reorder **reorder) {
    context *net = opaque;
    dlc_reorder *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->net = net;
    dlc_status status = near_family()->reorder_create(net->cpu, from, to, &made->cpu);
    if (status != DLC_OK) {
        host->free(made);
        return status;
    }
    *reorder = made;
    return DLC_OK;
}

static void reorder_destroy(dlc_reorder *reorder) {
    if (!reorder)
        return;
    near_family()->reorder_destroy(reorder->cpu);
    host->free(reorder);
}

typedef struct reorder_work {
    dlc_reorder *cpu;
    const void *src;
    void *dst;
} reorder_work;

static dlc_status run_reorder(const void *args) {
    const reorder_work *w = args;
    return near_family()->reorder_run(w->cpu, w->src, w->dst);
}

static dlc_status reorder_run(dlc_reorder *reorder, const void *src, void *dst) {
    dlc_status status = check_device_memory("reorder", src);
    if (status == DLC_OK)
        status = check_device_memory("reorder", dst);
    if (status != DLC_OK)
        return status;
    reorder_work w = {reorder->cpu, to_host_address(src), to_host_address(dst)};
    return work_submit(reorder->net->queue, run_reorder, &w, sizeof w);
}

static const dlc_family async_family = {
    .size = sizeof async_family,
    .name = "async",
    .open = family_open,
    .close = family_close,
    .same_layout = family_same_layout,
    .reorder_create = reorder_create,
    .reorder_run = reorder_run,
    .reorder_destroy = reorder_destroy,
    .infers_without_device = 1,
};

/* ---- Creation ------------------------------------------------------------------ */

static void layer_destroy(dlc_layer *layer) {
    if (!layer)
        return;
    layer->ops->destroy(layer->cpu);
    host->free(layer);
}

static dlc_status take_group(const dlc_layer_group *group, dlc_layer *layer,
                             dlc_layer_args *cpu) {
    context *net = layer->net;
    if (!group)
        return DLC_OK;
    layer->group = group;
    cpu->group = &layer->cpu_group;
    dlc_status status = net->layer_thread
                            ? DLC_OK
                            : layer_thread_open(net->device, &net->layer_thread);
    layer->cpu_group = (dlc_layer_group){.size = sizeof layer->cpu_group,
                                         .rank = group->rank,
                                         .ranks = group->ranks,
                                         .context = net->layer_thread,
                                         .all_gather = layer_thread_gather};
    return status;
}

static dlc_status create(int type, const dlc_layer_args *args, dlc_layer **layer) {
    dlc_layer *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    dlc_layer_args cpu = *args;
    made->net = args->context;
    made->ops = near_type[type]->ops;
    cpu.context = made->net->cpu;
    cpu.train_layer = args->train_layer ? args->train_layer->cpu : NULL;
    dlc_status status = take_group(args->group, made, &cpu);
    if (status == DLC_OK)
        status = made->ops->create(&cpu, &made->cpu);
    if (status != DLC_OK) {
        host->free(made);
        return status;
    }
    *layer = made;
    return DLC_OK;
}

static dlc_status layer_infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    return layer->ops->infer(layer->cpu, shapes);
}

static dlc_status layer_fuse(dlc_layer *layer, const dlc_feature *next,
                             const dlc_settings *settings) {
    for (int type = 0; type < TYPE_COUNT; type++)
        if (strcmp(near_type[type]->name, next->name) == 0)
            return layer->ops->fuse(layer->cpu, near_type[type], settings);
    return DLC_ERR_UNSUPPORTED;
}

static dlc_status layer_prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    dlc_status status = layer->ops->prepare(layer->cpu, memory);
    layer->inputs = memory->inputs;
    layer->outputs = memory->outputs;
    layer->params = memory->params;
    return status;
}

static void layer_describe(dlc_layer *layer, char *text, size_t bytes) {
    layer->ops->describe(layer->cpu, text, bytes);
}

/* ---- Forward and backward ------------------------------------------------------ */

enum { RUN_IN, RUN_OUT, RUN_OUT_DIFF, RUN_IN_DIFF, RUN_PARAM, RUN_PARAM_DIFF, ARRAYS };

/* A pass with its arrays of addresses, as host addresses. */
typedef struct layer_work {
    const dlc_layer_ops *ops;
    dlc_layer *cpu;
    int backward;
    dlc_layer_run run; /* without the arrays */
    int has[ARRAYS];
    void *at[ARRAYS][DLC_MAX_INPUTS];
} layer_work;

_Static_assert(DLC_MAX_OUTPUTS <= DLC_MAX_INPUTS && DLC_MAX_PARAMS <= DLC_MAX_INPUTS,
               "the arrays have room");

static void *const *array_of(const layer_work *w, int which) {
    return w->has[which] ? w->at[which] : NULL;
}

static dlc_status run_layer(const void *args) {
    const layer_work *w = args;
    dlc_layer_run run = w->run;
    run.in = (const void *const *)array_of(w, RUN_IN);
    run.out = array_of(w, RUN_OUT);
    run.out_diff = array_of(w, RUN_OUT_DIFF);
    run.in_diff = array_of(w, RUN_IN_DIFF);
    run.param = array_of(w, RUN_PARAM);
    run.param_diff = array_of(w, RUN_PARAM_DIFF);
    if (run.step_at) {
        run.iteration = run.step_at->iteration;
        run.sample = run.step_at->sample;
    }
    if (run.loss_scale_at)
        run.loss_scale *= *run.loss_scale_at;
    run.step_at = NULL;
    run.loss_scale_at = NULL;
    return w->backward ? w->ops->backward(w->cpu, &run) : w->ops->forward(w->cpu, &run);
}

static dlc_status take_array(layer_work *w, int which, const void *array,
                             int32_t count) {
    void *const *from = array;
    w->has[which] = from != NULL;
    for (int32_t i = 0; from && i < count; i++) {
        dlc_status status = check_device_memory(w->backward ? "backward" : "forward",
                                                from[i]);
        if (status != DLC_OK)
            return status;
        w->at[which][i] = to_host_address(from[i]);
    }
    return DLC_OK;
}

static dlc_status take_arrays(const dlc_layer *layer, layer_work *w) {
    const dlc_layer_run *run = &w->run;
    const struct {
        const void *array;
        int32_t count;
    } from[ARRAYS] = {
        [RUN_IN] = {run->in, layer->inputs},
        [RUN_OUT] = {run->out, layer->outputs},
        [RUN_OUT_DIFF] = {w->backward ? run->out_diff : NULL, layer->outputs},
        [RUN_IN_DIFF] = {w->backward ? run->in_diff : NULL, layer->inputs},
        [RUN_PARAM] = {run->param, layer->params},
        [RUN_PARAM_DIFF] = {w->backward ? run->param_diff : NULL, layer->params},
    };
    dlc_status status = DLC_OK;
    for (int i = 0; status == DLC_OK && i < ARRAYS; i++)
        status = take_array(w, i, from[i].array, from[i].count);
    return status;
}

static dlc_status submit(dlc_layer *layer, const layer_work *w) {
    const context *net = layer->net;
    if (!layer->group)
        return work_submit(net->queue, run_layer, w, sizeof *w);
    if (!layer->cpu_group.merges) /* known once the ranks are connected */
        layer->cpu_group.merges = to_host_address(layer->group->merges);
    const collective_call call = {
        .run = run_layer, .args = w, .bytes = sizeof *w, .scratch = w->run.scratch};
    int kind = w->backward * 4 + (w->run.recompute != 0) * 2 + (w->run.empty != 0);
    return collective_pass(net->layer_thread, net->queue, layer->group, &call,
                           &layer->place[kind]);
}

static dlc_status pass(dlc_layer *layer, const dlc_layer_run *run, int backward) {
    layer_work w = {.ops = layer->ops, .cpu = layer->cpu, .backward = backward};
    memcpy(&w.run, run, run->size < sizeof *run ? run->size : sizeof *run);
    w.run.size = sizeof w.run;
    const void *single[] = {w.run.workspace, w.run.scratch, w.run.step_at,
                            w.run.loss_scale_at};
    dlc_status status = take_arrays(layer, &w);
    for (size_t i = 0; status == DLC_OK && i < sizeof single / sizeof *single; i++)
        status = check_device_memory("a layer", single[i]);
    if (status != DLC_OK)
        return status;
    w.run.workspace = to_host_address(w.run.workspace);
    w.run.scratch = to_host_address(w.run.scratch);
    w.run.step_at = to_host_address(w.run.step_at);
    w.run.loss_scale_at = to_host_address(w.run.loss_scale_at);
    return submit(layer, &w);
}

static dlc_status layer_forward(dlc_layer *layer, const dlc_layer_run *run) {
    return pass(layer, run, 0);
}

static dlc_status layer_backward(dlc_layer *layer, const dlc_layer_run *run) {
    return pass(layer, run, 1);
}

/* ---- Parameters: done when the call returns, without waiting ------------------- */

static dlc_status layer_import(dlc_layer *layer, int32_t index, const float *plain,
                               float *own) {
    dlc_status status = capture_refuse("param_import");
    if (status == DLC_OK)
        status = check_device_memory("param_import", own);
    return status == DLC_OK ? layer->ops->param_import(layer->cpu, index, plain,
                                                       to_host_address(own))
                            : status;
}

static dlc_status layer_export(dlc_layer *layer, int32_t index, const float *own,
                               float *plain) {
    dlc_status status = capture_refuse("param_export");
    if (status == DLC_OK)
        status = check_device_memory("param_export", own);
    return status == DLC_OK ? layer->ops->param_export(layer->cpu, index,
                                                       to_host_address(own), plain)
                            : status;
}

static dlc_status layer_count(dlc_layer *layer, const void *targets, int64_t samples,
                              double *counted) {
    return layer->ops->count(layer->cpu, targets, samples, counted);
}

/* ---- The tables -------------------------------------------------------------- */

#define X(name) \
    static dlc_status create_##name(const dlc_layer_args *args, dlc_layer **layer) { \
        return create(TYPE_##name, args, layer); \
    }
ASYNC_TYPES(X)
#undef X

static dlc_layer_ops layer_ops[TYPE_COUNT];

static const struct {
    const char *name;
    dlc_status (*create)(const dlc_layer_args *args, dlc_layer **layer);
} types[TYPE_COUNT] = {
#define X(name) {#name, create_##name},
    ASYNC_TYPES(X)
#undef X
};

static void fill_type(int type, const dlc_feature *cpu, dlc_feature *ours) {
    const dlc_layer_ops *from = cpu->ops;
    near_type[type] = cpu;
    layer_ops[type] = (dlc_layer_ops){
        .size = sizeof(dlc_layer_ops),
        .family = &async_family,
        .create = types[type].create,
        .destroy = layer_destroy,
        .infer = layer_infer,
        .fuse = from->fuse ? layer_fuse : NULL,
        .prepare = layer_prepare,
        .forward = layer_forward,
        .backward = from->backward ? layer_backward : NULL,
        .param_import = from->param_import ? layer_import : NULL,
        .param_export = from->param_export ? layer_export : NULL,
        .describe = from->describe ? layer_describe : NULL,
        .count = DLC_CAN(from, count) ? layer_count : NULL,
    };
    ours->caps = cpu->caps;
    ours->options = cpu->options;
    ours->ops = &layer_ops[type];
}

int layers_fill(const dlc_feature *cpu, dlc_feature *ours) {
    int found = 0;
    for (int type = 0; type < TYPE_COUNT; type++)
        for (const dlc_feature *f = cpu; f->name; f = DLC_NEXT(f))
            if (strcmp(f->name, types[type].name) == 0) {
                fill_type(type, f, &ours[type]);
                found++;
            }
    return found == TYPE_COUNT;
}
