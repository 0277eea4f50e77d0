/* Reads the options of trained parameters, and describes parameters to the core. */
#include "params.h"

#include <stdio.h>

static const char *key_of(const char *name, const char *what, char key[64]) {
    (void)snprintf(key, 64, "%s_%s", name, what);
    return key;
}

param_settings param_read(const dlc_settings *settings, const char *name) {
    char key[64];
    return (param_settings){
        .name = name,
        .filler = host->get_string(settings, key_of(name, "filler", key)),
        .lr_mult = host->get_float(settings, key_of(name, "lr_mult", key)),
        .decay_mult = host->get_float(settings, key_of(name, "decay_mult", key))};
}

dlc_param *param_add(dlc_layer_shapes *shapes, const param_settings *settings,
                     const dlc_shape *shape, int64_t fan_in, int64_t fan_out) {
    dlc_param *param = shapes->param;
    for (int32_t i = 0; i < shapes->params; i++)
        param = DLC_NEXT(param);
    shapes->params++;
    param->name = settings->name;
    param->shape = *shape;
    param->filler = settings->filler;
    param->fan_in = fan_in;
    param->fan_out = fan_out;
    param->lr_mult = settings->lr_mult;
    param->decay_mult = settings->decay_mult;
    return param;
}

dlc_param *param_add_channels(dlc_layer_shapes *shapes, const param_settings *settings,
                              int64_t channels) {
    const dlc_shape shape = {.rank = 1, .dims = {channels}};
    return param_add(shapes, settings, &shape, 1, 1);
}
