/* convolution: filters that slide over the image. Chooses between oneDNN's primitives,
 * the batch-blocked and depthwise kernels, our Winograd transform and our products by
 * tiles. */
#include "../shared/window.h"
#include "convolution_batch_blocked.h"
#include "convolution_colours.h"
#include "convolution_depthwise.h"
#include "convolution_winograd.h"
#include "weighted_amx.h"

#include <omp.h>
#include <string.h>

typedef struct convolution {
    weighted w;
    filters filters; /* direct is also set where Winograd is not worthwhile */
    int layout;      /* LAYOUT_, below */
    convolution_batch_blocked batch_blocked;
    convolution_colours colours;
    convolution_winograd winograd;
    weighted_amx amx;
    convolution_depthwise depthwise;
} convolution;

enum { LAYOUT_AUTO, LAYOUT_LAST, LAYOUT_LIBRARY, LAYOUT_BATCH_BLOCKED };

static const convolution *of(const weighted *w) {
    return (const convolution *)w;
}

static dnnl_alg_kind_t algorithm(const weighted *w) {
    return of(w)->filters.direct ? dnnl_convolution_direct : dnnl_convolution_auto;
}

static dnnl_status_t forward_pd(const weighted *w, const pd_env *env,
                                dnnl_prop_kind_t prop, md_t src, md_t weights,
                                md_t bias, md_t dst, dnnl_primitive_desc_t *pd) {
    return pd_conv_forward(env, prop, algorithm(w), &of(w)->filters.window, src,
                           weights, bias, dst, pd);
}

static dnnl_status_t backward_data_pd(const weighted *w, const pd_env *env,
                                      md_t diff_src, md_t weights, md_t diff_dst,
                                      dnnl_primitive_desc_t *pd) {
    return pd_conv_backward_data(env, algorithm(w), &of(w)->filters.window, diff_src,
                                 weights, diff_dst, pd);
}

/* oneDNN has optimised Winograd code for few shapes. */
static dnnl_status_t backward_weights_pd(const weighted *w, const pd_env *env, md_t src,
                                         md_t diff_weights, md_t diff_bias,
                                         md_t diff_dst, dnnl_primitive_desc_t *pd) {
    const sliding_window *window = &of(w)->filters.window;
    dnnl_status_t st = pd_conv_backward_weights(env, algorithm(w), window, src,
                                                diff_weights, diff_bias, diff_dst, pd);
    if (st != dnnl_success || !pd_is_slow(*pd))
        return st;
    (void)dnnl_primitive_desc_destroy(*pd);
    return pd_conv_backward_weights(env, dnnl_convolution_direct, window, src,
                                    diff_weights, diff_bias, diff_dst, pd);
}

static size_t own_gradient_bytes(weighted *w) {
    convolution *conv = (convolution *)w;
    return convolution_colours_bytes(w, &conv->colours);
}

static void own_gradient(const weighted *w, const void *in, const void *out_diff,
                         float *weights_diff, float *bias_diff, void *scratch) {
    const convolution_colours *colours = &of(w)->colours;
    colours->kernels->backward_weights(&colours->conv, in, out_diff, weights_diff,
                                       bias_diff, scratch);
}

static const weighted_kind kind = {
    .forward = forward_pd,
    .backward_data = backward_data_pd,
    .backward_weights = backward_weights_pd,
    .own_gradient_bytes = own_gradient_bytes,
    .own_gradient = own_gradient,
    .stored = layout_plain,
};

static int layout_setting(const dlc_settings *settings) {
    const char *text = host->get_string(settings, "layout");
    if (strcmp(text, "library") == 0)
        return LAYOUT_LIBRARY;
    if (strcmp(text, "batch_blocked") == 0)
        return LAYOUT_BATCH_BLOCKED;
    return strcmp(text, "channels_last") == 0 ? LAYOUT_LAST : LAYOUT_AUTO;
}

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_layer *layer = NULL;
    dlc_status status = layer_alloc(args, sizeof(convolution), &layer);
    if (status != DLC_OK)
        return status;
    convolution *conv = (convolution *)layer;
    linear_read(args, &conv->w.linear);
    conv->w.kind = &kind;
    conv->layout = layout_setting(args->settings);
    status = convolution_read(layer->name, args->settings, &conv->filters);
    if (status == DLC_OK)
        *out = layer;
    else
        layer_free(layer);
    return status;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    convolution *conv = (convolution *)layer;
    return convolution_infer(layer, &conv->w.linear, &conv->filters,
                             layer->net->precision, shapes);
}

