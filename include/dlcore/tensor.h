/* Tensors: element types, shapes and layouts.
 *
 * The structs here are small values that are copied and compared everywhere. They carry
 * no `size` field, so they never change within a major version of the interface. */
#ifndef DLCORE_TENSOR_H
#define DLCORE_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The type of an element. */
typedef enum dlc_dtype {
    DLC_F32 = 1,
    DLC_BF16 = 2,
    DLC_F16 = 3,
    DLC_F64 = 4,
    DLC_I32 = 5,
    DLC_I64 = 6,
    DLC_U8 = 7,
} dlc_dtype;

/* Bytes of one element; 0 for an unknown type. */
static inline size_t dlc_dtype_bytes(dlc_dtype type) {
    switch (type) {
    case DLC_F64:
    case DLC_I64:
        return 8;
    case DLC_F32:
    case DLC_I32:
        return 4;
    case DLC_BF16:
    case DLC_F16:
        return 2;
    case DLC_U8:
        return 1;
    }
    return 0;
}

#define DLC_MAX_DIMS 6

/* A logical shape, outermost dimension first. Images are N, C, H, W, whatever their
 * layout in memory. */
typedef struct dlc_shape {
    int32_t rank;               /* number of dimensions in use; 0: a scalar */
    int64_t dims[DLC_MAX_DIMS]; /* dims[rank ..] are ignored */
} dlc_shape;

/* Number of elements. It cannot overflow in a plugin: the core refuses such shapes
 * first. */
static inline int64_t dlc_shape_count(const dlc_shape *shape) {
    int64_t count = 1;
    for (int32_t i = 0; i < shape->rank; i++)
        count *= shape->dims[i];
    return count;
}

/* 1 if both shapes have the same dimensions, otherwise 0. */
static inline int dlc_shape_equal(const dlc_shape *a, const dlc_shape *b) {
    int equal = a->rank == b->rank;
    for (int32_t i = 0; equal && i < a->rank; i++)
        equal = a->dims[i] == b->dims[i];
    return equal;
}

/* How the elements of a tensor are arranged in memory. Only the layer family that made
 * a layout can interpret it; to everyone else it is an opaque token. NULL is the plain
 * layout: dense and row-major, in the order of the shape's dimensions.
 *
 * The family owns its layouts. They stay valid until the family's context for the net
 * (dlc_family.open) is closed. */
typedef struct dlc_layout dlc_layout;

/* The description of a tensor, without its data. */
typedef struct dlc_tensor {
    dlc_shape shape;
    dlc_dtype dtype;
    const dlc_layout *layout; /* NULL: plain */
    size_t bytes;             /* with the padding of the layout; 0: no padding */
} dlc_tensor;

/* Bytes that a tensor occupies in memory. */
static inline size_t dlc_tensor_bytes(const dlc_tensor *tensor) {
    if (tensor->bytes)
        return tensor->bytes;
    return (size_t)dlc_shape_count(&tensor->shape) * dlc_dtype_bytes(tensor->dtype);
}

/* The label of a sample that has none, or that only fills up the last batch of a test
 * set. Losses and metrics ignore it (like ignore_index in PyTorch). */
#define DLC_LABEL_NONE (-1)

#ifdef __cplusplus
}
#endif
#endif
