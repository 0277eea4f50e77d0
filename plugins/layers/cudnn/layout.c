/* Layouts: each arrangement of a tensor is one object of the context, so that equal
 * layouts have equal addresses. */
#include "cudnn.h"

#include <string.h>

static int same(const dlc_layout *a, const dlc_layout *b) {
    return a->dtype == b->dtype && a->last == b->last && a->plain == b->plain &&
           a->channels == b->channels && a->sums == b->sums &&
           !memcmp(&a->fold, &b->fold, sizeof a->fold) &&
           dlc_shape_equal(&a->shape, &b->shape);
}

/* 1 if channels last and row-major are the same order: one channel, or one point. */
static int orders_agree(const dlc_shape *shape) {
    int64_t points = 1;
    for (int32_t i = 2; i < shape->rank; i++)
        points *= shape->dims[i];
    return shape->rank < 3 || shape->dims[1] == 1 || points == 1;
}

static const dlc_layout *intern(context *net, const dlc_layout *look) {
    for (dlc_layout *at = net->layouts; at; at = at->next)
        if (same(at, look))
            return at;
    dlc_layout *made = host->alloc(sizeof *made);
    if (!made)
        return NULL;
    *made = *look;
    made->next = net->layouts;
    net->layouts = made;
    return made;
}

static const dlc_layout *layout_make(context *net, const dlc_shape *shape,
                                     dlc_dtype dtype, int last, int64_t channels) {
    int64_t own = shape->rank > 1 ? shape->dims[1] : 1;
    int both = channels == own && orders_agree(shape);
    dlc_layout look = {.shape = *shape,
                       .dtype = dtype,
                       .plain = !last || both,
                       .last = last || both,
                       .channels = channels,
                       .count = dlc_shape_count(shape) / own * channels};
    look.bytes = (size_t)look.count * dlc_dtype_bytes(dtype);
    return intern(net, &look);
}

static int64_t channels_of(const dlc_shape *shape) {
    return shape->rank > 1 ? shape->dims[1] : 1;
}

const dlc_layout *layout_plain(context *net, const dlc_shape *shape, dlc_dtype dtype) {
    return layout_make(net, shape, dtype, 0, channels_of(shape));
}

const dlc_layout *layout_last(context *net, const dlc_shape *shape, dlc_dtype dtype) {
    return layout_make(net, shape, dtype, 1, channels_of(shape));
}

const dlc_layout *layout_padded(context *net, const dlc_shape *shape, dlc_dtype dtype,
                                int64_t channels) {
    return layout_make(net, shape, dtype, 1, channels);
}

const dlc_layout *layout_folded(context *net, const dlc_shape *shape, dlc_dtype dtype,
                                const fold *f) {
    dlc_layout look = {.shape = *shape,
                       .dtype = dtype,
                       .last = 1,
                       .channels = f->depth,
                       .fold = *f,
                       .count = shape->dims[0] * f->blocks[0] * f->blocks[1] *
                                f->depth};
    look.bytes = (size_t)look.count * dlc_dtype_bytes(dtype);
    return intern(net, &look);
}

const dlc_layout *layout_summed(context *net, const dlc_layout *bare,
                                const channel_sums *sums) {
    dlc_layout look = *bare;
    look.sums = sums;
    return intern(net, &look);
}

const dlc_layout *layout_of(context *net, const dlc_tensor *tensor) {
    if (!tensor->layout)
        return layout_plain(net, &tensor->shape, tensor->dtype);
    dlc_layout bare = *tensor->layout;
    bare.sums = NULL;
    return intern(net, &bare);
}

const dlc_layout *layout_simple(context *net, const dlc_tensor *tensor, int *last) {
    const dlc_layout *layout = layout_of(net, tensor);
    if (layout && layout->channels != channels_of(&tensor->shape))
        layout = layout_last(net, &tensor->shape, tensor->dtype);
    if (layout)
        *last = layout->last && !layout->plain;
    return layout;
}

void layout_give(dlc_tensor *tensor, const dlc_layout *layout) {
    tensor->dtype = layout->dtype;
    tensor->layout = layout->plain ? NULL : layout;
    tensor->bytes = layout->plain ? 0 : layout->bytes;
}

void layouts_free(context *net) {
    while (net->layouts) {
        dlc_layout *next = net->layouts->next;
        host->free(net->layouts);
        net->layouts = next;
    }
}

const char *layout_name(const dlc_layout *layout) {
    return !layout || layout->plain ? "plain" : "channels_last";
}

dlc_status same_layout(dlc_layer *layer, dlc_layer_memory *memory,
                       const dlc_layout **out) {
    const dlc_layout *layout = layout_of(layer->net, &memory->in[0]);
    if (!layout)
        return DLC_ERR_NOMEM;
    layout_give(&memory->in[0], layout);
    layout_give(&memory->out[0], layout);
    *out = layout;
    return DLC_OK;
}
