/* Adds tensors and operations to a graph; plan.c makes plans of it. */
#include "graph.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

void graph_open(graph *g, context *net, const char *layer, const char *what) {
    memset(g, 0, sizeof *g);
    g->net = net;
    g->layer = layer;
    g->what = what;
    g->status = library_open();
}

static void drop(cudnnBackendDescriptor_t *descriptor) {
    if (*descriptor)
        (void)cudnn.BackendDestroyDescriptor(*descriptor);
    *descriptor = NULL;
}

void graph_close(graph *g) {
    drop(&g->whole);
    for (int i = 0; i < g->ops; i++)
        drop(&g->op[i]);
    for (int i = 1; i <= g->tensors; i++)
        drop(&g->tensor[i]);
    g->ops = g->tensors = 0;
}

static void check(graph *g, cudnnStatus_t st) {
    if (g->status == DLC_OK)
        g->status = check_cudnn(st, g->layer, g->what);
}

/* Appends to the key that identifies this graph. */
static void note(graph *g, const char *text) {
    size_t used = strlen(g->key), more = strlen(text);
    if (used + more < sizeof g->key)
        memcpy(g->key + used, text, more + 1);
    else if (g->status == DLC_OK)
        g->status = host->fail(DLC_ERR_INTERNAL,
                               "layer '%s': a graph has too long a description",
                               g->layer);
}

enum { NOTE = 160 };

static cudnnBackendDescriptor_t make(graph *g, cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t made = NULL;
    if (g->status == DLC_OK)
        check(g, cudnn.BackendCreateDescriptor(type, &made));
    return made;
}

static void set(graph *g, cudnnBackendDescriptor_t at, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    if (g->status == DLC_OK)
        check(g, cudnn.BackendSetAttribute(at, name, type, count, values));
}

static void set_int(graph *g, cudnnBackendDescriptor_t at,
                    cudnnBackendAttributeName_t name, int64_t value) {
    set(g, at, name, CUDNN_TYPE_INT64, 1, &value);
}

static void set_type(graph *g, cudnnBackendDescriptor_t at,
                     cudnnBackendAttributeName_t name, cudnnDataType_t type) {
    set(g, at, name, CUDNN_TYPE_DATA_TYPE, 1, &type);
}

static void set_float(graph *g, cudnnBackendDescriptor_t at,
                      cudnnBackendAttributeName_t name, float value) {
    set(g, at, name, CUDNN_TYPE_FLOAT, 1, &value);
}

static void set_descriptor(graph *g, cudnnBackendDescriptor_t at,
                           cudnnBackendAttributeName_t name,
                           cudnnBackendDescriptor_t value) {
    set(g, at, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, (void *)&value);
}

static void finish(graph *g, cudnnBackendDescriptor_t at) {
    if (g->status == DLC_OK)
        check(g, cudnn.BackendFinalize(at));
}

/* ---- Tensors --------------------------------------------------------------------- */

static cudnnDataType_t type_of(dlc_dtype dtype) {
    if (dtype == DLC_BF16)
        return CUDNN_DATA_BFLOAT16;
    return dtype == DLC_F16 ? CUDNN_DATA_HALF : CUDNN_DATA_FLOAT;
}

enum { DIMS = 4, ALIGNMENT = 16 };

