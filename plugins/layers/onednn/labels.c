/* Checks of scores and labels for losses and accuracy. */
#include "labels.h"

void labels_read(labelled *l, const dlc_layer *layer, const dlc_settings *settings) {
    l->layer = layer->name;
    l->has_ignore = host->is_set(settings, "ignore_label");
    if (l->has_ignore)
        l->ignore = (int32_t)host->get_int(settings, "ignore_label");
}

dlc_status labels_infer(labelled *l, const dlc_layer *layer, dlc_layer_shapes *shapes) {
    dlc_status status = need_inputs(layer, shapes, 2);
    if (status != DLC_OK)
        return status;
    const dlc_tensor *scores = &shapes->in[0], *labels = &shapes->in[1];
    if (scores->dtype != DLC_F32 || scores->shape.rank < 2)
        return host->fail(
            DLC_ERR_CONFIG,
            "layer '%s': its first input must be float32 scores, samples x "
            "classes; it is %s",
            layer->name, shape_print(&scores->shape).text);
    l->classes = scores->shape.dims[1];
    l->positions = dlc_shape_count(&scores->shape) / l->classes;
    l->spatial = l->positions / scores->shape.dims[0];
    if (labels->dtype != DLC_I32 || dlc_shape_count(&labels->shape) != l->positions)
        return host->fail(
            DLC_ERR_CONFIG,
            "layer '%s': its second input must be whole-number labels, one "
            "for each of the %lld positions of its scores %s; it is %s%s",
            layer->name, (long long)l->positions, shape_print(&scores->shape).text,
            shape_print(&labels->shape).text,
            labels->dtype == DLC_I32 ? "" : ", and not of whole numbers");
    shapes->out[0].dtype = DLC_F32;
    shapes->out[0].shape = (dlc_shape){.rank = 1, .dims = {2}};
    shapes->no_gradient = 2;
    return DLC_OK;
}

dlc_status labels_prepare(labelled *l, const dlc_layer *layer,
                          dlc_layer_memory *memory) {
    const dlc_layout *layout = layout_simple(layer->net, &memory->in[0], &l->last);
    if (!layout)
        return DLC_ERR_NOMEM;
    layout_set(&memory->in[0], layout);
    memory->in[1].layout = NULL;
    memory->in[1].bytes = 0;
    memory->out[0].layout = NULL;
    memory->out[0].bytes = 0;
    return DLC_OK;
}

dlc_status labels_check(const labelled *l, const int32_t *labels, int64_t *count) {
    int64_t counted = 0;
    for (int64_t i = 0; i < l->positions; i++) {
        if (!label_counts(l, labels[i]))
            continue;
        if (labels[i] < 0 || labels[i] >= l->classes)
            return host->fail(
                DLC_ERR_DATA,
                "layer '%s': label %d of sample %lld of the batch is outside "
                "0 .. %lld; there are %lld scores a sample (num_output of "
                "the layer below?)",
                l->layer, (int)labels[i], (long long)(i / l->spatial),
                (long long)l->classes - 1, (long long)l->classes);
        counted++;
    }
    *count = counted;
    return DLC_OK;
}
