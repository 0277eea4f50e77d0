/* Checks of values and targets. */
#include "targets.h"

#include "scores.h"

static dlc_status create(const dlc_layer_args *args, pair_loss_kind kind,
                         dlc_layer **layer) {
    dlc_status status = layer_alloc(args, sizeof(pair_loss_layer), layer);
    if (status != DLC_OK)
        return status;
    pair_loss_args *loss = &((pair_loss_layer *)*layer)->args;
    loss->kind = kind;
    loss->has_ignore = ignore_label_read(args->settings, &loss->ignore);
    loss->per_element = option_is(args->settings, "normalize", "element");
    return DLC_OK;
}

dlc_status sigmoid_cross_entropy_loss_create(const dlc_layer_args *args,
                                             dlc_layer **layer) {
    return create(args, PAIR_LOSS_SIGMOID, layer);
}

dlc_status euclidean_loss_create(const dlc_layer_args *args, dlc_layer **layer) {
    return create(args, PAIR_LOSS_EUCLIDEAN, layer);
}

dlc_status pair_loss_infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    pair_loss_args *args = &((pair_loss_layer *)layer)->args;
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

dlc_status pair_loss_prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    for (int i = 0; i < 2; i++) {
        memory->in[i].layout = NULL;
        memory->in[i].bytes = 0;
    }
    memory->in[0].dtype = DLC_F32;
    memory->out[0].layout = NULL;
    memory->out[0].bytes = 0;
    memory->scratch_bytes = (size_t)((pair_loss_layer *)layer)->args.samples * 2 *
                            sizeof(float);
    if (layer->phase == DLC_PHASE_TRAIN) {
        memory->reads_in = 3;
        memory->reads_out = 1;
    }
    return DLC_OK;
}

dlc_status pair_loss_count(dlc_layer *layer, const void *targets, int64_t samples,
                           double *counted) {
    pair_loss_args args = ((const pair_loss_layer *)layer)->args;
    args.targets = targets;
    for (int64_t n = 0; n < samples; n++) {
        int64_t count = 0;
        float target;
        for (int64_t i = n * args.each; i < (n + 1) * args.each; i++)
            count += pair_loss_target(&args, i, &target);
        counted[n] = args.per_element ? (double)count : count > 0;
    }
    return DLC_OK;
}

pair_loss_args pair_loss_of_run(const dlc_layer *layer, const dlc_layer_run *run) {
    pair_loss_args args = ((const pair_loss_layer *)layer)->args;
    args.values = run->in[0];
    args.targets = run->in[1];
    args.out = run->out[0];
    args.part = run->scratch;
    args.loss_scale = run->loss_scale;
    return args;
}