/* Weights as oneDNN sees them: with groups they have one more dimension. */
static dlc_shape weights_shape(const convolution *conv, const dlc_shape *own) {
    dlc_shape weights = *own;
    if (conv->filters.group <= 1)
        return weights;
    weights.rank = 5;
    weights.dims[0] = conv->filters.group;
    weights.dims[1] = own->dims[0] / conv->filters.group;
    for (int i = 1; i < 4; i++)
        weights.dims[i + 1] = own->dims[i];
    return weights;
}

/* oneDNN pads channels to blocks of 16 and multiplies the padding, too. If there is
 * little padding, blocks are faster than channels last; with few channels (20 would be
 * padded to 32), slower. Images with a few colours are read in the layout they come in.
 */
enum { BLOCK = 16 };

static int blocks_fit(const convolution *conv, const dlc_shape *in,
                      const dlc_shape *out) {
    const double most = 1.4;
    double waste = 1;
    const int64_t channels[] = {in->dims[1], out->dims[1]};
    int depthwise = conv->filters.group == in->dims[1];
    for (int i = 0; i < 2; i++) {
        int64_t own = depthwise ? channels[i] : channels[i] / conv->filters.group;
        int64_t blocks = (own + BLOCK - 1) / BLOCK;
        if (i > 0 || own > COLOURS)
            waste *= (double)(blocks * BLOCK) / (double)own;
    }
    return waste <= most;
}

static dlc_status prepare_onednn(convolution *conv, dlc_layer_memory *memory,
                                 const dlc_shape *weights) {
    context *net = conv->w.head.net;
    const dlc_shape *in = &memory->in[0].shape, *out = &memory->out[0].shape;
    /* oneDNN's Winograd transform would pad colours to a block, and images smaller than
     * two of its tiles to tiles, in scratch memory many times the size of the image.
     */
    enum { TWO_TILES = 8 };
    conv->filters.direct |= in->dims[1] <= COLOURS ||
                            (out->dims[2] < TWO_TILES && out->dims[3] < TWO_TILES);
    convolution_colours_plan(&conv->w, &conv->filters.window, conv->filters.group,
                             memory, &conv->colours);
    const weighted_choice last = {.src = layout_last(net, in, net->precision),
                                  .dst = layout_last(net, out, net->precision)};
    const weighted_choice library = {.src = layout_any(net, in, net->precision),
                                     .dst = layout_any(net, out, net->precision)};
    if (!last.src || !last.dst || !library.src || !library.dst)
        return DLC_ERR_NOMEM;
    /* The first choice, or the other if oneDNN has better code for it. */
    int blocked = conv->layout == LAYOUT_LIBRARY ||
                  (conv->layout == LAYOUT_AUTO && blocks_fit(conv, in, out));
    const weighted_choice choices[] = {blocked ? library : last,
                                       blocked ? last : library};
    return weighted_prepare(&conv->w, memory, weights, choices,
                            conv->layout == LAYOUT_AUTO ? 2 : 1);
}

/* Can oneDNN transform a window of 3 x 3 without groups itself, as fast as our kernels?
 */
