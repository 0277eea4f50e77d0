/* What the layers of this plugin share: the host, the context of a net, layouts,
 * errors, and the head that every layer starts with. Names and option tables are those
 * of the family on the processor, plugins/layers/onednn, so that one net.ini works on
 * both.
 *
 * Agreements of this family:
 * - The device is "cuda" (dlcore/cuda.h): a dlc_queue is a cudaStream_t, pointers are
 * the GPU's memory. forward and backward give work to net->stream alone; they never
 * block, never allocate and never read what the GPU computes, for they are recorded
 * into CUDA graphs. Plans, handles and tables are made in prepare; memory comes from
 *   plan->workspace_bytes (kept until backward) and plan->scratch_bytes (lost after the
 *   call, shared by all layers).
 * - Images lie channels last (NHWC): layout_last(). A layer that can read both takes
 * what comes (layout_simple); one with a choice wants channels last. Tensors of one or
 * two dimensions are plain, which is the same there. Gradients lie as their tensors do.
 * - Activations are float32, bfloat16 or half floats as net->precision says; whoever
 * has both DLC_LAYER_BF16 and DLC_LAYER_F16 in its caps reads and writes all three. All
 *   arithmetic and all sums are float32, and so are parameters and their gradients.
 * - The same inputs give the same bits: no atomic sums in floating point, no engine
 * that says it is not deterministic.
 * - With DLCORE_CUDNN_PLAN_FOR=FILE (a GPU's properties as cuDNN's JSON) nets are
 * prepared for a GPU that is not here, without a driver: net->description is set and
 * prepare may not call the CUDA runtime. That is how plans are tested.
 *
 * Kernels: a file NAME.cu offers functions that launch them, declared in NAME.h within
 * extern "C" guards and without this header (plain C types and <cuda_runtime_api.h>);
 * they return cudaPeekAtLastError(), which goes through check_cuda. Those with barriers
 * (norm, bias, reorder) are run by tests on an emulation of blocks and threads; the
 * others have their arithmetic in kernels/..._body.h, which tests compile for the
 * processor. */
#ifndef DLCORE_LAYERS_CUDNN_H
#define DLCORE_LAYERS_CUDNN_H

#include <cuda_runtime_api.h>

#include <dlcore/cuda.h>
#include <dlcore/layer.h>

#include "../shared/shapes.h"

extern const dlc_host *host; /* set when the plugin is loaded */
extern const dlc_family cudnn_family;

/* ---- A net's context --------------------------------------------------------- */

struct cudnnContext;    /* a cudnnHandle_t points to it */
struct cublasLtContext; /* a cublasLtHandle_t points to it */

typedef struct context {
    const dlc_device_ops *device_ops;
    dlc_device *device_at;
    cudaStream_t stream;
    int device; /* the runtime's number of the GPU, current on the train thread */
    dlc_phase phase;
    dlc_dtype precision;        /* of activations, where a layer has a choice */
    uint32_t math;              /* DLC_MATH_ bits */
    int tune;                   /* engines are to be timed ([train] autotune = yes) */
    char gpu[512];              /* which kind it is, for the cache of engines */
    char *description;          /* of a GPU that is not here; NULL: it is */
    dlc_layout *layouts;        /* all that were ever asked for; freed at close */
    struct cudnnContext *cudnn; /* opened when it is asked for, below */
    struct cublasLtContext *blas;
    void *described; /* cuDNN's descriptor of the described GPU; NULL: it is here */
} context;

/* The net's handle of cuDNN, on its stream; opened the first time, in prepare. With a
 * description there is none: *handle is NULL. */
dlc_status context_cudnn(context *net, struct cudnnContext **handle);
/* The same of cuBLASLt. */
dlc_status context_blas(context *net, struct cublasLtContext **handle);

/* DLC_OK, or "layer 'conv1': CUDA cannot <what>: <reason>". `layer` may be NULL. */
dlc_status check_cuda(cudaError_t error, const char *layer, const char *what);

/* ---- Layouts ------------------------------------------------------------------ */

/* What the writer of a tensor leaves beside it at each pass, in float32: the sum of
 * each channel, and that of its squares. NULL where nothing is run. */
typedef struct channel_sums {
    float *sum, *squares;
} channel_sums;

/* How a tensor lies in memory: dense, in one of two orders. Two layouts of one context
 * are the same if their addresses are. Valid until the context is closed. */
struct dlc_layout {
    dlc_shape shape;
    dlc_dtype dtype;
    int plain; /* the same bytes as row-major: handed to the core as NULL */
    int last;  /* channels last: N, spatial, C; dense (may be plain as well) */
    /* Channels in memory; more than shape has where they are padded with zeros. Only a
     * convolution asks to read that of an image that it need not give a gradient for;
     * nobody writes it. */
    int64_t channels;
    int64_t count; /* elements in memory */
    size_t bytes;
    /* Of the one tensor whose writer gave it this layout, and of no other that lies the
     * same way. NULL: its channels are not added up. */
    const channel_sums *sums;
    dlc_layout *next;
};

