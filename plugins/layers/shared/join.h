/* Layers that rearrange or combine tensors, eltwise, concat, flatten, softmax: their
 * options, and the shapes of their outputs. */
#ifndef LAYERS_SHARED_JOIN_H
#define LAYERS_SHARED_JOIN_H

#include "eltwise_kind.h"
#include "layer.h"

typedef struct eltwise_settings {
    eltwise_kind kind;
    float factor[DLC_MAX_INPUTS]; /* of a sum */
    size_t factors;               /* given; 0: all are 1 */
} eltwise_settings;

dlc_status eltwise_read(const dlc_layer_args *args, eltwise_settings *e);
/* All inputs have one shape, which the output has as well. */
dlc_status eltwise_infer(const dlc_layer *layer, const eltwise_settings *e,
                         dlc_layer_shapes *shapes);
/* Is `next` this plugin's eltwise, and a plain sum? */
int eltwise_is_sum(const dlc_feature *next, const dlc_settings *settings);

/* A layer with the option `axis`: the head of its struct. */
typedef struct axis_layer {
    dlc_layer head;
    int axis;
    size_t bytes; /* of a tensor; set by flatten_prepare */
} axis_layer;

dlc_status axis_layer_alloc(const dlc_layer_args *args, size_t bytes,
                            dlc_layer **layer);
dlc_status axis_layer_create(const dlc_layer_args *args, dlc_layer **layer);
/* Checks that the input has the axis; the output has its shape. */
dlc_status axis_infer(const dlc_layer *layer, int axis, dlc_layer_shapes *shapes);
dlc_status concat_infer(dlc_layer *layer, dlc_layer_shapes *shapes);
dlc_status flatten_infer(dlc_layer *layer, dlc_layer_shapes *shapes);
/* In plain layout nothing has to be moved; axis_layer.bytes otherwise. */
dlc_status flatten_prepare(dlc_layer *layer, dlc_layer_memory *memory);

#endif
