/* scale: its options and parameters. */
#ifndef LAYERS_SHARED_SCALE_H
#define LAYERS_SHARED_SCALE_H

#include "params.h"

/* The head of scale. */
typedef struct scale_layer {
    dlc_layer head;
    int has_bias;
    param_settings scale, bias;
} scale_layer;

dlc_status scale_layer_alloc(const dlc_layer_args *args, size_t bytes,
                             dlc_layer **layer);
dlc_status scale_infer(dlc_layer *layer, dlc_layer_shapes *shapes);

#endif
