/* Parameters, memory and the steps around the product for convolution, deconvolution
 * and inner_product. */
#include "weighted.h"

#include "reorder.h"

static int training(const weighted *w) {
    return w->head.phase == DLC_PHASE_TRAIN;
}

dlc_status weighted_fuse(dlc_layer *layer, const dlc_feature *next,
                         const dlc_settings *settings) {
    return relu_or_clip_fuse(&((weighted *)layer)->relu, next, settings);
}

/* ---- Memory ------------------------------------------------------------------ */

static int narrow(const weighted *w) {
    return w->head.net->precision != DLC_F32;
}

/* Does the product read a copy of the parameters? */
static int is_copied(const weighted *w) {
    return narrow(w) || w->fold.stride;
}

static int64_t weights_count(const weighted *w) {
    return w->linear.shape.dims[0] * w->points * w->padded;
}

/* Weights as the product reads them. */
static int64_t read_count(const weighted *w) {
    const fold *f = &w->fold;
    return f->stride ? w->linear.shape.dims[0] * f->taps[0] * f->taps[1] * f->depth
                     : weights_count(w);
}

/* The libraries want scratch memory aligned to more than the core promises. */
enum { ALIGNMENT = 256 };

/* Scratch memory: copies (in a test net) or the gradient of the copy, then what the
 * product or the sums of the bias need. */
void weighted_plan(weighted *w, dlc_layer_memory *memory, int narrow_gradient,
                   size_t scratch) {
    const size_t each = dlc_dtype_bytes(w->head.net->precision);
    bounds stored = relu_stored(&w->relu, w->dst->dtype);
    w->bias_kernel = (bias_job){.dtype = (int)w->dst->dtype,
                                .rows = w->dst->count / w->linear.num_output,
                                .channels = w->linear.num_output,
                                .low = stored.low,
                                .high = stored.high,
                                .slope = stored.slope,
                                .bounded = w->relu.on};
    w->weights_bytes = w->gradient_bytes = w->copies_bytes = 0;
    if (is_copied(w)) {
        w->weights_bytes = round64((size_t)read_count(w) * each);
        w->copies_bytes = w->weights_bytes;
        if (w->linear.has_bias)
            w->copies_bytes += round64((size_t)w->linear.num_output * each);
    }
    if (is_copied(w) && narrow_gradient)
        w->gradient_bytes = w->weights_bytes;
    layout_give(&memory->in[0], w->src);
    layout_give(&memory->out[0], w->dst);
    memory->param_count[0] = weights_count(w);
    if (training(w) && w->linear.has_bias)
        scratch = max_size(scratch, bias_scratch(&w->bias_kernel));
    scratch += ALIGNMENT;
    if (!training(w)) {
        memory->scratch_bytes = w->copies_bytes + scratch;
        return;
    }
    memory->workspace_bytes = w->copies_bytes;
    memory->scratch_bytes = w->gradient_bytes + scratch;
    memory->reads_in = has_weight_gradient(&w->head);
    memory->reads_out = w->relu.on != 0;
}

static void *copies(const weighted *w, const dlc_layer_run *run) {
    return training(w) ? run->workspace : run->scratch;
}

void *weighted_scratch(const weighted *w, const dlc_layer_run *run) {
    size_t before = training(w) ? w->gradient_bytes : w->copies_bytes;
    uintptr_t at = (uintptr_t)run->scratch + before, past = at % ALIGNMENT;
    return at_offset(run->scratch, before + (past ? ALIGNMENT - past : 0));
}

const void *weighted_weights(const weighted *w, const dlc_layer_run *run) {
    return is_copied(w) ? copies(w, run) : run->param[0];
}

const void *weighted_bias(const weighted *w, const dlc_layer_run *run) {
    if (!w->linear.has_bias)
        return NULL;
    return is_copied(w) ? at_offset(copies(w, run), w->weights_bytes) : run->param[1];
}

void *weighted_gradient(const weighted *w, const dlc_layer_run *run) {
    return w->gradient_bytes ? run->scratch : run->param_diff[0];
}

/* ---- Steps around the product --------------------------------------------------- */

static cudaError_t copy_weights(const weighted *w, const float *from, void *to) {
    const context *net = w->head.net;
    if (w->fold.stride)
        return fold_weights(&w->fold, (int)net->precision, from, to,
                            w->linear.shape.dims[0], net->stream);
    return convert_launch(DLC_F32, from, (int)net->precision, to, weights_count(w),
                          net->stream);
}

