/* The layer type "exact-gelu" for the CPU (Hendrycks and Gimpel 2016, "Gaussian Error
 * Linear Units"):
 *
 *     y = x P(x),  dy/dx = P(x) + x p(x)
 *
 * where P is the distribution function of the standard normal distribution, (1 + erf(x
 * / sqrt(2))) / 2, and p is its density. It reads and writes plain float32 on as many
 * threads as the rank has. */
#include <math.h>
#include <stdio.h>

#include <dlcore/layer.h>

static const dlc_host *host;

/* Up to so many elements one thread is faster than several. */
enum { SMALL = 16384 };

static const float SQRT_HALF = 0.70710678f, SQRT_HALF_PI_INVERSE = 0.39894228f;

struct dlc_layer {
    const char *name; /* the section of net.ini, for messages */
    int64_t count;
};

/* ---- The function ----------------------------------------------------------- */

static float gelu(float x) {
    return 0.5f * x * (1 + erff(x * SQRT_HALF));
}

static float gelu_slope(float x) {
    float below = 0.5f * (1 + erff(x * SQRT_HALF));
    return below + x * SQRT_HALF_PI_INVERSE * expf(-0.5f * x * x);
}

/* ---- Building --------------------------------------------------------------- */

static dlc_status layer_create(const dlc_layer_args *args, dlc_layer **layer) {
    dlc_layer *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->name = args->name;
    *layer = made;
    return DLC_OK;
}

static void layer_destroy(dlc_layer *layer) {
    host->free(layer);
}

static dlc_status layer_infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    if (shapes->inputs != 1)
        return host->fail(DLC_ERR_CONFIG, "layer '%s': needs one input, not %d",
                          layer->name, shapes->inputs);
    if (shapes->in[0].dtype != DLC_F32)
        return host->fail(DLC_ERR_CONFIG, "layer '%s': its input must be float32",
                          layer->name);
    shapes->out[0].shape = shapes->in[0].shape;
    shapes->out[0].dtype = DLC_F32;
    return DLC_OK;
}

/* Backward reads the input, so forward overwrites it only if there will be no
 * backward. */
static dlc_status layer_prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    memory->in[0].layout = memory->out[0].layout = NULL; /* plain */
    memory->in[0].dtype = memory->out[0].dtype = DLC_F32;
    memory->in[0].bytes = memory->out[0].bytes = 0;
    memory->in_place = 1;
    memory->reads_in = 1;
    layer->count = dlc_shape_count(&memory->in[0].shape);
    return DLC_OK;
}

/* ---- Running ---------------------------------------------------------------- */

static dlc_status layer_forward(dlc_layer *layer, const dlc_layer_run *run) {
    const float *x = run->in[0];
    float *y = run->out[0];
#pragma omp parallel for schedule(static) if (layer->count > SMALL)
    for (int64_t i = 0; i < layer->count; i++)
        y[i] = gelu(x[i]);
    return DLC_OK;
}

static dlc_status layer_backward(dlc_layer *layer, const dlc_layer_run *run) {
    const float *x = run->in[0], *dy = run->out_diff[0];
    float *dx = run->in_diff[0];
    if (!dx)
        return DLC_OK;
#pragma omp parallel for schedule(static) if (layer->count > SMALL)
    for (int64_t i = 0; i < layer->count; i++)
        dx[i] = dy[i] * gelu_slope(x[i]);
    return DLC_OK;
}

static void layer_describe(dlc_layer *layer, char *text, size_t bytes) {
    (void)layer;
    (void)snprintf(text, bytes, "plain loops");
}

/* ---- The family, which has nothing to share or reorder ---------------------- */

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
    return host->fail(DLC_ERR_UNSUPPORTED, "exact-gelu supports the plain layout only");
}

static dlc_status family_reorder_run(dlc_reorder *reorder, const void *src, void *dst) {
    (void)reorder;
    (void)src;
    (void)dst;
    return host->fail(DLC_ERR_INTERNAL, "exact-gelu supports the plain layout only");
}

static void family_reorder_destroy(dlc_reorder *reorder) {
    (void)reorder;
}

static const dlc_family family = {
    .size = sizeof family,
    .name = "exact-gelu",
    .open = family_open,
    .close = family_close,
    .same_layout = family_same_layout,
    .reorder_create = family_reorder_create,
    .reorder_run = family_reorder_run,
    .reorder_destroy = family_reorder_destroy,
    .infers_without_device = 1,
};

/* ---- The plugin ------------------------------------------------------------- */

static dlc_status gelu_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static const dlc_layer_ops ops = {
    .size = sizeof ops,
    .family = &family,
    .create = layer_create,
    .destroy = layer_destroy,
    .infer = layer_infer,
    .prepare = layer_prepare,
    .forward = layer_forward,
    .backward = layer_backward,
    .describe = layer_describe,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_LAYER,
     .name = "exact-gelu",
     .help = "x times the normal distribution function of x",
     .device = "cpu",
     .caps = DLC_LAYER_RECOMPUTABLE,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("exact-gelu", PLUGIN_VERSION, "BSD-2-Clause", features, gelu_load);