static graph_tensor add_tensor(graph *g, dlc_dtype dtype, const int64_t dims[DIMS],
                               const int64_t strides[DIMS], int is_bound) {
    char text[NOTE];
    if (g->tensors == GRAPH_TENSORS && g->status == DLC_OK)
        g->status = host->fail(DLC_ERR_INTERNAL,
                               "layer '%s': a graph has too many "
                               "tensors",
                               g->layer);
    cudnnBackendDescriptor_t made = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    if (!made)
        return 0;
    graph_tensor number = ++g->tensors;
    bool is_virtual = !is_bound;
    g->tensor[number] = made;
    g->is_bound[number] = is_bound;
    g->bytes[number] = (size_t)(dims[0] * dims[1] * dims[2] * dims[3]) *
                       dlc_dtype_bytes(dtype);
    set_type(g, made, CUDNN_ATTR_TENSOR_DATA_TYPE, type_of(dtype));
    set(g, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, DIMS, dims);
    set(g, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, DIMS, strides);
    set_int(g, made, CUDNN_ATTR_TENSOR_UNIQUE_ID, number);
    set_int(g, made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, ALIGNMENT);
    set(g, made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    finish(g, made);
    (void)snprintf(text, sizeof text, "%c%d:%lldx%lldx%lldx%lld%s ",
                   is_bound ? 't' : 'v', (int)dtype, (long long)dims[0],
                   (long long)dims[1], (long long)dims[2], (long long)dims[3],
                   strides[1] == 1 ? "" : "p");
    note(g, text);
    return number;
}

graph_tensor graph_last(graph *g, dlc_dtype dtype, int64_t n, int64_t c, int64_t h,
                        int64_t w) {
    const int64_t dims[DIMS] = {n, c, h, w};
    const int64_t strides[DIMS] = {c * h * w, 1, w * c, c};
    return add_tensor(g, dtype, dims, strides, 1);
}

graph_tensor graph_layout(graph *g, const dlc_layout *layout) {
    const int64_t *dims = layout->shape.dims;
    const fold *f = &layout->fold;
    if (f->stride)
        return graph_last(g, layout->dtype, dims[0], layout->channels, f->blocks[0],
                          f->blocks[1]);
    if (layout->last)
        return graph_last(g, layout->dtype, dims[0], layout->channels, dims[2],
                          dims[3]);
    const int64_t strides[DIMS] = {dims[1] * dims[2] * dims[3], dims[2] * dims[3],
                                   dims[3], 1};
    return add_tensor(g, layout->dtype, dims, strides, 1);
}

graph_tensor graph_virtual(graph *g, graph_tensor like) {
    int64_t dims[DIMS] = {0}, strides[DIMS] = {0}, got = 0;
    if (g->status != DLC_OK)
        return 0;
    check(g, cudnn.BackendGetAttribute(g->tensor[like], CUDNN_ATTR_TENSOR_DIMENSIONS,
                                       CUDNN_TYPE_INT64, DIMS, &got, dims));
    check(g, cudnn.BackendGetAttribute(g->tensor[like], CUDNN_ATTR_TENSOR_STRIDES,
                                       CUDNN_TYPE_INT64, DIMS, &got, strides));
    return add_tensor(g, DLC_F32, dims, strides, 0);
}

/* ---- Operations -------------------------------------------------------------- */

static cudnnBackendDescriptor_t add_op(graph *g, cudnnBackendDescriptorType_t type) {
    if (g->ops == GRAPH_OPS && g->status == DLC_OK)
        g->status = host->fail(DLC_ERR_INTERNAL,
                               "layer '%s': a graph has too many "
                               "operations",
                               g->layer);
    cudnnBackendDescriptor_t made = make(g, type);
    if (made)
        g->op[g->ops++] = made;
    return made;
}

static void set_tensor(graph *g, cudnnBackendDescriptor_t at,
                       cudnnBackendAttributeName_t name, graph_tensor tensor) {
    if (g->status == DLC_OK)
        set_descriptor(g, at, name, g->tensor[tensor]);
}

static cudnnBackendDescriptor_t describe_window(graph *g, const sliding_window *win) {
    enum { SIDES = 2 };
    const int64_t dilation[SIDES] = {win->dilation[0] + 1, win->dilation[1] + 1};
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    cudnnBackendDescriptor_t made = make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set_type(g, made, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    set(g, made, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1,
        &mode);
    set_int(g, made, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, SIDES);
    set(g, made, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, SIDES, dilation);
    set(g, made, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, SIDES,
        win->stride);
    set(g, made, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, SIDES,
        win->pad_begin);
    set(g, made, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, SIDES,
        win->pad_end);
    finish(g, made);
    return made;
}

/* The convolutions differ only in the names of their attributes. */
typedef struct conv_names {
    cudnnBackendDescriptorType_t op;
    cudnnBackendAttributeName_t window, x, w, y, alpha, beta;
} conv_names;

static const conv_names conv_attributes[] = {
    [GRAPH_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [GRAPH_BACKWARD_DATA] =
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [GRAPH_BACKWARD_WEIGHTS] =
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

void graph_convolution(graph *g, graph_conv which, const sliding_window *win,
                       graph_tensor x, graph_tensor w, graph_tensor y) {
    char text[NOTE];
    int accumulate = which == GRAPH_ACCUMULATE_DATA;
    const conv_names *name = &conv_attributes[accumulate ? GRAPH_BACKWARD_DATA : which];
    cudnnBackendDescriptor_t shape = describe_window(g, win);
    cudnnBackendDescriptor_t op = add_op(g, name->op);
    set_descriptor(g, op, name->window, shape);
    set_tensor(g, op, name->x, x);
    set_tensor(g, op, name->w, w);
    set_tensor(g, op, name->y, y);
    set_float(g, op, name->alpha, 1);
    set_float(g, op, name->beta, accumulate ? 1 : 0);
    finish(g, op);
    drop(&shape);
    (void)snprintf(text, sizeof text, "conv%d(%d,%d,%d;", (int)which, x, w, y);
    note(g, text);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(text, sizeof text, " s%lld d%lld p%lld,%lld",
                       (long long)win->stride[i], (long long)win->dilation[i],
                       (long long)win->pad_begin[i], (long long)win->pad_end[i]);
        note(g, text);
    }
    note(g, ") ");
}

/* Returns the descriptor of an elementwise operation, not yet finalized. */
static cudnnBackendDescriptor_t describe_pointwise(graph *g,
                                                   cudnnPointwiseMode_t mode) {
    cudnnBackendDescriptor_t made = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(g, made, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_type(g, made, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
    return made;
}

void graph_add(graph *g, graph_tensor a, graph_tensor b, graph_tensor y) {
    char text[NOTE];
    cudnnBackendDescriptor_t pointwise = describe_pointwise(g, CUDNN_POINTWISE_ADD);
    finish(g, pointwise);
    cudnnBackendDescriptor_t op = add_op(g,
                                         CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, a);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    finish(g, op);
    drop(&pointwise);
    (void)snprintf(text, sizeof text, "add(%d,%d,%d) ", a, b, y);
    note(g, text);
}

static cudnnBackendDescriptor_t describe_bounds(graph *g, cudnnPointwiseMode_t mode,
                                                const bounds *limit) {
    char text[NOTE];
    cudnnBackendDescriptor_t made = describe_pointwise(g, mode);
    if (limit->low != 0)
        set_float(g, made, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, limit->low);
    if (limit->high < INFINITY)
        set_float(g, made, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, limit->high);
    if (limit->slope != 0)
        set_float(g, made, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, limit->slope);
    finish(g, made);
    (void)snprintf(text, sizeof text, "bounds%d[%a %a %a]", (int)mode,
                   (double)limit->low, (double)limit->high, (double)limit->slope);
    note(g, text);
    return made;
}

void graph_bounds(graph *g, const bounds *limit, graph_tensor x, graph_tensor y) {
    char text[NOTE];
    cudnnBackendDescriptor_t pointwise = describe_bounds(g, CUDNN_POINTWISE_RELU_FWD,
                                                         limit);
    cudnnBackendDescriptor_t op = add_op(g,
                                         CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    finish(g, op);
    drop(&pointwise);
    (void)snprintf(text, sizeof text, "(%d,%d) ", x, y);
    note(g, text);
}

void graph_statistics(graph *g, graph_tensor x, graph_tensor sum,
                      graph_tensor squares) {
    char text[NOTE];
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    cudnnBackendDescriptor_t op = add_op(g,
                                         CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    set(g, op, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
    set_type(g, op, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, x);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum);
    set_tensor(g, op, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares);
    finish(g, op);
    (void)snprintf(text, sizeof text, "statistics(%d,%d,%d) ", x, sum, squares);
    note(g, text);
}
