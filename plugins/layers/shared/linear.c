/* Options and shapes of convolution, deconvolution and inner_product. */
#include "linear.h"

void linear_read(const dlc_layer_args *args, linear *l) {
    const dlc_settings *settings = args->settings;
    int64_t slice = DLC_HAS(args, channel_end) ? args->channel_end - args->channel_begin
                                               : 0;
    *l = (linear){.num_output = slice ? slice : host->get_int(settings, "num_output"),
                  .is_slice = slice != 0,
                  .has_bias = host->get_bool(settings, "bias"),
                  .weight = param_read(settings, "weight"),
                  .bias = param_read(settings, "bias")};
}

/* `fan_in` weights go into each of the `outputs` of the whole batch. */
static dlc_status describe_params(const dlc_layer *layer, linear *l,
                                  dlc_layer_shapes *shapes, const dlc_shape *weights,
                                  int64_t fan_in, int64_t fan_out, int64_t outputs) {
    if (times(l->num_output, fan_in) > INT64_MAX / 1024)
        return host->fail(DLC_ERR_CONFIG,
                          "layer '%s': num_output = %lld times %lld inputs are more "
                          "weights than any memory holds",
                          layer->name, (long long)l->num_output, (long long)fan_in);
    const dlc_shape bias = {.rank = 1, .dims = {l->num_output}};
    l->shape = *weights;
    shapes->params = 0;
    (void)param_add(shapes, &l->weight, weights, fan_in, fan_out);
    if (l->has_bias)
        (void)param_add(shapes, &l->bias, &bias, fan_in, fan_out);
    shapes->multiply_adds = times(fan_in, outputs);
    return DLC_OK;
}

dlc_status inner_product_infer(dlc_layer *layer, linear *l, dlc_dtype dtype,
                               dlc_layer_shapes *shapes) {
    dlc_status status = infer_one(layer, shapes, 2, DLC_MAX_DIMS);
    if (status != DLC_OK)
        return status;
    const dlc_shape *in = &shapes->in[0].shape;
    int64_t batch = in->dims[0], features = dlc_shape_count(in) / batch;
    const dlc_shape weights = {.rank = 2, .dims = {l->num_output, features}};
    shapes->out[0].dtype = dtype;
    shapes->out[0].shape = (dlc_shape){.rank = 2, .dims = {batch, l->num_output}};
    return describe_params(layer, l, shapes, &weights, features, l->num_output,
                           times(batch, l->num_output));
}

static int64_t dilation_of(const dlc_settings *settings, const char *side) {
    return host->get_int(settings, host->is_set(settings, side) ? side : "dilation") -
           1;
}

dlc_status convolution_read(const char *layer, const dlc_settings *settings,
                            filters *f) {
    dlc_status status = window_read(layer, settings, 0, &f->window);
    if (status != DLC_OK)
        return status;
    f->window.dilation[0] = dilation_of(settings, "dilation_h");
    f->window.dilation[1] = dilation_of(settings, "dilation_w");
    f->group = host->get_int(settings, "group");
    f->direct = option_is(settings, "algorithm", "direct");
    return DLC_OK;
}

static dlc_status check_groups(const dlc_layer *layer, const linear *l,
                               const filters *f, const dlc_shape *in) {
    if (l->is_slice && f->group > 1)
        return host->fail(
            DLC_ERR_UNSUPPORTED,
            "layer '%s': a convolution with group = %lld cannot be split; "
            "take parallel = data",
            layer->name, (long long)f->group);
    if (in->dims[1] % f->group || l->num_output % f->group)
        return host->fail(
            DLC_ERR_CONFIG,
            "layer '%s': group = %lld must divide both the %lld channels of "
            "its input %s and num_output = %lld",
            layer->name, (long long)f->group, (long long)in->dims[1],
            shape_print(in).text, (long long)l->num_output);
    return DLC_OK;
}

static void set_output(const linear *l, dlc_dtype dtype, const int64_t size[2],
                       dlc_layer_shapes *shapes) {
    shapes->out[0].dtype = dtype;
    shapes->out[0].shape = (dlc_shape){
        .rank = 4,
        .dims = {shapes->in[0].shape.dims[0], l->num_output, size[0], size[1]}};
}

/* The weights are `outer` times `inner` kernels, `inner` of one group. */
static dlc_status describe_filters(const dlc_layer *layer, linear *l, const filters *f,
                                   dlc_layer_shapes *shapes, int64_t outer,
                                   int64_t inner, int64_t outputs) {
    const int64_t *kernel = f->window.kernel;
    const dlc_shape weights = {.rank = 4, .dims = {outer, inner, kernel[0], kernel[1]}};
    int64_t area = kernel[0] * kernel[1];
    return describe_params(layer, l, shapes, &weights, times(inner, area),
                           times(outer, area), outputs);
}

dlc_status convolution_infer(dlc_layer *layer, linear *l, filters *f, dlc_dtype dtype,
                             dlc_layer_shapes *shapes) {
    int64_t size[2];
    dlc_status status = infer_image(layer, shapes);
    if (status != DLC_OK)
        return status;
    const dlc_shape *in = &shapes->in[0].shape;
    status = check_groups(layer, l, f, in);
    if (status == DLC_OK)
        status = window_slide(layer->name, in, 0, &f->window, size);
    if (status != DLC_OK)
        return status;
    set_output(l, dtype, size, shapes);
    int64_t outputs = times(times(in->dims[0], l->num_output), times(size[0], size[1]));
    return describe_filters(layer, l, f, shapes, l->num_output, in->dims[1] / f->group,
                            outputs);
}

dlc_status deconvolution_read(const char *layer, const dlc_settings *settings,
                              filters *f) {
    dlc_status status = window_read(layer, settings, 0, &f->window);
    f->group = host->get_int(settings, "group");
    return status;
}

dlc_status deconvolution_infer(dlc_layer *layer, linear *l, filters *f, dlc_dtype dtype,
                               dlc_layer_shapes *shapes) {
    int64_t size[2];
    dlc_status status = infer_image(layer, shapes);
    if (status != DLC_OK)
        return status;
    const dlc_shape *in = &shapes->in[0].shape;
    status = check_groups(layer, l, f, in);
    if (status == DLC_OK)
        status = window_spread(layer->name, in, &f->window, size);
    if (status != DLC_OK)
        return status;
    set_output(l, dtype, size, shapes);
    return describe_filters(layer, l, f, shapes, in->dims[1], l->num_output / f->group,
                            dlc_shape_count(in));
}