static dlc_status library_transforms(const convolution *conv,
                                     const dlc_layer_memory *memory,
                                     const dlc_shape *weights, int *transforms) {
    context *net = conv->w.head.net;
    *transforms = 0;
    if (conv->filters.group > 1 || conv->filters.window.kernel[0] != 3)
        return DLC_OK;
    const dlc_layout *src = layout_any(net, &memory->in[0].shape, DLC_F32);
    const dlc_layout *dst = layout_any(net, &memory->out[0].shape, DLC_F32);
    const dlc_layout *kernels = layout_any(net, weights, DLC_F32);
    if (!src || !dst || !kernels)
        return DLC_ERR_NOMEM;
    dnnl_primitive_desc_t pd = NULL;
    const pd_env env = {.engine = net->engine, .attr = net->attr};
    dnnl_status_t st = pd_conv_forward(&env, dnnl_forward_training,
                                       dnnl_convolution_auto, &conv->filters.window,
                                       src->md, kernels->md, NULL, dst->md, &pd);
    if (st == dnnl_out_of_memory)
        return dnnl_failed(st, conv->w.head.name, "describe its forward pass");
    if (st != dnnl_success)
        return DLC_OK;
    *transforms = pd_is_winograd(pd);
    (void)dnnl_primitive_desc_destroy(pd);
    return DLC_OK;
}

/* Products by tiles need windows without dilation, alike in both dimensions, and enough
 * channels in a group to fill a tile. In a test net the train net's weights decide. */
static int amx_fits(convolution *conv, const dlc_layer_memory *memory) {
    enum { FEWEST_IN_GROUP = 16 };
    const convolution *train = (const convolution *)conv->w.head.train_layer;
    const sliding_window *window = &conv->filters.window;
    const dlc_shape *in = &memory->in[0].shape, *out = &memory->out[0].shape;
    const size_t group = (size_t)conv->filters.group;
    conv->amx.kernels = amx_here();
    if (train && train->w.weights && !train->amx.kernels)
        conv->amx.kernels = NULL;
    if (window->stride[0] != window->stride[1] ||
        (group > 1 && (in->dims[1] < FEWEST_IN_GROUP * conv->filters.group ||
                       out->dims[1] < FEWEST_IN_GROUP * conv->filters.group)))
        conv->amx.kernels = NULL;
    amx_conv shape = {
        .threads = (size_t)omp_get_max_threads(),
        .batch = (size_t)in->dims[0],
        .group = group,
        .in_channels = (size_t)in->dims[1],
        .out_channels = (size_t)out->dims[1],
        .stride = (size_t)window->stride[0],
    };
    for (int d = 0; d < 2; d++) {
        shape.in[d] = (size_t)in->dims[2 + d];
        shape.out[d] = (size_t)out->dims[2 + d];
        shape.kernel[d] = (size_t)window->kernel[d];
        shape.pad[d] = (size_t)window->pad_begin[d];
        if (window->dilation[d] || window->pad_begin[d] >= window->kernel[d])
            conv->amx.kernels = NULL;
    }
    conv->amx.conv = shape;
    return conv->amx.kernels != NULL;
}

