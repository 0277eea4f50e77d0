/* Losses and accuracy: a row of scores for each label. The lanes of a warp share a row;
 * then one block adds up the results of the rows. */
#ifndef DLCORE_CUDNN_LABELS_BODY_H
#define DLCORE_CUDNN_LABELS_BODY_H

#include "softmax_body.h"

/* A report of an invalid label, in memory that host and GPU share: row + 1 in the upper
 * half, the label in the lower half. 0: no invalid label. */
typedef uint64_t label_report;

/* What backward needs to know of a row. */
typedef struct softmax_stats {
    float max, inverse_sum; /* largest score; 1 / sum of exp(score - max) */
} softmax_stats;

typedef struct labels_args {
    dlc_dtype type;
    int64_t rows, classes;
    int has_ignore;
    int32_t ignore;
    float smoothing; /* softmax_loss */
    int64_t top_k;   /* accuracy */
    const void *scores;
    const int32_t *labels;
    const float *soft; /* softmax_loss: instead of labels, N, C, spatial */
    int64_t spatial;
    float *per_row;       /* result of each row */
    float *out;           /* {sum, count} */
    softmax_stats *stats; /* softmax_loss; NULL: not wanted */
    float *count; /* number of rows that count, for backward; NULL: not wanted */
    volatile label_report *report; /* NULL: not reported */
    /* backward */
    float loss_scale;
    const float *loss_scale_at; /* another factor, in device memory; NULL: none */
    void *diff;
} labels_args;

BODY int label_counts(const labels_args *l, int32_t label) {
    return label != DLC_LABEL_NONE && !(l->has_ignore && label == l->ignore);
}

BODY int label_is_valid(const labels_args *l, int32_t label) {
    return label >= 0 && label < l->classes;
}

BODY row_view labels_row(const labels_args *l, int64_t i) {
    row_view r = {l->type, l->scores, i * l->classes, 1, l->classes};
    return r;
}

/* An invalid label makes the sum NaN and is reported to the host. */
BODY float report_bad_label(const labels_args *l, int64_t i) {
    if (l->report)
        *l->report = (uint64_t)(i + 1) << 32 | (uint32_t)l->labels[i];
    return NAN;
}

/* The probability of class c that is wanted of row i. Padding is NaN. */
BODY float soft_label(const labels_args *l, int64_t i, int64_t c) {
    return l->soft[(i / l->spatial * l->classes + c) * l->spatial + i % l->spatial];
}

BODY int row_counts(const labels_args *l, int64_t i) {
    return l->soft ? soft_label(l, i, 0) == soft_label(l, i, 0)
                   : label_counts(l, l->labels[i]);
}

/* ---- softmax_loss ------------------------------------------------------------ */

/* What is wanted of class c in row i, with smoothing. */
BODY float soft_wanted(const labels_args *l, int64_t i, int64_t c) {
    return (1 - l->smoothing) * soft_label(l, i, c) + l->smoothing / (float)l->classes;
}

/* By one lane: rows of probabilities have few classes. */
BODY float soft_loss_value(const labels_args *l, const row_view *r, dlc_dtype type,
                           int64_t i, float max, pair sums) {
    float log_sum = logf(sums.a), sum = 0;
    for (int64_t c = 0; c < l->classes; c++)
        sum -= soft_wanted(l, i, c) * (row_value(r, type, c) - max - log_sum);
    return sum;
}

BODY float loss_value(const labels_args *l, const row_view *r, dlc_dtype type,
                      int32_t label, float max, pair sums) {
    float log_sum = logf(sums.a), mean = sums.b / (float)l->classes - log_sum;
    float own = row_value(r, type, label) - max - log_sum;
    return -(1 - l->smoothing) * own - l->smoothing * mean;
}

/* Called by one lane after the row's sums are known. */
BODY void loss_row_done(const labels_args *l, dlc_dtype type, int64_t i, float max,
                        pair sums) {
    const row_view r = labels_row(l, i);
    int32_t label = l->soft ? 0 : l->labels[i];
    softmax_stats stats = {max, 1 / sums.a};
    if (l->stats)
        l->stats[i] = stats;
    if (!row_counts(l, i))
        l->per_row[i] = 0;
    else if (l->soft)
        l->per_row[i] = soft_loss_value(l, &r, type, i, max, sums);
    else if (!label_is_valid(l, label))
        l->per_row[i] = report_bad_label(l, i);
    else
        l->per_row[i] = loss_value(l, &r, type, label, max, sums);
}

/* The factor of (probability - target) in the gradient of a score. */
BODY float loss_factor(const labels_args *l) {
    float scale = l->loss_scale_at ? *l->loss_scale_at * l->loss_scale : l->loss_scale;
    return *l->count > 0 ? scale / *l->count : 0;
}

/* One lane's part of row i. */
BODY void loss_gradient(const labels_args *l, dlc_dtype type, int64_t i, int lane,
                        int lanes, float factor) {
    const row_view r = labels_row(l, i);
    int32_t label = l->soft ? 0 : l->labels[i];
    int counts = row_counts(l, i);
    float spread = l->smoothing / (float)l->classes, own = 1 - l->smoothing, sum = 1;
    const softmax_stats stats = l->stats[i];
    if (l->soft) {
        sum = 0;
        for (int64_t c = 0; c < l->classes; c++)
            sum += soft_wanted(l, i, c);
    }
    for (int64_t c = lane; c < l->classes; c += lanes) {
        float p = expf(row_value(&r, type, c) - stats.max) * stats.inverse_sum;
        float want = l->soft ? soft_wanted(l, i, c) : spread + (c == label ? own : 0);
        store_one(type, l->diff, r.first + c, counts ? (p * sum - want) * factor : 0);
    }
}

/* ---- accuracy ---------------------------------------------------------------- */

/* One lane's count of the classes that rank before the label. */
BODY int32_t accuracy_better(const labels_args *l, dlc_dtype type, int64_t i, int lane,
                             int lanes) {
    const row_view r = labels_row(l, i);
    int32_t label = l->labels[i], better = 0;
    if (!label_is_valid(l, label))
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
        l->per_row[i] = 0;
    } else if (!label_is_valid(l, label)) {
        l->per_row[i] = report_bad_label(l, i);
    } else {
        float own = row_value(&r, type, label);
        l->per_row[i] = own == own && better < l->top_k ? 1 : 0;
    }
}

/* ---- Both -------------------------------------------------------------------- */

typedef struct label_sums {
    double sum;
    int64_t count;
} label_sums;

/* The sum of the rows of one of the BLOCK threads. */
BODY label_sums labels_partial(const labels_args *l, int thread) {
    label_sums s = {0, 0};
    for (int64_t i = thread; i < l->rows; i += BLOCK) {
        s.sum += (double)l->per_row[i];
        s.count += row_counts(l, i);
    }
    return s;
}

BODY void label_sums_add(label_sums *s, const label_sums *other) {
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
