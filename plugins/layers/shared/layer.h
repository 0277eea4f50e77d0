/* What the layers of all families have in common: the head of their structs, checks of
 * their inputs, and the shapes of the simplest outputs. */
#ifndef LAYERS_SHARED_LAYER_H
#define LAYERS_SHARED_LAYER_H

#include <dlcore/layer.h>

#include "shapes.h"

extern const dlc_host *host; /* defined by the plugin, set when it is loaded */

struct context; /* of a net; defined by the family */

/* Every layer's struct begins with this. */
struct dlc_layer {
    struct context *net;
    char name[96];
    dlc_phase phase;
    dlc_layer *train_layer;
    int plain_params, frozen;
    const dlc_layer_group *group; /* the ranks that split the samples, or NULL */
    uint64_t seed;
    uint32_t index;
};

/* Allocates a zeroed layer of `bytes` with its head filled in. */
dlc_status layer_alloc(const dlc_layer_args *args, size_t bytes, dlc_layer **layer);
void layer_free(dlc_layer *layer); /* NULL allowed */

/* ---- Shapes -------------------------------------------------------------------- */

/* Checks the number of inputs. Errors of all checks name the layer and the shapes. */
dlc_status need_inputs(const dlc_layer *layer, const dlc_layer_shapes *shapes,
                       int count);
/* Checks that all inputs are floats of rank min..max. Types without DLC_LAYER_BF16 or
 * DLC_LAYER_F16 never see these. */
dlc_status need_floats(const dlc_layer *layer, const dlc_layer_shapes *shapes,
                       int min_rank, int max_rank);
/* Checks that input 0, called `input` in the message, has the axis. */
dlc_status need_axis(const dlc_layer *layer, const char *input, int axis,
                     const dlc_shape *in);
/* Checks that there is one input, of floats of rank min..max, and gives out[0] its
 * shape and type. */
dlc_status infer_one(const dlc_layer *layer, dlc_layer_shapes *shapes, int min_rank,
                     int max_rank);
/* `infer` of elementwise layers, and of layers that keep the shape of an image. */
dlc_status infer_elementwise(dlc_layer *layer, dlc_layer_shapes *shapes);
dlc_status infer_image(dlc_layer *layer, dlc_layer_shapes *shapes);

/* The element type of all tensors if it is the same, else float32. */
dlc_dtype common_type(const dlc_tensor *tensor, int32_t count);
/* The dimensions in memory order, outermost first, for plain or channels last. */
void order_dims(int rank, int last, int order[DLC_MAX_DIMS]);

/* `describe` of layers with kernels of our own. */
void describe_own(dlc_layer *layer, char *text, size_t bytes);

/* ---- Small helpers --------------------------------------------------------------- */

/* Does the option have this value? */
int option_is(const dlc_settings *settings, const char *option, const char *value);

/* a * b, saturating: the cost of nets that are too large for any machine. Both at least
 * 0. */
static inline int64_t times(int64_t a, int64_t b) {
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

/* Does backward compute gradients of the parameters? */
static inline int has_weight_gradient(const dlc_layer *layer) {
    return layer->phase == DLC_PHASE_TRAIN && !layer->frozen;
}

/* Is this part of backward requested? 0 means all of it. */
static inline int wants_backward(const dlc_layer_run *run, uint32_t part) {
    return !run->backward || (run->backward & part) != 0;
}

/* Does backward of the layer begin with this call, in which it takes back what is
 * fused?
 */
static inline int begins_backward(const dlc_layer *layer, const dlc_layer_run *run) {
    return layer->frozen || wants_backward(run, DLC_BACKWARD_WEIGHTS);
}

static inline size_t round64(size_t bytes) {
    return (bytes + 63) & ~(size_t)63;
}

static inline size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

static inline void *at_offset(void *base, size_t bytes) {
    return (char *)base + bytes;
}

#endif
