/* inner_product: every output is a weighted sum of all inputs of its sample. */
#include "weighted_amx.h"

#include <omp.h>
#include <stdio.h>

typedef struct product {
    weighted w;
    int64_t batch, features;
    int transposed; /* forward multiplies with sgemm, see below */
    weighted_amx amx;
} product;

static dnnl_status_t forward_pd(const weighted *w, const pd_env *env,
                                dnnl_prop_kind_t prop, md_t src, md_t weights,
                                md_t bias, md_t dst, dnnl_primitive_desc_t *pd) {
    (void)w;
    return pd_inner_forward(env, prop, src, weights, bias, dst, pd);
}

static dnnl_status_t backward_data_pd(const weighted *w, const pd_env *env,
                                      md_t diff_src, md_t weights, md_t diff_dst,
                                      dnnl_primitive_desc_t *pd) {
    (void)w;
    return pd_inner_backward_data(env, diff_src, weights, diff_dst, pd);
}

static dnnl_status_t backward_weights_pd(const weighted *w, const pd_env *env, md_t src,
                                         md_t diff_weights, md_t diff_bias,
                                         md_t diff_dst, dnnl_primitive_desc_t *pd) {
    (void)w;
    return pd_inner_backward_weights(env, src, diff_weights, diff_bias, diff_dst, pd);
}

static const weighted_kind kind = {
    .forward = forward_pd,
    .backward_data = backward_data_pd,
    .backward_weights = backward_weights_pd,
    .stored = layout_plain,
};

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_status status = layer_alloc(args, sizeof(product), out);
    if (status != DLC_OK)
        return status;
    ((weighted *)*out)->kind = &kind;
    linear_read(args, &((weighted *)*out)->linear);
    return DLC_OK;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    product *p = (product *)layer;
    dlc_status status = inner_product_infer(layer, &p->w.linear, layer->net->precision,
                                            shapes);
    p->batch = shapes->out[0].shape.dims[0];
    p->features = p->w.linear.shape.dims[1];
    return status;
}

/* By tiles, in bfloat16. In a test net the train net's weights decide. */
static int amx_fits(product *p) {
    const product *train = (const product *)p->w.head.train_layer;
    p->amx.kernels = p->w.head.net->precision == DLC_BF16 ? amx_here() : NULL;
    if (train && train->w.weights && !train->amx.kernels)
        p->amx.kernels = NULL;
    p->amx.conv = (amx_conv){
        .threads = (size_t)omp_get_max_threads(),
        .batch = (size_t)p->batch,
        .group = 1,
        .in_channels = (size_t)p->features,
        .in = {1, 1},
        .out_channels = (size_t)p->w.linear.num_output,
        .out = {1, 1},
        .kernel = {1, 1},
        .stride = 1,
    };
    return p->amx.kernels != NULL;
}

/* A plain input is a matrix; other layouts are read as they are, with weights of the
 * image's dimensions (the same numbers in row-major order). float32 weights have the
 * layout of the samples, so that all three passes read them as they are; what oneDNN
 * would choose for forward it would have to reorder for backward. */
static dlc_status prepare_passes(dlc_layer *layer, dlc_layer_memory *memory) {
    product *p = (product *)layer;
    weighted *w = &p->w;
    context *net = layer->net;
    dlc_dtype dtype = net->precision;
    const dlc_shape *in = &memory->in[0].shape;
    dlc_shape flat = {.rank = 2, .dims = {in->dims[0], w->linear.shape.dims[1]}};
    dlc_shape image = *in;
    image.dims[0] = w->linear.num_output;
    const dlc_layout *given = layout_of(net, &memory->in[0]);
    const dlc_layout *dst = layout_plain(net, &memory->out[0].shape, dtype);
    const dlc_layout *matrix = layout_plain(net, &flat, dtype);
    const dlc_layout *weights = layout_plain(net, &w->linear.shape, DLC_F32);
    const dlc_layout *image_weights = layout_last(net, &image, DLC_F32);
    if (!given || !dst || !matrix || !weights || !image_weights)
        return DLC_ERR_NOMEM;
    int batch_blocked = given->batch_block != 0; /* no kernel multiplies these */
    if (batch_blocked && !(given = layout_last(net, in, dtype)))
        return DLC_ERR_NOMEM;
    int float32 = dtype == DLC_F32, alike = given->dtype == dtype;
    const weighted *train = (const weighted *)layer->train_layer;
    if (amx_fits(p)) {
        int as_image = given->last && !given->plain && alike && !layer->plain_params &&
                       in->rank <= 5;
        if (train && train->weights)
            as_image = train->weights_rank != 2;
        const dlc_layout *last = as_image ? layout_last(net, in, dtype) : matrix;
        return weighted_amx_prepare(w, &p->amx, memory, last, dst,
                                    as_image ? &image : &w->linear.shape,
                                    as_image ? image_weights : weights);
    }
    const weighted_choice as_image = {.src = given,
                                      .dst = dst,
                                      .weights = float32 && given->last ? image_weights
                                                                        : NULL};
    const weighted_choice as_matrix = {
        .src = matrix, .dst = dst, .weights = float32 ? weights : NULL};
    if (train && train->weights) { /* its weights decide */
        int flattened = train->weights_rank == 2;
        return weighted_prepare(w, memory, flattened ? &w->linear.shape : &image,
                                flattened ? &as_matrix : &as_image, 1);
    }
    /* Blocks of channels would make blocked weights, which oneDNN multiplies slowly;
     * samples are few compared with weights and quickly reordered to plain. */
    if (given->last && !given->plain && alike && !layer->plain_params &&
        in->rank <= 5) {
        dlc_status status = weighted_prepare(w, memory, &image, &as_image, 1);
        if (status == DLC_OK ? !pd_is_slow(w->forward.pd)
                             : status != DLC_ERR_UNSUPPORTED)
            return status;
    }
    return weighted_prepare(w, memory, &w->linear.shape, &as_matrix, 1);
}

