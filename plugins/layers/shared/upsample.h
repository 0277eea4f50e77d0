/* The options of upsample, and the shape of its output. */
#ifndef LAYERS_SHARED_UPSAMPLE_H
#define LAYERS_SHARED_UPSAMPLE_H

#include "layer.h"

typedef struct upsample_settings {
    int64_t factor;
    int bilinear; /* 0: nearest */
} upsample_settings;

upsample_settings upsample_read(const dlc_settings *settings);
dlc_status upsample_infer(const dlc_layer *layer, const upsample_settings *u,
                          dlc_layer_shapes *shapes);

#endif