/* NULL with the detail sentence set when memory ran out. */
const dlc_layout *layout_plain(context *net, const dlc_shape *shape, dlc_dtype dtype);
const dlc_layout *layout_last(context *net, const dlc_shape *shape, dlc_dtype dtype);
/* Channels last, with room for `channels` of them. */
const dlc_layout *layout_padded(context *net, const dlc_shape *shape, dlc_dtype dtype,
                                int64_t channels);
/* Channels last and not plain, with sums that are there as long as the net is. */
const dlc_layout *layout_summed(context *net, const dlc_layout *bare,
                                const channel_sums *sums);
/* How a tensor that comes in lies; no more than that. */
const dlc_layout *layout_of(context *net, const dlc_tensor *tensor);
/* As `tensor` comes if that is plain or channels last, else channels last: what a
 * kernel of our own can walk through. *last tells which. */
const dlc_layout *layout_simple(context *net, const dlc_tensor *tensor, int *last);
/* The tensor has, or is wanted in, this layout and its element type. */
void layout_give(dlc_tensor *tensor, const dlc_layout *layout);
void layouts_free(context *net);
/* "plain" or "channels_last", for people. */
const char *layout_name(const dlc_layout *layout);

/* ---- Layers ------------------------------------------------------------------- */

/* Every layer's struct starts with this. */
struct dlc_layer {
    context *net;
    char name[96];
    dlc_phase phase;
    dlc_layer *twin;
    uint64_t seed;
    uint32_t index;
};

/* A zeroed layer of `bytes` with its head filled in. */
dlc_status layer_alloc(const dlc_layer_args *args, size_t bytes, dlc_layer **layer);
void layer_free(dlc_layer *layer); /* NULL allowed */

/* Checks of what comes in; errors name the layer and the shapes. */
dlc_status need_inputs(const dlc_layer *layer, const dlc_layer_plan *plan, int count);
/* All inputs are floats of rank min..max: float32, or what the core shows to types
 * with DLC_LAYER_BF16 or DLC_LAYER_F16. */
dlc_status need_floats(const dlc_layer *layer, const dlc_layer_plan *plan, int min_rank,
                       int max_rank);

/* out[0] has the shape and type of in[0]. */
void same_shape(dlc_layer_plan *plan);
/* Both keep the layout that in[0] comes in. */
dlc_status same_layout(dlc_layer *layer, dlc_layer_plan *plan,
                       const dlc_layout **layout);

/* a * b, or as much as fits: costs of nets that nobody can run. Both at least 0. */
static inline int64_t times(int64_t a, int64_t b) {
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/* Is this part of backward asked for? Who says nothing wants the whole. */
static inline int wants_part(const dlc_layer_run *run, uint32_t part) {
    return !run->parts || (run->parts & part) != 0;
}

/* May others' gradients be where this one of input i goes? */
static inline int shares_gradient(const dlc_layer_plan *plan, int i) {
    return DLC_HAS(plan, adds_gradient) && (plan->shares_gradient >> i & 1) != 0;
}

/* Are they there, to be added to? */
static inline int adds_to(const dlc_layer_run *run, int i) {
    return DLC_HAS(run, adds) && (run->adds >> i & 1) != 0;
}

/* What the run says in device memory, or NULL where the core is older. */
static inline const dlc_step *step_at(const dlc_layer_run *run) {
    return DLC_HAS(run, step_at) ? run->step_at : NULL;
}

static inline const float *loss_scale_at(const dlc_layer_run *run) {
    return DLC_HAS(run, loss_scale_at) ? run->loss_scale_at : NULL;
}

static inline size_t round64(size_t bytes) {
    return (bytes + 63) & ~(size_t)63;
}

static inline void *at_offset(void *base, size_t bytes) {
    return (char *)base + bytes;
}

/* ---- Operations of the layer types, for the descriptor (plugin.c) ------------- */

extern const dlc_layer_ops convolution_ops, inner_product_ops, pooling_ops, relu_ops,
    sigmoid_ops, tanh_ops, elu_ops, gelu_ops, swish_ops, softplus_ops, mish_ops,
    hardswish_ops, clip_ops, abs_ops, lrn_ops, dropout_ops, softmax_ops,
    softmax_loss_ops, accuracy_ops, concat_ops, eltwise_ops, batch_norm_ops, scale_ops,
    flatten_ops;

extern const dlc_option convolution_options[], inner_product_options[],
    pooling_options[], relu_options[], elu_options[], gelu_options[], swish_options[],
    clip_options[], lrn_options[], dropout_options[], softmax_options[],
    softmax_loss_options[], accuracy_options[], concat_options[], eltwise_options[],
    batch_norm_options[], scale_options[], flatten_options[];

#endif