dlc_status weighted_copy(const weighted *w, const dlc_layer_run *run) {
    const context *net = w->head.net;
    if (!is_copied(w))
        return DLC_OK;
    void *to = copies(w, run);
    cudaError_t error = copy_weights(w, run->param[0], to);
    if (error == cudaSuccess && w->linear.has_bias)
        error = convert_launch(DLC_F32, run->param[1], (int)net->precision,
                               at_offset(to, w->weights_bytes), w->linear.num_output,
                               net->stream);
    return check_cuda(error, w->head.name, "convert its weights");
}

dlc_status weighted_copy_back(const weighted *w, const dlc_layer_run *run) {
    const context *net = w->head.net;
    const int type = (int)net->precision;
    float *to = run->param_diff[0];
    if (!w->gradient_bytes)
        return DLC_OK;
    cudaError_t error = w->fold.stride
                            ? fold_gradient(&w->fold, type, run->scratch, to,
                                            w->linear.shape.dims[0], net->stream)
                            : convert_launch(type, run->scratch, DLC_F32, to,
                                             weights_count(w), net->stream);
    return check_cuda(error, w->head.name, "convert the gradient of its weights");
}

dlc_status weighted_bias_forward(const weighted *w, const dlc_layer_run *run) {
    const float *bias = w->linear.has_bias ? run->param[1] : NULL;
    return check_cuda(bias_add(&w->bias_kernel, bias, run->out[0], w->head.net->stream),
                      w->head.name, "add its bias");
}

dlc_status weighted_bias_backward(const weighted *w, const dlc_layer_run *run) {
    float *diff_bias = w->linear.has_bias ? run->param_diff[1] : NULL;
    if (!w->relu.on && !diff_bias)
        return DLC_OK;
    return check_cuda(bias_backward(&w->bias_kernel, run->out[0], run->out_diff[0],
                                    diff_bias, weighted_scratch(w, run),
                                    w->head.net->stream),
                      w->head.name, "compute the gradient of its bias");
}

/* ---- Parameters ----------------------------------------------------------------- */

/* Conversions between rows of channels x points and rows of points x padded
 * channels. */
static void transpose(const weighted *w, const float *plain, float *own) {
    for (int64_t o = 0; o < w->linear.shape.dims[0]; o++)
        for (int64_t p = 0; p < w->points; p++)
            for (int64_t c = 0; c < w->channels; c++)
                own[(o * w->points + p) * w->padded + c] =
                    plain[(o * w->channels + c) * w->points + p];
}

static void transpose_back(const weighted *w, const float *own, float *plain) {
    for (int64_t o = 0; o < w->linear.shape.dims[0]; o++)
        for (int64_t c = 0; c < w->channels; c++)
            for (int64_t p = 0; p < w->points; p++)
                plain[(o * w->channels + c) * w->points + p] =
                    own[(o * w->points + p) * w->padded + c];
}

static dlc_status copy(const weighted *w, void *to, const void *from, int64_t count) {
    const context *net = w->head.net;
    return net->device_ops->copy(net->device_at, NULL, to, from,
                                 (size_t)count * sizeof(float));
}

dlc_status weighted_import(dlc_layer *layer, int32_t index, const float *plain,
                           float *own) {
    const weighted *w = (const weighted *)layer;
    if (index == 1)
        return copy(w, own, plain, w->linear.num_output);
    float *transposed = host->alloc((size_t)weights_count(w) * sizeof(float));
    if (!transposed)
        return DLC_ERR_NOMEM;
    transpose(w, plain, transposed);
    dlc_status status = copy(w, own, transposed, weights_count(w));
    host->free(transposed);
    return status;
}

dlc_status weighted_export(dlc_layer *layer, int32_t index, const float *own,
                           float *plain) {
    const weighted *w = (const weighted *)layer;
    if (index == 1)
        return copy(w, plain, own, w->linear.num_output);
    float *transposed = host->alloc((size_t)weights_count(w) * sizeof(float));
    if (!transposed)
        return DLC_ERR_NOMEM;
    dlc_status status = copy(w, transposed, own, weights_count(w));
    if (status == DLC_OK)
        transpose_back(w, transposed, plain);
    host->free(transposed);
    return status;
}
