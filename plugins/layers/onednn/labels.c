/* Checks of scores and labels for losses and accuracy. */
#include "labels.h"

void labels_read(labelled *l, const dlc_layer *layer, const dlc_settings *settings) {
    l->layer = layer->name;
    l->has_ignore = ignore_label_read(settings, &l->ignore);
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
    for (int64_t i = 0; i < l->shape.positions; i++) {
        if (!label_counts(l, labels[i]))
            continue;
        if (labels[i] < 0 || labels[i] >= l->shape.classes)
            return invalid_label(l->layer, &l->shape, i, labels[i]);
        counted++;
    }
    *count = counted;
    return DLC_OK;
}
