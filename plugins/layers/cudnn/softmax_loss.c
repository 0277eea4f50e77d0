/* softmax_loss: the cross entropy of softmax and labels, classes or probabilities of
 * classes, with optional label smoothing. */
#include "labels.h"

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_status status = labels_create(args, out);
    if (status == DLC_OK)
        ((labelled *)*out)->args.smoothing = (float)host->get_float(args->settings,
                                                                    "label_smoothing");
    return status;
}

/* The workspace holds what backward needs to recompute the probabilities, and the
 * number of samples that count. */
static size_t stats_bytes(const labelled *l) {
    return (size_t)l->args.rows * sizeof(softmax_stats);
}

static void use_workspace(const labelled *l, void *workspace, labels_args *args) {
    args->stats = workspace;
    args->count = at_offset(workspace, stats_bytes(l));
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    dlc_status status = labels_prepare(layer, memory);
    if (status != DLC_OK || layer->phase != DLC_PHASE_TRAIN)
        return status;
    memory->workspace_bytes = stats_bytes((labelled *)layer) + sizeof(float);
    memory->reads_in = 3;
    return DLC_OK;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const labelled *l = (const labelled *)layer;
    labels_args args = labels_forward(l, run);
    if (layer->phase == DLC_PHASE_TRAIN)
        use_workspace(l, run->workspace, &args);
    dlc_status status = labels_check(l);
    if (status == DLC_OK)
        status = check_cuda(loss_forward_run(&args, layer->net->stream), layer->name,
                            "do its forward pass");
    return status == DLC_OK ? labels_check(l) : status;
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    const labelled *l = (const labelled *)layer;
    labels_args args = l->args;
    if (!run->in_diff[0])
        return DLC_OK;
    args.scores = run->in[0];
    labels_point(l, run->in[1], &args);
    args.loss_scale = run->loss_scale;
    args.loss_scale_at = loss_scale_at(run);
    args.diff = run->in_diff[0];
    use_workspace(l, run->workspace, &args);
    return check_cuda(loss_backward_run(&args, layer->net->stream), layer->name,
                      "do its backward pass");
}

static dlc_status count(dlc_layer *layer, const void *labels, int64_t samples,
                        double *counted) {
    const labelled *l = (const labelled *)layer;
    scores_count(&l->shape, l->soft, l->args.has_ignore ? &l->args.ignore : NULL,
                 labels, samples, counted);
    return DLC_OK;
}

const dlc_layer_ops softmax_loss_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &cudnn_family,
    .create = create,
    .destroy = labels_destroy,
    .infer = labels_infer,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe_own,
    .count = count,
};
