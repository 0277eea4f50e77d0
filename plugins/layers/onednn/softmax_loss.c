/* softmax_loss: cross entropy of softmax and label, with optional label smoothing. Our
 * own kernel: it is small, and sums in an order that does not depend on threads. */
#include "labels.h"

#include <math.h>

typedef struct softmax_loss {
    dlc_layer head;
    labelled l;
    float smoothing;
} softmax_loss;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_status status = layer_alloc(args, sizeof(softmax_loss), out);
    if (status != DLC_OK)
        return status;
    softmax_loss *loss = (softmax_loss *)*out;
    loss->smoothing = (float)host->get_float(args->settings, "label_smoothing");
    labels_read(&loss->l, *out, args->settings);
    return DLC_OK;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    return scores_infer(layer, shapes, &((softmax_loss *)layer)->l.shape);
}

/* Workspace: the probabilities, in the layout of the scores. Scratch: a loss per
 * position. */
static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    labelled *l = &((softmax_loss *)layer)->l;
    dlc_status status = labels_prepare(l, layer, memory);
    if (status != DLC_OK)
        return status;
    size_t floats = (size_t)l->shape.positions * sizeof(float);
    memory->scratch_bytes = floats;
    if (layer->phase == DLC_PHASE_TRAIN) {
        memory->workspace_bytes = floats * (size_t)l->shape.classes;
        memory->reads_in = 2;  /* the labels */
        memory->reads_out = 1; /* the number of samples that count */
    }
    return DLC_OK;
}

/* The loss of one position; writes its probabilities to `p` unless NULL. */
static float loss_of(const softmax_loss *loss, const float *score, int32_t label,
                     float *p) {
    int64_t classes = loss->l.shape.classes, stride = label_stride(&loss->l);
    float top = score[0];
    for (int64_t c = 1; c < classes; c++)
        top = score[c * stride] > top ? score[c * stride] : top;
    float sum = 0, all = 0;
    for (int64_t c = 0; c < classes; c++) {
        float over = score[c * stride] - top, e = expf(over);
        sum += e;
        all += over;
        if (p)
            p[c * stride] = e;
    }
    if (p)
        for (int64_t c = 0; c < classes; c++)
            p[c * stride] /= sum;
    float log_sum = logf(sum), mean = all / (float)classes - log_sum;
    float own = score[label * stride] - top - log_sum;
    return -(1 - loss->smoothing) * own - loss->smoothing * mean;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const softmax_loss *loss = (const softmax_loss *)layer;
    const labelled *l = &loss->l;
    const float *scores = run->in[0];
    const int32_t *labels = run->in[1];
    float *out = run->out[0], *each = run->scratch;
    float *p = layer->phase == DLC_PHASE_TRAIN ? run->workspace : NULL;
    int64_t counted = 0;
    dlc_status status = labels_check(l, labels, &counted);
    if (status != DLC_OK)
        return status;
#pragma omp parallel for schedule(static) if (l->shape.positions * l->shape.classes > \
                                              16384)
    for (int64_t i = 0; i < l->shape.positions; i++) {
        int64_t at = label_offset(l, i);
        each[i] = label_counts(l, labels[i])
                      ? loss_of(loss, scores + at, labels[i], p ? p + at : NULL)
                      : 0;
    }
    double sum = 0;
    for (int64_t i = 0; i < l->shape.positions; i++)
        sum += (double)each[i];
    out[0] = (float)sum;
    out[1] = (float)counted;
    return DLC_OK;
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    const softmax_loss *loss = (const softmax_loss *)layer;
    const labelled *l = &loss->l;
    const float *p = run->workspace;
    const int32_t *labels = run->in[1];
    float *diff = run->in_diff[0];
    if (!diff)
        return DLC_OK;
    int64_t stride = label_stride(l);
    float counted = ((const float *)run->out[0])[1];
    float scale = counted > 0 ? run->loss_scale / counted : 0;
    float spread = loss->smoothing / (float)l->shape.classes;
#pragma omp parallel for schedule(static) if (l->shape.positions * l->shape.classes > \
                                              16384)
    for (int64_t i = 0; i < l->shape.positions; i++) {
        int64_t at = label_offset(l, i);
        int counts = label_counts(l, labels[i]);
        for (int64_t c = 0; c < l->shape.classes; c++)
            diff[at + c * stride] = counts ? (p[at + c * stride] - spread) * scale : 0;
        if (counts)
            diff[at + labels[i] * stride] -= (1 - loss->smoothing) * scale;
    }
    return DLC_OK;
}

const dlc_layer_ops softmax_loss_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &onednn_family,
    .create = create,
    .destroy = layer_free,
    .infer = infer,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe_own,
};
