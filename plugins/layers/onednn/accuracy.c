/* accuracy: how many samples have their label among the k best scores. A class whose
 * score equals the label's ranks before it (as in Caffe), so a net that gives all
 * classes the same score is never right. */
#include "labels.h"

typedef struct accuracy {
    dlc_layer head;
    labelled l;
    int64_t top_k;
} accuracy;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_status status = layer_alloc(args, sizeof(accuracy), out);
    if (status != DLC_OK)
        return status;
    accuracy *acc = (accuracy *)*out;
    acc->top_k = host->get_int(args->settings, "top_k");
    labels_read(&acc->l, *out, args->settings);
    return DLC_OK;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    accuracy *acc = (accuracy *)layer;
    return accuracy_infer(layer, acc->top_k, shapes, &acc->l.shape);
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    return labels_prepare(&((accuracy *)layer)->l, layer, memory);
}

static int right(const accuracy *acc, const float *score, int32_t label) {
    int64_t stride = label_stride(&acc->l), better = 0;
    float own = score[label * stride];
    if (own != own)
        return 0; /* NaN */
    for (int64_t c = 0; c < acc->l.shape.classes; c++)
        better += c != label && !(score[c * stride] < own);
    return better < acc->top_k;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const accuracy *acc = (const accuracy *)layer;
    const labelled *l = &acc->l;
    const float *scores = run->in[0];
    const int32_t *labels = run->in[1];
    float *out = run->out[0];
    int64_t count = 0, hits = 0;
    dlc_status status = labels_check(l, labels, &count);
    if (status != DLC_OK)
        return status;
#pragma omp parallel for schedule(static) reduction(+ : hits) \
    if (l->shape.positions * l->shape.classes > 16384)
    for (int64_t i = 0; i < l->shape.positions; i++)
        hits += label_counts(l, labels[i]) &&
                right(acc, scores + label_offset(l, i), labels[i]);
    out[0] = (float)hits;
    out[1] = (float)count;
    return DLC_OK;
}

const dlc_layer_ops accuracy_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &onednn_family,
    .create = create,
    .destroy = layer_free,
    .infer = infer,
    .prepare = prepare,
    .forward = forward,
    .describe = describe_own,
};
