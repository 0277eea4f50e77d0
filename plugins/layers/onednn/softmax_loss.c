/* softmax_loss: cross entropy of softmax and labels, classes or probabilities of
 * classes, with optional label smoothing. Our
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
    labelled *l = &((softmax_loss *)layer)->l;
    return soft_scores_infer(layer, shapes, &l->shape, &l->soft);
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

/* The probabilities that are the label of a position, class after class. */
typedef struct soft_label {
    const float *first;
    int64_t stride;
} soft_label;

static soft_label soft_label_at(const labelled *l, const void *labels, int64_t i) {
    int64_t spatial = l->shape.spatial;
    return (soft_label){(const float *)labels +
                            i / spatial * spatial * l->shape.classes + i % spatial,
                        spatial};
}

/* Padding is NaN. */
static int soft_label_counts(soft_label label) {
    return label.first[0] == label.first[0];
}

/* The probabilities of one position and the logarithm of their sum before they were
 * divided by it, with the largest score in *top. */
static float normalize(const softmax_loss *loss, const float *score, float *top,
                       float *p) {
    int64_t classes = loss->l.shape.classes, stride = label_stride(&loss->l);
    float sum = 0;
    *top = score[0];
    for (int64_t c = 1; c < classes; c++)
        *top = score[c * stride] > *top ? score[c * stride] : *top;
    for (int64_t c = 0; c < classes; c++) {
        float e = expf(score[c * stride] - *top);
        sum += e;
        if (p)
            p[c * stride] = e;
    }
    for (int64_t c = 0; p && c < classes; c++)
        p[c * stride] /= sum;
    return logf(sum);
}

/* What is wanted of class c, with smoothing. */
static float wanted(const softmax_loss *loss, soft_label label, int64_t c) {
    return (1 - loss->smoothing) * label.first[c * label.stride] +
           loss->smoothing / (float)loss->l.shape.classes;
}

static float soft_loss_of(const softmax_loss *loss, const float *score,
                          soft_label label, float *p) {
    float top, log_sum = normalize(loss, score, &top, p), sum = 0;
    for (int64_t c = 0; c < loss->l.shape.classes; c++)
        sum -= wanted(loss, label, c) *
               (score[c * label_stride(&loss->l)] - top - log_sum);
    return sum;
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

static int64_t soft_forward(const softmax_loss *loss, const dlc_layer_run *run,
                            float *each, float *p) {
    const labelled *l = &loss->l;
    int64_t counted = 0;
#pragma omp parallel for schedule(static) reduction(+ : counted) \
    if (l->shape.positions * l->shape.classes > 16384)
    for (int64_t i = 0; i < l->shape.positions; i++) {
        int64_t at = label_offset(l, i);
        soft_label label = soft_label_at(l, run->in[1], i);
        int counts = soft_label_counts(label);
        each[i] = counts ? soft_loss_of(loss, (const float *)run->in[0] + at, label,
                                        p ? p + at : NULL)
                         : 0;
        counted += counts;
    }
    return counted;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const softmax_loss *loss = (const softmax_loss *)layer;
    const labelled *l = &loss->l;
    const float *scores = run->in[0];
    const int32_t *labels = run->in[1];
    float *out = run->out[0], *each = run->scratch;
    float *p = layer->phase == DLC_PHASE_TRAIN ? run->workspace : NULL;
    int64_t counted = 0;
    dlc_status status = l->soft ? DLC_OK : labels_check(l, labels, &counted);
    if (status != DLC_OK)
        return status;
    if (l->soft)
        counted = soft_forward(loss, run, each, p);
#pragma omp parallel for schedule(static) if (l->shape.positions * l->shape.classes > \
                                              16384)
    for (int64_t i = 0; i < (l->soft ? 0 : l->shape.positions); i++) {
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

/* Each score has (p * sum of what is wanted - wanted): the sum is 1 for probabilities.
 */
static void soft_backward(const softmax_loss *loss, const dlc_layer_run *run,
                          float scale) {
    const labelled *l = &loss->l;
    const float *p = run->workspace;
    float *diff = run->in_diff[0];
    int64_t stride = label_stride(l);
#pragma omp parallel for schedule(static) if (l->shape.positions * l->shape.classes > \
                                              16384)
    for (int64_t i = 0; i < l->shape.positions; i++) {
        int64_t at = label_offset(l, i);
        soft_label label = soft_label_at(l, run->in[1], i);
        float sum = 0;
        for (int64_t c = 0; c < l->shape.classes; c++)
            sum += wanted(loss, label, c);
        for (int64_t c = 0; c < l->shape.classes; c++)
            diff[at + c * stride] = soft_label_counts(label)
                                        ? (p[at + c * stride] * sum -
                                           wanted(loss, label, c)) *
                                              scale
                                        : 0;
    }
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
    if (l->soft) {
        soft_backward(loss, run, scale);
        return DLC_OK;
    }
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

static dlc_status count(dlc_layer *layer, const void *labels, int64_t samples,
                        double *counted) {
    const labelled *l = &((const softmax_loss *)layer)->l;
    scores_count(&l->shape, l->soft, l->has_ignore ? &l->ignore : NULL, labels, samples,
                 counted);
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
    .count = count,
};
