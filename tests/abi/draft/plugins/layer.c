/* The layer type "draft-layer" for the CPU: y = x / (1 + slope |x|) for each element,
 * and its gradient.
 *
 * It reads and writes plain float32. If the layers around it use other layouts, the
 * core inserts reorders. */
#include <dlcore/layer.h>

#include <math.h>

static const dlc_host *host;

struct dlc_layer {
    const char *name; /* the section of net.ini, for messages */
    float slope;
    int64_t count;
};

/* ---- Building--------------------------------------------------------------------- */

static dlc_status layer_create(const dlc_layer_args *args, dlc_layer **layer) {
    dlc_layer *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->name = args->name;
    made->slope = (float)host->get_float(args->settings, "slope");
    *layer = made;
    return DLC_OK;
}

static void layer_destroy(dlc_layer *layer) {
    host->free(layer);
}

/* Shapes only. The core has cleared the answers, so the layer has no parameters. */
static dlc_status layer_infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    if (shapes->inputs != 1)
        return host->fail(DLC_ERR_CONFIG, "layer '%s': needs one input, not %d",
                          layer->name, shapes->inputs);
    shapes->out[0].shape = shapes->in[0].shape;
    shapes->out[0].dtype = DLC_F32;
    return DLC_OK;
}

static void want_plain(dlc_tensor *tensor) {
    tensor->layout = NULL;
    tensor->dtype = DLC_F32;
    tensor->bytes = 0;
}

/* Backward reads the output only, so the output may overwrite the input. */
static dlc_status layer_prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    want_plain(&memory->in[0]);
    want_plain(&memory->out[0]);
    memory->in_place = 1;
    memory->reads_out = 1;
    layer->count = dlc_shape_count(&memory->in[0].shape);
    return DLC_OK;
}

/* ---- Running ---------------------------------------------------------------- */

static dlc_status layer_forward(dlc_layer *layer, const dlc_layer_run *run) {
    const float *x = run->in[0];
    float *y = run->out[0];
    for (int64_t i = 0; i < layer->count; i++)
        y[i] = x[i] / (1 + layer->slope * fabsf(x[i]));
    return DLC_OK;
}

/* dy/dx = 1 / (1 + slope |x|)^2, which is (1 - slope |y|)^2. */
static dlc_status layer_backward(dlc_layer *layer, const dlc_layer_run *run) {
    const float *y = run->out[0], *dy = run->out_diff[0];
    float *dx = run->in_diff[0];
    if (!dx)
        return DLC_OK; /* the gradient is not wanted */
    for (int64_t i = 0; i < layer->count; i++) {
        float root = 1 - layer->slope * fabsf(y[i]);
        dx[i] = dy[i] * root * root;
    }
    return DLC_OK;
}

/* ---- The family ------------------------------------------------------------- */

/* A family is what the layers of one library share: here nothing. As all tensors are
 * plain, there is nothing to reorder either. */
static dlc_status family_open(const dlc_family_args *args, void **context) {
    (void)args;
    *context = NULL;
    return DLC_OK;
}

static void family_close(void *context) {
    (void)context;
}

static int family_same_layout(const dlc_tensor *a, const dlc_tensor *b) {
    return a->layout == b->layout;
}

static dlc_status family_reorder_create(void *context, const dlc_tensor *from,
                                        const dlc_tensor *to, dlc_reorder **reorder) {
    (void)context;
    (void)from;
    (void)to;
    (void)reorder;
    return host->fail(DLC_ERR_UNSUPPORTED,
                      "draft-layer supports the plain layout only");
}

static dlc_status family_reorder_run(dlc_reorder *reorder, const void *src, void *dst) {
    (void)reorder;
    (void)src;
    (void)dst;
    return host->fail(DLC_ERR_INTERNAL, "draft-layer supports the plain layout only");
}

static void family_reorder_destroy(dlc_reorder *reorder) {
    (void)reorder;
}

static const dlc_family family = {
    .size = sizeof family,
    .name = "draft-layer",
    .open = family_open,
    .close = family_close,
    .same_layout = family_same_layout,
    .reorder_create = family_reorder_create,
    .reorder_run = family_reorder_run,
    .reorder_destroy = family_reorder_destroy,
    .infers_without_device = 1,
};

/* ---- The plugin ------------------------------------------------------------- */

static dlc_status plugin_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static const dlc_option options[] = {
    DLC_FLOAT("slope", "1", 0, 1e6, "how quickly the output saturates"),
    DLC_OPTIONS_END,
};

static const dlc_layer_ops ops = {
    .size = sizeof ops,
    .family = &family,
    .create = layer_create,
    .destroy = layer_destroy,
    .infer = layer_infer,
    .prepare = layer_prepare,
    .forward = layer_forward,
    .backward = layer_backward,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_LAYER,
     .name = "draft-layer",
     .help = "x / (1 + slope |x|) for each element",
     .device = "cpu", // "cpu" is the device that the layer works on
     .caps = DLC_LAYER_RECOMPUTABLE,
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("draft-layer", PLUGIN_VERSION, "BSD-2-Clause", features, plugin_load);