static dlc_status prepare_amx(convolution *conv, dlc_layer_memory *memory) {
    context *net = conv->w.head.net;
    const dlc_shape *weights = &conv->w.linear.shape;
    return weighted_amx_prepare(&conv->w, &conv->amx, memory,
                                layout_last(net, &memory->in[0].shape, DLC_BF16),
                                layout_last(net, &memory->out[0].shape, DLC_BF16),
                                weights, layout_last(net, weights, DLC_F32));
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    convolution *conv = (convolution *)layer;
    if (layer->net->precision == DLC_BF16 && conv->layout == LAYOUT_AUTO &&
        amx_fits(conv, memory))
        return prepare_amx(conv, memory);
    const dlc_shape weights = weights_shape(conv, &conv->w.linear.shape);
    int float32 = layer->net->precision ==
                  DLC_F32; /* the batch-blocked kernels support nothing else */
    int forced = float32 && conv->layout == LAYOUT_BATCH_BLOCKED;
    /* Depthwise filters multiply too little to pay for the reorder to batch-blocked. */
    int may_be = float32 && conv->layout == LAYOUT_AUTO && conv->filters.group == 1;
    if ((forced || may_be) && convolution_batch_blocked_fits(
                                  &conv->w, &conv->filters.window, conv->filters.group,
                                  memory, forced, &conv->batch_blocked))
        return convolution_batch_blocked_prepare(&conv->w, &conv->batch_blocked, memory,
                                                 &weights);
    int transforms = 1;
    if (float32 && conv->layout == LAYOUT_AUTO && !conv->filters.direct) {
        dlc_status status = library_transforms(conv, memory, &weights, &transforms);
        if (status != DLC_OK)
            return status;
    }
    if (!transforms &&
        convolution_winograd_fits(&conv->w, &conv->filters.window, conv->filters.group,
                                  memory, &conv->winograd))
        return convolution_winograd_prepare(&conv->w, &conv->winograd, memory,
                                            &weights);
    int last = conv->layout == LAYOUT_LAST;
    if (!forced && conv->layout != LAYOUT_LIBRARY &&
        convolution_depthwise_fits(&conv->w, &conv->filters.window, conv->filters.group,
                                   last, memory, &conv->depthwise))
        return convolution_depthwise_prepare(&conv->w, &conv->depthwise, last, memory,
                                             &weights);
    return prepare_onednn(conv, memory, &weights);
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    convolution *conv = (convolution *)layer;
    if (conv->amx.kernels)
        return weighted_amx_forward(&conv->w, &conv->amx, run);
    if (conv->winograd.kernels)
        return convolution_winograd_forward(&conv->w, &conv->winograd, run);
    if (conv->depthwise.kernels)
        return convolution_depthwise_forward(&conv->w, &conv->depthwise, run);
    return conv->batch_blocked.tables
               ? convolution_batch_blocked_forward(&conv->w, &conv->batch_blocked, run)
               : weighted_forward(layer, run);
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    convolution *conv = (convolution *)layer;
    if (conv->amx.kernels)
        return weighted_amx_backward(&conv->w, &conv->amx, run);
    if (conv->winograd.kernels)
        return convolution_winograd_backward(&conv->w, &conv->winograd, run);
    if (conv->depthwise.kernels)
        return convolution_depthwise_backward(&conv->w, &conv->depthwise, run);
    return conv->batch_blocked.tables
               ? convolution_batch_blocked_backward(&conv->w, &conv->batch_blocked, run)
               : weighted_backward(layer, run);
}

/* Our own kernels use plain weights. */
static int is_plain(const dlc_layer *layer) {
    const convolution *conv = (const convolution *)layer;
    return conv->batch_blocked.tables || conv->winograd.kernels ||
           conv->depthwise.kernels;
}

static dlc_status copy_plain(const dlc_layer *layer, int32_t index, const float *from,
                             float *to) {
    const weighted *w = (const weighted *)layer;
    memcpy(to, from, index ? w->bias->bytes : w->weights->bytes);
    return DLC_OK;
}

static dlc_status import(dlc_layer *layer, int32_t index, const float *plain,
                         float *own) {
    return is_plain(layer) ? copy_plain(layer, index, plain, own)
                           : weighted_import(layer, index, plain, own);
}

static dlc_status export(dlc_layer *layer, int32_t index, const float *own,
                         float *plain) {
    return is_plain(layer) ? copy_plain(layer, index, own, plain)
                           : weighted_export(layer, index, own, plain);
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    const convolution *conv = (const convolution *)layer;
    if (conv->amx.kernels)
        weighted_amx_describe(&conv->w, &conv->amx, text, bytes);
    else if (conv->winograd.kernels)
        convolution_winograd_describe(&conv->w, &conv->winograd, text, bytes);
    else if (conv->depthwise.kernels)
        convolution_depthwise_describe(&conv->w, &conv->depthwise, text, bytes);
    else if (conv->batch_blocked.tables)
        convolution_batch_blocked_describe(&conv->w, &conv->batch_blocked, text, bytes);
    else
        weighted_describe(layer, text, bytes);
}

static void destroy(dlc_layer *layer) {
    if (layer) {
        host->free(((convolution *)layer)->batch_blocked.tables);
        weighted_amx_clear(&((convolution *)layer)->amx);
    }
    weighted_destroy(layer);
}

const dlc_layer_ops convolution_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &onednn_family,
    .create = create,
    .destroy = destroy,
    .infer = infer,
    .fuse = weighted_fuse,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .param_import = import,
    .param_export = export,
    .describe = describe,
};