/* Forward multiplies samples by transposed weights. The smaller factor should be the
 * transposed one: with more outputs than samples, it multiplies weights by transposed
 * samples and transposes the result. */
static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    product *p = (product *)layer;
    const weighted *w = &p->w;
    dlc_status status = prepare_passes(layer, memory);
    if (status != DLC_OK || p->amx.kernels)
        return status;
    int alike = w->src->dtype == DLC_F32 &&
                ((w->src->plain && w->forward_weights->plain) ||
                 (w->src->last && w->forward_weights->last));
    p->transposed = alike && !w->own_to_forward.pd && w->linear.num_output > p->batch;
    size_t bytes = (size_t)(p->batch * w->linear.num_output) * sizeof(float);
    if (p->transposed && memory->scratch_bytes < bytes)
        memory->scratch_bytes = bytes;
    return DLC_OK;
}

/* out[n][o] = the activation of turned[o][n] + bias[o] */
static void turn(const product *p, const float *turned, const float *bias, float *out) {
    enum { SIDE = 16 };
    int64_t outputs = p->w.linear.num_output, batch = p->batch;
    float slope = p->w.relu.on ? p->w.relu.bounds.slope : 1;
#pragma omp parallel for schedule(static)
    for (int64_t first = 0; first < outputs; first += SIDE) {
        int64_t end = first + SIDE < outputs ? first + SIDE : outputs;
        for (int64_t n = 0; n < batch; n++)
            for (int64_t o = first; o < end; o++) {
                float sum = turned[o * batch + n] + (bias ? bias[o] : 0);
                out[n * outputs + o] = sum > 0 ? sum : slope * sum;
            }
    }
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    product *p = (product *)layer;
    if (p->amx.kernels)
        return weighted_amx_forward(&p->w, &p->amx, run);
    if (!p->transposed)
        return weighted_forward(layer, run);
    dnnl_status_t st = dnnl_sgemm('N', 'T', p->w.linear.num_output, p->batch,
                                  p->features, 1, run->param[0], p->features,
                                  run->in[0], p->features, 0, run->scratch, p->batch);
    if (st != dnnl_success)
        return dnnl_failed(st, layer->name, "multiply matrices");
    turn(p, run->scratch, p->w.linear.has_bias ? run->param[1] : NULL, run->out[0]);
    return DLC_OK;
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    product *p = (product *)layer;
    return p->amx.kernels ? weighted_amx_backward(&p->w, &p->amx, run)
                          : weighted_backward(layer, run);
}

static void destroy(dlc_layer *layer) {
    if (layer)
        weighted_amx_clear(&((product *)layer)->amx);
    weighted_destroy(layer);
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    const product *p = (const product *)layer;
    if (p->amx.kernels)
        weighted_amx_describe(&p->w, &p->amx, text, bytes);
    else if (p->transposed)
        (void)snprintf(text, bytes, "sgemm %s%s", layout_name(p->w.src),
                       p->w.relu.on ? " +relu" : "");
    else
        weighted_describe(layer, text, bytes);
}

/* The first product of matrices, unless they are tiny, makes oneDNN generate its
 * kernels for all of them, which takes 20 ms. */
static void before_fork(void) {
    enum { SIDE = 8 };
    const float factor[SIDE * SIDE] = {0};
    float result[SIDE * SIDE];
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    (void)dnnl_sgemm('N', 'N', SIDE, SIDE, SIDE, 1, factor, SIDE, factor, SIDE, 0,
                     result, SIDE);
    omp_set_num_threads(threads);
}

const dlc_layer_ops inner_product_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &onednn_family,
    .create = create,
    .destroy = destroy,
    .infer = infer,
    .fuse = weighted_fuse,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .param_import = weighted_import,
    .param_export = weighted_export,
    .describe = describe,
    .before_fork = before_fork,
};
