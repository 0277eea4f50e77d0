/* What all layers of this plugin share: the host services, the context of a net,
 * layouts, errors, and the fields with which every layer starts. Names and option
 * tables are those of the family on the CPU, plugins/layers/onednn, so that one net.ini
 * works on both.
 *
 * Rules of this family:
 * - The device is "cuda" (dlcore/cuda.h): a queue has a cudaStream_t, and pointers
 * are GPU memory. forward and backward only enqueue work on net->stream: they never
 * block, allocate or read what the GPU computes, because they are captured into CUDA
 * graphs. Plans, handles and tables are made in prepare; memory comes from
 * memory->workspace_bytes (kept until backward) and memory->scratch_bytes (shared by
 * all layers, undefined between calls).
 * - Images are channels last (NHWC): layout_last(). A layer that can read both orders
 * takes what it is given (layout_simple); one with a choice asks for channels last.
 * Tensors of one or two dimensions are plain, which is the same for them. A gradient
 * has the layout of its tensor.
 * - Activations are float32, bfloat16 or half precision as net->precision says; layers
 * with both DLC_LAYER_BF16 and DLC_LAYER_F16 in their caps read and write all three.
 * Arithmetic and sums are float32, and so are parameters and their gradients.
 * - The same inputs give bitwise identical results: no atomic floating point sums, and
 * no cuDNN engine that is marked as nondeterministic.
 * - With DLCORE_CUDNN_PLAN_FOR=FILE (the properties of a GPU as cuDNN's JSON) nets are
 * prepared for a GPU that is not here, without a driver: net->description is set and
 * prepare must not call the CUDA runtime. Tests of plans use this.
 *
 * Kernels: a file NAME.cu offers functions that launch kernels, declared in NAME.h
 * within extern "C" guards and without this header (plain C types and
 * <cuda_runtime_api.h>). They return cudaPeekAtLastError(), which goes to check_cuda.
 * Kernels with barriers (norm, bias, reorder) are tested on an emulation of blocks and
 * threads; the arithmetic of the others is in kernels/..._body.h, which tests compile
 * for the CPU. */
#ifndef DLCORE_LAYERS_CUDNN_H
#define DLCORE_LAYERS_CUDNN_H

#include <cuda_runtime_api.h>

#include <dlcore/cuda.h>
#include <dlcore/layer.h>

#include "../shared/layer.h"
#include "../shared/types.h"
#include "fold.h"

extern const dlc_family cudnn_family;

/* ---- A net's context --------------------------------------------------------- */

struct cudnnContext;    /* a cudnnHandle_t points to it */
struct cublasLtContext; /* a cublasLtHandle_t points to it */

typedef struct context {
    const dlc_device_ops *device_ops;
    dlc_device *device_at;
    cudaStream_t stream;
    int device; /* the runtime's index of the GPU, current on the train thread */
    dlc_phase phase;
    dlc_dtype precision;        /* of activations, where a layer has a choice */
    uint32_t math;              /* DLC_MATH_ bits */
    int autotune;               /* engines are timed ([train] autotune = yes) */
    char gpu[512];              /* model of the GPU, for the engine cache */
    char *description;          /* of a GPU that is not present; NULL: it is */
    dlc_layout *layouts;        /* all layouts ever requested; freed at close */
    struct cudnnContext *cudnn; /* opened on first use by context_cudnn */
    struct cublasLtContext *blas;
    void *described; /* cuDNN's descriptor of the described GPU; NULL: it is present */
} context;

/* The net's cuDNN handle, on its stream; opened on first use, in prepare. With a
 * description there is none: *handle is NULL. */
dlc_status context_cudnn(context *net, struct cudnnContext **handle);
/* The net's cuBLASLt handle; see context_cudnn. */
dlc_status context_blas(context *net, struct cublasLtContext **handle);

/* DLC_OK, or fails with "layer 'conv1': CUDA cannot <what>: <reason>". `layer` may be
 * NULL. */
dlc_status check_cuda(cudaError_t error, const char *layer, const char *what);

