/* The options of pooling, and the shape of its output. */
#ifndef LAYERS_SHARED_POOLING_H
#define LAYERS_SHARED_POOLING_H

#include "layer.h"
#include "window.h"

typedef struct pooling_settings {
    sliding_window window;
    int average, global, ceil;
    int inside; /* the average counts only elements of the image, not the padding */
} pooling_settings;

dlc_status pooling_read(const char *layer, const dlc_settings *settings,
                        pooling_settings *p);
dlc_status pooling_infer(const dlc_layer *layer, pooling_settings *p,
                         dlc_layer_shapes *shapes);

#endif
