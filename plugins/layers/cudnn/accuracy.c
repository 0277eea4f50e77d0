/* accuracy: the number of samples whose label is among the k best scores. A class whose
 * score equals the label's ranks before it, as in Caffe, so that a net which gives all
 * classes the same score is never right. */
#include <stdio.h>

#include "labels.h"

const dlc_option accuracy_options[] = {
    DLC_INT("top_k", "1", 1, 1 << 20, "right if the label is among this many best"),
    LABEL_OPTIONS,
    DLC_OPTIONS_END,
};

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_status status = labels_create(args, out);
    if (status == DLC_OK)
        ((labelled *)*out)->args.top_k = host->get_int(args->settings, "top_k");
    return status;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    const labels_args *l = &((const labelled *)layer)->args;
    dlc_status status = labels_infer(layer, shapes);
    if (status == DLC_OK && l->top_k > l->classes)
        return host->fail(
            DLC_ERR_CONFIG,
            "layer '%s': top_k = %lld, but its input %s has only %lld classes",
            layer->name, (long long)l->top_k, shape_print(&shapes->in[0].shape).text,
            (long long)l->classes);
    shapes->no_gradient = 3;
    return status;
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

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    (void)layer;
    (void)snprintf(text, bytes, "own");
}

const dlc_layer_ops accuracy_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &cudnn_family,
    .create = create,
    .destroy = labels_destroy,
    .infer = infer,
    .prepare = labels_prepare,
    .forward = forward,
    .describe = describe,
};
