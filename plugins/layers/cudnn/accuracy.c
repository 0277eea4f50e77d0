/* accuracy: the number of samples whose label is among the k best scores. A class whose
 * score equals the label's ranks before it, as in Caffe, so that a net which gives all
 * classes the same score is never right. */
#include "labels.h"

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_status status = labels_create(args, out);
    if (status == DLC_OK)
        ((labelled *)*out)->args.top_k = host->get_int(args->settings, "top_k");
    return status;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    labelled *l = (labelled *)layer;
    return accuracy_infer(layer, l->args.top_k, shapes, &l->shape);
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const labelled *l = (const labelled *)layer;
    const labels_args args = labels_forward(l, run);
    dlc_status status = labels_check(l);
    if (status == DLC_OK)
        status = check_cuda(accuracy_run(&args, layer->net->stream), layer->name,
                            "do its forward pass");
    return status == DLC_OK ? labels_check(l) : status;
}

const dlc_layer_ops accuracy_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &cudnn_family,
    .create = create,
    .destroy = labels_destroy,
    .infer = infer,
    .prepare = labels_prepare,
    .forward = forward,
    .describe = describe_own,
};
