/* Layouts: oneDNN memory descriptors, each kept once by the net's context. */
#include "onednn.h"

/* Are these strides dense with the dimensions in `order` (outermost first)? Dimensions
 * of one element don't matter. */
static int dense_in_order(const md_shape *shape, const int *order) {
    int64_t expect = 1;
    for (int i = shape->rank - 1; i >= 0; i--) {
        int d = order[i];
        if (shape->dims[d] != 1 && shape->strides[d] != expect)
            return 0;
        expect *= shape->dims[d];
    }
    return 1;
}

static void order_plain(int rank, int *order) {
    for (int i = 0; i < rank; i++)
        order[i] = i;
}

static void order_last(int rank, int *order) {
    order_plain(rank, order);
    for (int i = 1; i + 1 < rank; i++)
        order[i] = i + 1;
    if (rank > 1)
        order[rank - 1] = 1;
}

static void order_transposed(int rank, int *order) {
    int first = rank == 5;
    order_plain(rank, order);
    order[first] = first + 1;
    order[first + 1] = first;
}

static void classify(dlc_layout *layout) {
    md_shape shape = {0};
    int order[DNNL_MAX_NDIMS];
    layout->bytes = dnnl_memory_desc_get_size(layout->md);
    layout->dtype = md_type(layout->md) == dnnl_bf16 ? DLC_BF16 : DLC_F32;
    if (!md_look(layout->md, &shape)) {
        layout->padded = 1; /* opaque: only oneDNN can access it */
        return;
    }
    layout->padded = shape.padded;
    if (shape.inner_blocks == 1 && shape.inner_dim == 1 && shape.rank == 4)
        layout->block = (int)shape.inner_size;
    if (shape.inner_blocks)
        return;
    order_plain(shape.rank, order);
    layout->plain = dense_in_order(&shape, order);
    order_last(shape.rank, order);
    layout->last = dense_in_order(&shape, order);
}

static dlc_layout *known_layout(context *net, md_t md) {
    for (dlc_layout *known = net->layouts; known; known = known->next)
        if (dnnl_memory_desc_equal(known->md, md))
            return known;
    dlc_layout *layout = host->alloc(sizeof *layout);
    if (!layout)
        return NULL;
    dnnl_status_t st = md_copy(md, &layout->md);
    if (st != dnnl_success) {
        (void)dnnl_failed(st, NULL, "copy a memory descriptor");
        host->free(layout);
        return NULL;
    }
    classify(layout);
    layout->next = net->layouts;
    net->layouts = layout;
    return layout;
}

const dlc_layout *layout_of_md(context *net, md_t md) {
    return known_layout(net, md);
}

static int to_dims(const dlc_shape *shape, dnnl_dims_t dims) {
    if (shape->rank == 0) { /* a scalar */
        dims[0] = 1;
        return 1;
    }
    for (int32_t i = 0; i < shape->rank; i++)
        dims[i] = shape->dims[i];
    return shape->rank;
}

static dlc_layout *keep(context *net, dnnl_status_t st, md_t md) {
    if (st != dnnl_success) {
        (void)dnnl_failed(st, NULL, "describe a tensor");
        return NULL;
    }
    dlc_layout *layout = known_layout(net, md);
    md_free(md);
    return layout;
}

static dnnl_data_type_t type_of(dlc_dtype dtype) {
    return dtype == DLC_BF16 ? dnnl_bf16 : dnnl_f32;
}

static const dlc_layout *by_order(context *net, const dlc_shape *shape, dlc_dtype dtype,
                                  void (*order_of)(int, int *)) {
    dnnl_dims_t dims = {0}, strides;
    int order[DNNL_MAX_NDIMS] = {0};
    int rank = to_dims(shape, dims);
    order_of(rank, order);
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        strides[order[i]] = stride;
        stride *= dims[order[i]];
    }
    md_t md = NULL;
    dnnl_status_t st = md_by_strides(rank, dims, type_of(dtype), strides, &md);
    return keep(net, st, md);
}

const dlc_layout *layout_plain(context *net, const dlc_shape *shape, dlc_dtype dtype) {
    return by_order(net, shape, dtype, order_plain);
}

const dlc_layout *layout_last(context *net, const dlc_shape *shape, dlc_dtype dtype) {
    return by_order(net, shape, dtype, order_last);
}

const dlc_layout *layout_transposed(context *net, const dlc_shape *shape,
                                    dlc_dtype dtype) {
    return by_order(net, shape, dtype, order_transposed);
}

