/* Checks of values and targets. */
#include "targets.h"

#include <string.h>

#include "scores.h"

void pair_loss_read(const dlc_settings *settings, pair_loss_kind kind,
                    pair_loss_args *args) {
    args->kind = kind;
    args->has_ignore = ignore_label_read(settings, &args->ignore);
    args->per_element = strcmp(host->get_string(settings, "normalize"), "element") == 0;
}

dlc_status pair_loss_infer(const dlc_layer *layer, dlc_layer_shapes *shapes,
                           pair_loss_args *args) {
    dlc_status status = need_inputs(layer, shapes, 2);
    if (status != DLC_OK)
        return status;
    const dlc_tensor *values = &shapes->in[0], *targets = &shapes->in[1];
    int64_t count = dlc_shape_count(&values->shape);
    int is_float = values->dtype == DLC_F32 || values->dtype == DLC_BF16 ||
                   values->dtype == DLC_F16;
    if (!is_float || values->shape.rank < 1)
        return host->fail(
            DLC_ERR_CONFIG,
            "layer '%s': its first input must be float32 values; it is %s", layer->name,
            shape_print(&values->shape).text);
    if ((targets->dtype != DLC_F32 && targets->dtype != DLC_I32) ||
        dlc_shape_count(&targets->shape) != count || targets->shape.rank < 1 ||
        targets->shape.dims[0] != values->shape.dims[0])
        return host->fail(DLC_ERR_CONFIG,
                          "layer '%s': its second input must be a target for each of "
                          "the values %s; it is %s",
                          layer->name, shape_print(&values->shape).text,
                          shape_print(&targets->shape).text);
    args->type = targets->dtype;
    args->samples = values->shape.dims[0];
    args->each = count / args->samples;
    shapes->out[0].dtype = DLC_F32;
    shapes->out[0].shape = (dlc_shape){.rank = 1, .dims = {2}};
    shapes->no_gradient = 2;
    return DLC_OK;
}

void pair_loss_prepare(const dlc_layer *layer, const pair_loss_args *args,
                       dlc_layer_memory *memory) {
    for (int i = 0; i < 2; i++) {
        memory->in[i].layout = NULL;
        memory->in[i].bytes = 0;
    }
    memory->in[0].dtype = DLC_F32;
    memory->out[0].layout = NULL;
    memory->out[0].bytes = 0;
    memory->scratch_bytes = (size_t)args->samples * 2 * sizeof(float);
    if (layer->phase == DLC_PHASE_TRAIN) {
        memory->reads_in = 3;
        memory->reads_out = 1;
    }
}
