/* Options and shapes of eltwise, concat, flatten and softmax. */
#include "join.h"

#include "types.h"

/* ---- eltwise --------------------------------------------------------------------- */

dlc_status eltwise_read(const dlc_layer_args *args, eltwise_settings *e) {
    const dlc_settings *settings = args->settings;
    const double *factors = NULL;
    size_t count = host->is_set(settings, "coeff")
                       ? host->get_floats(settings, "coeff", &factors)
                       : 0;
    e->kind = option_is(settings, "operation", "max")       ? ELTWISE_MAX
              : option_is(settings, "operation", "product") ? ELTWISE_PRODUCT
                                                            : ELTWISE_SUM;
    e->factors = count;
    if (count && e->kind != ELTWISE_SUM)
        return host->fail(DLC_ERR_CONFIG,
                          "layer '%s': coeff is for operation = sum only", args->name);
    if (count > DLC_MAX_INPUTS)
        return host->fail(DLC_ERR_CONFIG,
                          "layer '%s': coeff has %zu factors, more than %d", args->name,
                          count, DLC_MAX_INPUTS);
    for (size_t i = 0; i < DLC_MAX_INPUTS; i++)
        e->factor[i] = i < count ? (float)factors[i] : 1;
    return DLC_OK;
}

dlc_status eltwise_infer(const dlc_layer *layer, const eltwise_settings *e,
                         dlc_layer_shapes *shapes) {
    if (shapes->inputs < 1)
        return need_inputs(layer, shapes, 1);
    dlc_status status = need_floats(layer, shapes, 0, DLC_MAX_DIMS);
    if (status != DLC_OK)
        return status;
    const dlc_shape *first = &shapes->in[0].shape;
    for (int32_t i = 1; i < shapes->inputs; i++) {
        const dlc_shape *in = &shapes->in[i].shape;
        if (!dlc_shape_equal(in, first))
            return host->fail(
                DLC_ERR_CONFIG,
                "layer '%s': all inputs must have one shape, but input 1 is "
                "%s and input %d is %s",
                layer->name, shape_print(first).text, (int)i + 1, shape_print(in).text);
    }
    if (e->factors && e->factors != (size_t)shapes->inputs)
        return host->fail(
            DLC_ERR_CONFIG, "layer '%s': coeff has %zu factor%s for %d inputs",
            layer->name, e->factors, e->factors == 1 ? "" : "s", (int)shapes->inputs);
    shapes->out[0].shape = *first;
    shapes->out[0].dtype = common_type(shapes->in, shapes->inputs);
    return DLC_OK;
}

int eltwise_is_sum(const dlc_feature *next, const dlc_settings *settings) {
    return next->kind == DLC_KIND_LAYER && next->ops == &eltwise_ops &&
           option_is(settings, "operation", "sum") && !host->is_set(settings, "coeff");
}

/* ---- Along an axis -----------------------------------------------------------------
 */

dlc_status axis_layer_alloc(const dlc_layer_args *args, size_t bytes,
                            dlc_layer **layer) {
    dlc_status status = layer_alloc(args, bytes, layer);
    if (status == DLC_OK)
        ((axis_layer *)*layer)->axis = (int)host->get_int(args->settings, "axis");
    return status;
}

dlc_status axis_layer_create(const dlc_layer_args *args, dlc_layer **layer) {
    return axis_layer_alloc(args, sizeof(axis_layer), layer);
}

dlc_status concat_infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    int axis = ((const axis_layer *)layer)->axis;
    if (shapes->inputs < 1)
        return need_inputs(layer, shapes, 1);
    const dlc_shape *first = &shapes->in[0].shape;
    dlc_status status = need_floats(layer, shapes, 1, DLC_MAX_DIMS);
    if (status == DLC_OK)
        status = need_axis(layer, "first input", axis, first);
    if (status != DLC_OK)
        return status;
    dlc_shape out = *first;
    for (int32_t i = 1; i < shapes->inputs; i++) {
        const dlc_shape *in = &shapes->in[i].shape;
        int fits = in->rank == first->rank;
        for (int32_t d = 0; fits && d < first->rank; d++)
            fits = d == axis || in->dims[d] == first->dims[d];
        if (!fits)
            return host->fail(
                DLC_ERR_CONFIG,
                "layer '%s': inputs may differ in axis %d only, but input 1 "
                "is %s and input %d is %s",
                layer->name, axis, shape_print(first).text, (int)i + 1,
                shape_print(in).text);
        out.dims[axis] += in->dims[axis];
    }
    shapes->out[0].shape = out;
    shapes->out[0].dtype = common_type(shapes->in, shapes->inputs);
    return DLC_OK;
}

dlc_status flatten_infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    int axis = ((const axis_layer *)layer)->axis;
    dlc_status status = axis_infer(layer, axis, shapes);
    if (status != DLC_OK)
        return status;
    const dlc_shape *in = &shapes->in[0].shape;
    dlc_shape out = {.rank = (int32_t)axis + 1};
    int64_t outer = 1;
    for (int d = 0; d < axis; d++)
        outer *= out.dims[d] = in->dims[d];
    out.dims[axis] = dlc_shape_count(in) / outer;
    shapes->out[0].shape = out;
    return DLC_OK;
}

dlc_status flatten_prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    memory->in[0].layout = memory->out[0].layout = NULL;
    memory->in[0].bytes = memory->out[0].bytes = 0;
    ((axis_layer *)layer)->bytes = dlc_tensor_bytes(&memory->in[0]);
    memory->in_place = 1;
    return DLC_OK;
}

dlc_status axis_infer(const dlc_layer *layer, int axis, dlc_layer_shapes *shapes) {
    dlc_status status = infer_one(layer, shapes, 1, DLC_MAX_DIMS);
    return status == DLC_OK ? need_axis(layer, "input", axis, &shapes->in[0].shape)
                            : status;
}