const dlc_layout *layout_any(context *net, const dlc_shape *shape, dlc_dtype dtype) {
    dnnl_dims_t dims;
    int rank = to_dims(shape, dims);
    md_t md = NULL;
    dnnl_status_t st = md_by_tag(rank, dims, type_of(dtype), dnnl_format_tag_any, &md);
    return keep(net, st, md);
}

const dlc_layout *layout_blocked(context *net, const dlc_shape *shape, dlc_dtype dtype,
                                 int block) {
    dnnl_dims_t dims;
    int rank = to_dims(shape, dims);
    dnnl_format_tag_t tag = block == 16  ? dnnl_aBcd16b
                            : block == 8 ? dnnl_aBcd8b
                                         : dnnl_aBcd4b;
    md_t md = NULL;
    dnnl_status_t st = md_by_tag(rank, dims, type_of(dtype), tag, &md);
    return keep(net, st, md);
}

const dlc_layout *layout_batch_blocked(context *net, const dlc_shape *shape,
                                       size_t block) {
    dnnl_dims_t dims;
    int rank = to_dims(shape, dims);
    dnnl_format_tag_t tag = block == 16  ? dnnl_Abcd16a
                            : block == 8 ? dnnl_Abcd8a
                                         : dnnl_Abcd4a;
    md_t md = NULL;
    dnnl_status_t st = md_by_tag(rank, dims, dnnl_f32, tag, &md);
    dlc_layout *layout = keep(net, st, md);
    if (layout)
        layout->batch_block = block;
    return layout;
}

const dlc_layout *layout_by_channel(context *net, const dlc_layout *layout,
                                    const dlc_shape *shape, dlc_shape *as) {
    *as = *shape;
    if (!layout->batch_block)
        return layout;
    int64_t block = (int64_t)layout->batch_block;
    as->dims[0] = shape->dims[0] / block * shape->dims[1];
    as->dims[1] = block;
    return layout_last(net, as, layout->dtype);
}

const dlc_layout *layout_like(context *net, const dlc_layout *from,
                              const dlc_shape *shape) {
    return from->batch_block ? layout_batch_blocked(net, shape, from->batch_block)
           : from->plain     ? layout_plain(net, shape, from->dtype)
           : from->last      ? layout_last(net, shape, from->dtype)
                             : layout_any(net, shape, from->dtype);
}

/* Is it dense, with its images or channels in blocks? */
static int dense_in_blocks(const md_shape *shape) {
    int64_t expect = shape->inner_size;
    for (int d = shape->rank - 1; d >= 0; d--) {
        int64_t count = shape->dims[d];
        if (d == shape->inner_dim)
            count = (count + shape->inner_size - 1) / shape->inner_size;
        if (count != 1 && shape->strides[d] != expect)
            return 0;
        expect *= count;
    }
    return 1;
}

int layout_pixels(const dlc_layout *layout, const dlc_shape *shape,
                  layout_pixel_view *view) {
    md_shape look = {0};
    if (shape->rank != 4 || !md_look(layout->md, &look))
        return 0;
    size_t images = (size_t)shape->dims[0], channels = (size_t)shape->dims[1];
    size_t block = (size_t)layout->block, side = layout->batch_block;
    view->points = (size_t)(shape->dims[2] * shape->dims[3]);
    view->images = side ? images / side : images;
    view->blocks = side ? channels : block ? (channels + block - 1) / block : 1;
    view->lanes = side ? side : block ? block : channels;
    if (!side && !block)
        return layout->last;
    return (!side || images % side == 0) && dense_in_blocks(&look);
}

const dlc_layout *layout_of(context *net, const dlc_tensor *tensor) {
    return tensor->layout ? tensor->layout
                          : layout_plain(net, &tensor->shape, tensor->dtype);
}

const dlc_layout *layout_simple(context *net, const dlc_tensor *tensor, int *last) {
    const dlc_layout *layout = layout_of(net, tensor);
    if (layout && !layout->plain && !layout->last)
        layout = layout_last(net, &tensor->shape, tensor->dtype);
    if (layout)
        *last = layout->last && !layout->plain;
    return layout;
}

void layout_set(dlc_tensor *tensor, const dlc_layout *layout) {
    tensor->dtype = layout->dtype;
    tensor->layout = layout->plain ? NULL : layout;
    tensor->bytes = layout->plain ? 0 : layout->bytes;
}

void layouts_free(context *net) {
    while (net->layouts) {
        dlc_layout *next = net->layouts->next;
        md_free(net->layouts->md);
        host->free(net->layouts);
        net->layouts = next;
    }
}

const char *layout_name(const dlc_layout *layout) {
    if (!layout || layout->plain)
        return "plain";
    if (layout->batch_block)
        return "batch_blocked";
    return layout->last ? "channels_last" : "blocked";
}