/* ---- Layouts ------------------------------------------------------------------ */

/* What the writer of a tensor computes in addition to it in each pass, in float32: the
 * sum of each channel, and that of its squares. NULL for a described GPU. */
typedef struct channel_sums {
    float *sum, *squares;
} channel_sums;

/* The arrangement of a tensor in memory: dense, in one of two orders. Two layouts of
 * one context are equal if their addresses are. Valid until the context is closed. */
struct dlc_layout {
    dlc_shape shape;
    dlc_dtype dtype;
    int plain; /* same bytes as row-major: passed to the core as NULL */
    int last;  /* channels last: N, spatial, C; dense (may be plain as well) */
    /* Channels in memory; more than shape has if they are padded with zeros. Only a
     * convolution requests that, for an image that needs no gradient; no layer writes
     * it. */
    int64_t channels;
    fold fold;     /* of an image whose pixels are in blocks; likewise */
    int64_t count; /* elements in memory */
    size_t bytes;
    /* Belongs to the one tensor whose writer gave it this layout, and to no other of
     * the same arrangement. NULL: it has no sums. */
    const channel_sums *sums;
    dlc_layout *next;
};

/* These return NULL, with an error set, when out of memory. */
const dlc_layout *layout_plain(context *net, const dlc_shape *shape, dlc_dtype dtype);
const dlc_layout *layout_last(context *net, const dlc_shape *shape, dlc_dtype dtype);
/* Channels last, with room for `channels` of them. */
const dlc_layout *layout_padded(context *net, const dlc_shape *shape, dlc_dtype dtype,
                                int64_t channels);
/* Blocks of pixels (fold.h). */
const dlc_layout *layout_folded(context *net, const dlc_shape *shape, dlc_dtype dtype,
                                const fold *f);
/* Channels last and not plain, with sums that exist as long as the net does. */
const dlc_layout *layout_summed(context *net, const dlc_layout *bare,
                                const channel_sums *sums);
/* The layout of an input tensor. */
const dlc_layout *layout_of(context *net, const dlc_tensor *tensor);
/* The layout of `tensor` if that is plain or channels last, else channels last: what
 * our own kernels can read. *last says which. */
const dlc_layout *layout_simple(context *net, const dlc_tensor *tensor, int *last);
/* Sets the tensor's layout and its element type. */
void layout_give(dlc_tensor *tensor, const dlc_layout *layout);
void layouts_free(context *net);
/* "plain" or "channels_last", for people. */
const char *layout_name(const dlc_layout *layout);

/* The family's conversions between layouts, for its table. */
int layouts_are_same(const dlc_tensor *a, const dlc_tensor *b);
dlc_status layout_reorder_create(void *net, const dlc_tensor *from,
                                 const dlc_tensor *to, dlc_reorder **reorder);
dlc_status layout_reorder_run(dlc_reorder *reorder, const void *src, void *dst);
void layout_reorder_destroy(dlc_reorder *reorder);

/* ---- Layers ------------------------------------------------------------------- */

/* Input and output use the layout that in[0] comes in. */
dlc_status same_layout(dlc_layer *layer, dlc_layer_memory *memory,
                       const dlc_layout **layout);

/* Is the gradient of input i shared with other readers? */
static inline int gradient_is_shared(const dlc_layer_memory *memory, int i) {
    return (memory->shared_gradient >> i & 1) != 0;
}

/* Are their gradients in in_diff[i], to be added to? */
static inline int accumulates_into(const dlc_layer_run *run, int i) {
    return DLC_HAS(run, accumulate) && (run->accumulate >> i & 1) != 0;
}

/* The run's pointers to values in device memory; NULL if the core is older. */
static inline const dlc_step *step_at(const dlc_layer_run *run) {
    return DLC_HAS(run, step_at) ? run->step_at : NULL;
}

static inline const float *loss_scale_at(const dlc_layer_run *run) {
    return DLC_HAS(run, loss_scale_at) ? run->loss_scale_at : NULL;
}

#endif
