/* layers/cudnn as a plugin on the host, for the conformance tests of layers: the layers
 * whose kernels are our own, with emulated kernels, and the products of
 * host_products.c. The family has the same layouts, but its tensors are in host
 * memory. */
#include <dlcore/plugin.h>

#include <string.h>

#include "cudnn.h"
#include "kernels/body.h"

const dlc_host *host;

static dlc_status load_host(const dlc_host *given) {
    host = given;
    return DLC_OK;
}

dlc_status check_cuda(cudaError_t error, const char *layer, const char *what) {
    if (error == cudaSuccess)
        return DLC_OK;
    return host->fail(DLC_ERR_INTERNAL, "layer '%s': cannot %s: %d", layer, what,
                      (int)error);
}

/* ---- The family -------------------------------------------------------------- */

static dlc_status copy_now(dlc_device *device, dlc_queue *queue, void *dst,
                           const void *src, size_t bytes) {
    (void)device, (void)queue;
    memcpy(dst, src, bytes);
    return DLC_OK;
}

static dlc_status alloc_here(dlc_device *device, size_t bytes, uint32_t flags,
                             dlc_memory *memory) {
    (void)device, (void)flags;
    memory->base = host->alloc(bytes);
    return memory->base ? DLC_OK : DLC_ERR_NOMEM;
}

static void free_here(dlc_device *device, dlc_memory *memory) {
    (void)device;
    host->free(memory->base);
    memory->base = NULL;
}

static const dlc_device_ops host_device = {.size = sizeof host_device,
                                           .alloc = alloc_here,
                                           .free = free_here,
                                           .copy = copy_now};

static dlc_status family_open(const dlc_family_args *args, void **opaque) {
    context *net = host->alloc(sizeof *net);
    if (!net)
        return DLC_ERR_NOMEM;
    net->device_ops = &host_device;
    net->phase = args->phase;
    net->precision = args->precision;
    net->math = args->math;
    *opaque = net;
    return DLC_OK;
}

static void family_close(void *opaque) {
    layouts_free(opaque);
    host->free(opaque);
}

const dlc_family cudnn_family = {
    .size = sizeof(dlc_family),
    .name = "cudnn",
    .open = family_open,
    .close = family_close,
    .same_layout = layouts_are_same,
    .reorder_create = layout_reorder_create,
    .reorder_run = layout_reorder_run,
    .reorder_destroy = layout_reorder_destroy,
};

/* ---- The descriptor ---------------------------------------------------------- */

#define LAYER(name_, options_, caps_) \
    { \
        .size = sizeof(dlc_feature), .kind = DLC_KIND_LAYER, .name = #name_, \
        .help = "on the host", .device = "cpu", \
        .caps = (caps_) | DLC_LAYER_BF16 | DLC_LAYER_F16, .options = (options_), \
        .ops = &name_##_ops \
    }

static const dlc_feature features[] = {
    LAYER(convolution, convolution_options, DLC_LAYER_SPLIT_BACKWARD),
    LAYER(deconvolution, deconvolution_options, DLC_LAYER_SPLIT_BACKWARD),
    LAYER(inner_product, inner_product_options, DLC_LAYER_SPLIT_BACKWARD),
    LAYER(batch_norm, batch_norm_options, DLC_LAYER_RECOMPUTABLE),
    LAYER(pooling, pooling_options, 0),
    LAYER(upsample, upsample_options, 0),
    LAYER(relu, relu_options, DLC_LAYER_POINTWISE),
    LAYER(sigmoid, NULL, DLC_LAYER_POINTWISE),
    LAYER(tanh, NULL, DLC_LAYER_POINTWISE),
    LAYER(elu, elu_options, DLC_LAYER_POINTWISE),
    LAYER(gelu, gelu_options, DLC_LAYER_POINTWISE),
    LAYER(swish, swish_options, DLC_LAYER_POINTWISE),
    LAYER(softplus, NULL, DLC_LAYER_POINTWISE),
    LAYER(mish, NULL, DLC_LAYER_POINTWISE),
    LAYER(hardswish, NULL, DLC_LAYER_POINTWISE),
    LAYER(clip, clip_options, DLC_LAYER_POINTWISE),
    LAYER(abs, NULL, DLC_LAYER_POINTWISE),
    LAYER(lrn, lrn_options, 0),
    LAYER(scale, scale_options, 0),
    LAYER(dropout, dropout_options, 0),
    LAYER(concat, concat_options, 0),
    LAYER(eltwise, eltwise_options, DLC_LAYER_BINARY),
    LAYER(flatten, flatten_options, 0),
    LAYER(softmax, softmax_options, 0),
    LAYER(softmax_loss, softmax_loss_options, DLC_LAYER_METRIC | DLC_LAYER_LOSS),
    LAYER(sigmoid_cross_entropy_loss, sigmoid_cross_entropy_loss_options,
          DLC_LAYER_METRIC | DLC_LAYER_LOSS),
    LAYER(euclidean_loss, euclidean_loss_options, DLC_LAYER_METRIC | DLC_LAYER_LOSS),
    LAYER(accuracy, accuracy_options, DLC_LAYER_METRIC),
    DLC_FEATURES_END,
};

DLC_PLUGIN("cudnn", DLC_VERSION, "BSD-2-Clause", features, load_host);
