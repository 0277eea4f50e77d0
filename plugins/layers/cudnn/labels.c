/* Checks of scores and labels, and reports of invalid labels, for softmax_loss and
 * accuracy. */
#include "labels.h"

dlc_status labels_create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_status status = layer_alloc(args, sizeof(labelled), out);
    if (status != DLC_OK)
        return status;
    labels_args *l = &((labelled *)*out)->args;
    l->has_ignore = host->is_set(args->settings, "ignore_label");
    if (l->has_ignore)
        l->ignore = (int32_t)host->get_int(args->settings, "ignore_label");
    return DLC_OK;
}

void labels_destroy(dlc_layer *layer) {
    if (layer)
        report_close(((labelled *)layer)->report);
    layer_free(layer);
}

static int is_float(dlc_dtype dtype) {
    return dtype == DLC_F32 || dtype == DLC_BF16 || dtype == DLC_F16;
}

dlc_status labels_infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    labelled *l = (labelled *)layer;
    dlc_status status = need_inputs(layer, shapes, 2);
    if (status != DLC_OK)
        return status;
    const dlc_tensor *scores = &shapes->in[0], *labels = &shapes->in[1];
    if (!is_float(scores->dtype) || scores->shape.rank < 2)
        return host->fail(
            DLC_ERR_CONFIG,
            "layer '%s': its first input must be float32 scores, samples x "
            "classes; it is %s",
            layer->name, shape_print(&scores->shape).text);
    l->args.classes = scores->shape.dims[1];
    l->args.rows = dlc_shape_count(&scores->shape) / l->args.classes;
    l->spatial = l->args.rows / scores->shape.dims[0];
    if (labels->dtype != DLC_I32 || dlc_shape_count(&labels->shape) != l->args.rows)
        return host->fail(
            DLC_ERR_CONFIG,
            "layer '%s': its second input must be whole-number labels, one "
            "for each of the %lld positions of its scores %s; it is %s%s",
            layer->name, (long long)l->args.rows, shape_print(&scores->shape).text,
            shape_print(&labels->shape).text,
            labels->dtype == DLC_I32 ? "" : ", and not of whole numbers");
    shapes->out[0].dtype = DLC_F32;
    shapes->out[0].shape = (dlc_shape){.rank = 1, .dims = {2}};
    shapes->no_gradient = 2;
    return DLC_OK;
}

dlc_status labels_prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    labelled *l = (labelled *)layer;
    context *net = layer->net;
    const dlc_layout *layout = layout_last(net, &memory->in[0].shape,
                                           memory->in[0].dtype);
    if (!layout)
        return DLC_ERR_NOMEM;
    l->args.type = layout->dtype;
    layout_give(&memory->in[0], layout);
    memory->in[1].layout = NULL;
    memory->in[1].bytes = 0;
    memory->out[0].layout = NULL;
    memory->out[0].bytes = 0;
    memory->scratch_bytes = (size_t)l->args.rows * sizeof(float);
    if (net->described || l->report)
        return DLC_OK;
    return check_cuda(report_open(&l->report), layer->name,
                      "allocate memory for reports of invalid labels");
}

labels_args labels_forward(const labelled *l, const dlc_layer_run *run) {
    labels_args args = l->args;
    args.scores = run->in[0];
    args.labels = run->in[1];
    args.out = run->out[0];
    args.per_row = run->scratch;
    args.report = l->report;
    return args;
}

dlc_status labels_check(const labelled *l) {
    label_report reported = l->report ? *(volatile label_report *)l->report : 0;
    if (!reported)
        return DLC_OK;
    int64_t position = (int64_t)(reported >> 32) - 1;
    return host->fail(
        DLC_ERR_DATA,
        "layer '%s': label %d of sample %lld of the batch is outside "
        "0 .. %lld; there are %lld scores per sample (check num_output of "
        "the last layer)",
        l->head.name, (int)(int32_t)(uint32_t)reported,
        (long long)(position / l->spatial), (long long)l->args.classes - 1,
        (long long)l->args.classes);
}
