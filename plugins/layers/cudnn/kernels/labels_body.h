/* Losses and accuracy: a row of scores for each label, class after class. The lanes of
 * a warp share a row; then one block adds up what the rows gave. */
#ifndef DLCORE_CUDNN_LABELS_BODY_H
#define DLCORE_CUDNN_LABELS_BODY_H

#include "softmax_body.h"

/* Where the first label that cannot be is told, in memory that both sides see: its row
 * + 1 above, itself below. 0: there is none. */
typedef uint64_t label_report;

/* What backward wants to know of a row. */
typedef struct row_share {
    float top, share; /* the largest score, 1 / sum of exp(score - top) */
} row_share;

typedef struct labels_args {
    dlc_dtype type;
    int64_t rows, classes;
    int has_ignore;
    int32_t ignore;
    float smoothing; /* loss */
    int64_t top_k;   /* accuracy */
    const void *scores;
    const int32_t *labels;
    float *each;      /* what each row gives */
    float *out;       /* {sum, count} */
    row_share *share; /* loss; NULL: not wanted */
    float *count;     /* of rows that count, for backward; NULL: not wanted */
    volatile label_report *report; /* NULL: nobody asks */
    /* backward */
    float loss_scale;
    const float *loss_scale_at; /* one more factor; NULL: none */
    void *diff;
} labels_args;

BODY int label_counts(const labels_args *l, int32_t label) {
    return label != DLC_LABEL_NONE && !(l->has_ignore && label == l->ignore);
}

BODY int label_can_be(const labels_args *l, int32_t label) {
    return label >= 0 && label < l->classes;
}

BODY row_view labels_row(const labels_args *l, int64_t i) {
    row_view r = {l->type, l->scores, i * l->classes, 1, l->classes};
    return r;
}

/* A label that cannot be makes the sum no number, and is told to whoever asks later. */
BODY float label_wrong(const labels_args *l, int64_t i) {
    if (l->report)
        *l->report = (uint64_t)(i + 1) << 32 | (uint32_t)l->labels[i];
    return NAN;
}

/* ---- softmax_loss ------------------------------------------------------------ */

BODY float loss_value(const labels_args *l, const row_view *r, dlc_dtype type,
                      int32_t label, float top, pair sums) {
    float log_sum = logf(sums.a), mean = sums.b / (float)l->classes - log_sum;
    float own = row_value(r, type, label) - top - log_sum;
    return -(1 - l->smoothing) * own - l->smoothing * mean;
}

/* By one lane, once the row is summed up. */
BODY void loss_row_done(const labels_args *l, dlc_dtype type, int64_t i, float top,
                        pair sums) {
    const row_view r = labels_row(l, i);
    int32_t label = l->labels[i];
    row_share share = {top, 1 / sums.a};
    if (l->share)
        l->share[i] = share;
    if (!label_counts(l, label))
        l->each[i] = 0;
    else if (!label_can_be(l, label))
        l->each[i] = label_wrong(l, i);
    else
        l->each[i] = loss_value(l, &r, type, label, top, sums);
}

/* The gradient of one score is this times (share - wanted share). */
BODY float loss_factor(const labels_args *l) {
    float scale = l->loss_scale_at ? *l->loss_scale_at * l->loss_scale : l->loss_scale;
    return *l->count > 0 ? scale / *l->count : 0;
}

/* One lane's part of row i. */
BODY void loss_gradient(const labels_args *l, dlc_dtype type, int64_t i, int lane,
                        int lanes, float factor) {
    const row_view r = labels_row(l, i);
    int32_t label = l->labels[i];
    int counts = label_counts(l, label);
    float spread = l->smoothing / (float)l->classes, own = 1 - l->smoothing;
    const row_share share = l->share[i];
    for (int64_t c = lane; c < l->classes; c += lanes) {
        float p = expf(row_value(&r, type, c) - share.top) * share.share;
        float want = spread + (c == label ? own : 0);
        store_one(type, l->diff, r.first + c, counts ? (p - want) * factor : 0);
    }
}

/* ---- accuracy ---------------------------------------------------------------- */

/* One lane's share of the classes that rank before the label. */
BODY int32_t accuracy_better(const labels_args *l, dlc_dtype type, int64_t i, int lane,
                             int lanes) {
    const row_view r = labels_row(l, i);
    int32_t label = l->labels[i], better = 0;
    if (!label_can_be(l, label))
        return 0;
    float own = row_value(&r, type, label);
    for (int64_t c = lane; c < l->classes; c += lanes)
        better += c != label && !(row_value(&r, type, c) < own);
    return better;
}

BODY void accuracy_row_done(const labels_args *l, dlc_dtype type, int64_t i,
                            int32_t better) {
    const row_view r = labels_row(l, i);
    int32_t label = l->labels[i];
    if (!label_counts(l, label)) {
        l->each[i] = 0;
    } else if (!label_can_be(l, label)) {
        l->each[i] = label_wrong(l, i);
    } else {
        float own = row_value(&r, type, label);
        l->each[i] = own == own && better < l->top_k ? 1 : 0;
    }
}

/* ---- Both -------------------------------------------------------------------- */

typedef struct label_sums {
    double sum;
    int64_t count;
} label_sums;

/* What thread `thread` of BLOCK adds up. */
BODY label_sums labels_partial(const labels_args *l, int thread) {
    label_sums s = {0, 0};
    for (int64_t i = thread; i < l->rows; i += BLOCK) {
        s.sum += (double)l->each[i];
        s.count += label_counts(l, l->labels[i]);
    }
    return s;
}

BODY void labels_join(label_sums *s, const label_sums *other) {
    s->sum += other->sum;
    s->count += other->count;
}

BODY void labels_done(const labels_args *l, const label_sums *s) {
    l->out[0] = (float)s->sum;
    l->out[1] = (float)s->count;
    if (l->count)
        *l->count = (float)s->count;
}

#endif
