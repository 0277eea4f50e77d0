/* Checks of scores and labels, and reports of invalid labels, for softmax_loss and
 * accuracy. */
#include "labels.h"

dlc_status labels_create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_status status = layer_alloc(args, sizeof(labelled), out);
    if (status != DLC_OK)
        return status;
    labels_args *l = &((labelled *)*out)->args;
    l->has_ignore = ignore_label_read(args->settings, &l->ignore);
    return DLC_OK;
}

void labels_destroy(dlc_layer *layer) {
    if (layer)
        report_close(((labelled *)layer)->report);
    layer_free(layer);
}

dlc_status labels_infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    labelled *l = (labelled *)layer;
    return soft_scores_infer(layer, shapes, &l->shape, &l->soft);
}

dlc_status labels_prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    labelled *l = (labelled *)layer;
    context *net = layer->net;
    const dlc_layout *layout = layout_last(net, &memory->in[0].shape,
                                           memory->in[0].dtype);
    if (!layout)
        return DLC_ERR_NOMEM;
    l->args.type = layout->dtype;
    l->args.classes = l->shape.classes;
    l->args.rows = l->shape.positions;
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

void labels_point(const labelled *l, const void *labels, labels_args *args) {
    args->spatial = l->shape.spatial;
    if (l->soft)
        args->soft = labels;
    else
        args->labels = labels;
}

labels_args labels_forward(const labelled *l, const dlc_layer_run *run) {
    labels_args args = l->args;
    args.scores = run->in[0];
    labels_point(l, run->in[1], &args);
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
    return invalid_label(l->head.name, &l->shape, position,
                         (int32_t)(uint32_t)reported);
}
