/* Internals of the onednn layer plugin: the host, the context of a net, layouts,
 * primitives with their memory bound, and the head of every layer. */
#ifndef ONEDNN_H
#define ONEDNN_H

#include <dlcore/layer.h>

#include "../shared/layer.h"
#include "../shared/types.h"

#include "compat.h"

extern const dlc_family onednn_family;

/* ---- A net's context --------------------------------------------------------- */

typedef struct context {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr; /* user-managed scratchpad, otherwise defaults */
    dlc_phase phase;
    dlc_dtype precision; /* of activations, where a layer has a choice */
    dlc_layout *layouts; /* all layouts ever requested; freed at close */
} context;

/* Fails with "layer 'conv1': oneDNN cannot <what>: <status>" and a matching status. */
dlc_status dnnl_failed(dnnl_status_t st, const char *layer, const char *what);

/* ---- Layouts ------------------------------------------------------------------ */

/* A memory descriptor that lives as long as the context. Two layouts of one context are
 * equal if their addresses are. */
struct dlc_layout {
    md_t md;
    dlc_dtype dtype;
    size_t bytes;
    int plain;  /* same bytes as row-major: passed to the core as NULL */
    int last;   /* channels last: N, spatial, C; dense (may be plain as well) */
    int block;  /* channels in the innermost block; 0: not blocked by channels */
    int padded; /* holds more elements than the tensor has */
    size_t batch_block; /* images in the innermost block (batch_blocked.h); 0: not
                           batch-blocked */
    struct dlc_layout *next;
};

/* These return NULL, with an error set, if oneDNN refuses. */
const dlc_layout *layout_of_md(context *net, md_t md);
const dlc_layout *layout_plain(context *net, const dlc_shape *shape, dlc_dtype dtype);
const dlc_layout *layout_last(context *net, const dlc_shape *shape, dlc_dtype dtype);
/* Weights whose first two dimensions are exchanged in memory; of each group, if there
 * are five dimensions. */
const dlc_layout *layout_transposed(context *net, const dlc_shape *shape,
                                    dlc_dtype dtype);
/* oneDNN's choice */
const dlc_layout *layout_any(context *net, const dlc_shape *shape, dlc_dtype dtype);
const dlc_layout *layout_of(context *net, const dlc_tensor *tensor);
/* The layout of `tensor` if that is plain or channels last, else channels last: what
 * our own kernels can read. *last says which. */
const dlc_layout *layout_simple(context *net, const dlc_tensor *tensor, int *last);
/* An image's channels in dense blocks of 4, 8 or 16. */
const dlc_layout *layout_blocked(context *net, const dlc_shape *shape, dlc_dtype dtype,
                                 int block);
/* Batch-blocked (batch_blocked.h), float32. */
const dlc_layout *layout_batch_blocked(context *net, const dlc_shape *shape,
                                       size_t block);
/* For layers that process each channel of each image separately: a batch-blocked layout
 * as the channels_last layout of more images with `batch_block` channels each, which is
 * the same memory; *as is its shape. Other layouts are returned unchanged. */
const dlc_layout *layout_by_channel(context *net, const dlc_layout *layout,
                                    const dlc_shape *shape, dlc_shape *as);
/* The memory of an image as [images][blocks][points][lanes]: the elements of a pixel
 * that are adjacent are all channels, or a block of channels or of images. Returns 0
 * for other layouts. */
typedef struct layout_pixel_view {
    size_t images, blocks, points, lanes;
} layout_pixel_view;
int layout_pixels(const dlc_layout *layout, const dlc_shape *shape,
                  layout_pixel_view *view);
/* Of a tensor that is arranged as another one, or else oneDNN's choice. */
const dlc_layout *layout_like(context *net, const dlc_layout *from,
                              const dlc_shape *shape);
/* Sets the tensor's layout and its element type. */
void layout_set(dlc_tensor *tensor, const dlc_layout *layout);
void layouts_free(context *net);
/* The name of a layout, for people: "plain", "channels_last". */
const char *layout_name(const dlc_layout *layout);

/* ---- Primitives --------------------------------------------------------------- */

enum { OP_ARGS = 12 };

/* A primitive and the memory objects of its arguments. The primitive is compiled on its
 * first run; a memory object is bound again only when its address changes. */
typedef struct op {
    context *net;
    const char *layer; /* for messages */
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive;
    size_t scratch_bytes;
    int args;
    dnnl_exec_arg_t arg[OP_ARGS];
    const void *at[OP_ARGS];
} op;

typedef struct op_bind {
    int arg; /* DNNL_ARG_... */
    const void *at;
} op_bind;

/* Takes ownership of `pd`; `st` is the result of creating it. */
dlc_status op_init(op *o, context *net, const char *layer, const char *what,
                   dnnl_status_t st, dnnl_primitive_desc_t pd);
dlc_status op_reorder(op *o, context *net, const char *layer, const dlc_layout *from,
                      const dlc_layout *to);
dlc_status op_run_all(op *o, const op_bind *binds, int count);
#define OP_RUN(o, ...) \
    op_run_all((o), (const op_bind[]){__VA_ARGS__}, \
               (int)(sizeof((const op_bind[]){__VA_ARGS__}) / sizeof(op_bind)))
void op_clear(op *o);
/* The layout of an argument; NULL, with an error set, on failure. */
const dlc_layout *op_layout(op *o, dnnl_query_t what);
const char *op_name(const op *o); /* "jit:avx512_core" */
md_t op_md(const op *o, dnnl_query_t what);
int pd_is_slow(dnnl_primitive_desc_t pd); /* is it oneDNN's reference code? */
int pd_is_winograd(dnnl_primitive_desc_t pd);

/* Number of elements in memory, padding included. */
static inline int64_t layout_count(const dlc_layout *layout) {
    return (int64_t)(layout->bytes / dlc_dtype_bytes(layout->dtype));
}

#endif
