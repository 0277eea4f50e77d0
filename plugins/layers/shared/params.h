/* Trained parameters: what their options say, and how infer describes them. */
#ifndef LAYERS_SHARED_PARAMS_H
#define LAYERS_SHARED_PARAMS_H

#include "layer.h"

/* The settings own `filler`. */
typedef struct param_settings {
    const char *name, *filler;
    double lr_mult, decay_mult;
} param_settings;

/* Reads the options NAME_filler, NAME_lr_mult and NAME_decay_mult. */
param_settings param_read(const dlc_settings *settings, const char *name);
/* Adds a parameter to those of the layer. */
dlc_param *param_add(dlc_layer_shapes *shapes, const param_settings *settings,
                     const dlc_shape *shape, int64_t fan_in, int64_t fan_out);
/* Adds one with a number for each channel. */
dlc_param *param_add_channels(dlc_layer_shapes *shapes, const param_settings *settings,
                              int64_t channels);

#endif
