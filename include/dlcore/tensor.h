/* Tensors: element types, shapes and layouts.
 *
 * The types here are values that pass through many hands; they are frozen at
 * major version 1 and never grow, which is why they carry no `size` field.
 */
#ifndef DLCORE_TENSOR_H
#define DLCORE_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dlc_dtype {
    DLC_F32 = 1,
    DLC_BF16 = 2,
    DLC_F16 = 3,
    DLC_F64 = 4,
    DLC_I32 = 5,
    DLC_I64 = 6,
    DLC_U8 = 7,
} dlc_dtype;

/* Bytes of one element, 0 for an unknown type. */
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

/* Logical shape, outermost first; images are N, C, H, W whatever the layout in
 * memory. `rank` is the number of dimensions in use (0: a scalar). */
typedef struct dlc_shape {
    int32_t rank;
    int64_t dims[DLC_MAX_DIMS];
} dlc_shape;

/* Number of elements. The core refuses shapes whose count overflows before any
 * plugin sees them. */
static inline int64_t dlc_shape_count(const dlc_shape *shape) {
    int64_t count = 1;
    for (int32_t i = 0; i < shape->rank; i++)
        count *= shape->dims[i];
    return count;
}

/* 1 if both have the same dimensions. */
static inline int dlc_shape_equal(const dlc_shape *a, const dlc_shape *b) {
    int equal = a->rank == b->rank;
    for (int32_t i = 0; equal && i < a->rank; i++)
        equal = a->dims[i] == b->dims[i];
    return equal;
}

/* How the elements of a tensor lie in memory. Only the family of layers that
 * made a layout can read it; to everybody else it is a token. NULL means the
 * plain layout: row-major, dense, in the order of the shape's dimensions.
 *
 * Owner: the family. A layout stays valid until the family's net (see
 * dlc_layer_args.net) is closed. */
typedef struct dlc_layout dlc_layout;

/* A tensor as layers see it while a net is built. `bytes` counts the padding
 * that the layout may add (0 stands for the plain size). */
typedef struct dlc_tensor {
    dlc_shape shape;
    dlc_dtype dtype;
    const dlc_layout *layout;
    size_t bytes;
} dlc_tensor;

/* Bytes a tensor takes in memory. */
static inline size_t dlc_tensor_bytes(const dlc_tensor *tensor) {
    if (tensor->bytes)
        return tensor->bytes;
    return (size_t)dlc_shape_count(&tensor->shape) * dlc_dtype_bytes(tensor->dtype);
}

/* Label of a sample that is no sample (it fills up the last batch of a test
 * set): losses and metrics skip it. */
#define DLC_LABEL_NONE (-1)

#ifdef __cplusplus
}
#endif
#endif
