/* softmax along one dimension of a dense tensor: rows of `along` elements with stride
 * `inner`. Rows of adjacent elements are handled by the lanes of a warp, others by one
 * thread each. */
#ifndef DLCORE_CUDNN_SOFTMAX_BODY_H
#define DLCORE_CUDNN_SOFTMAX_BODY_H

#include "warp.h"

/* The elements of a row: `classes` of them, with the given stride. */
typedef struct row_view {
    dlc_dtype type;
    const void *values;
    int64_t first, stride, classes;
} row_view;

BODY float row_value(const row_view *r, dlc_dtype type, int64_t c) {
    return load_one(type, r->values, r->first + c * r->stride);
}

/* One lane's part of the maximum. */
BODY float row_max(const row_view *r, dlc_dtype type, int lane, int lanes) {
    float max = -INFINITY;
    for (int64_t c = lane; c < r->classes; c += lanes)
        max = max_or_nan(row_value(r, type, c), max);
    return max;
}

/* One lane's part of the sums of exp(value - max) and of value - max. */
BODY pair row_sums(const row_view *r, dlc_dtype type, int lane, int lanes, float max) {
    pair sum = {0, 0};
    for (int64_t c = lane; c < r->classes; c += lanes) {
        float over = row_value(r, type, c) - max;
        sum.a += expf(over);
        sum.b += over;
    }
    return sum;
}

typedef struct softmax_args {
    int64_t outer, along, inner;
    const float *in; /* forward */
    float *out;      /* backward: read */
    const float *out_diff;
    float *in_diff;
} softmax_args;

BODY int64_t softmax_rows(const softmax_args *s) {
    return s->outer * s->inner;
}

BODY int softmax_lanes(const softmax_args *s) {
    return s->inner == 1 ? WARP_SIZE : 1;
}

BODY row_view softmax_row(const softmax_args *s, const float *values, int64_t i) {
    row_view r = {DLC_F32, values, i / s->inner * s->along * s->inner + i % s->inner,
                  s->inner, s->along};
    return r;
}

BODY void softmax_write(const softmax_args *s, const row_view *r, int lane, int lanes,
                        float max, float sum) {
    float inverse_sum = 1 / sum;
    for (int64_t c = lane; c < s->along; c += lanes)
        s->out[r->first + c * r->stride] = expf(row_value(r, DLC_F32, c) - max) *
                                           inverse_sum;
}

/* One lane's part of the dot product of output and gradient. */
BODY float softmax_dot(const softmax_args *s, const row_view *r, int lane, int lanes) {
    float dot = 0;
    for (int64_t c = lane; c < s->along; c += lanes) {
        int64_t at = r->first + c * r->stride;
        dot += s->out[at] * s->out_diff[at];
    }
    return dot;
}

BODY void softmax_gradient(const softmax_args *s, const row_view *r, int lane,
                           int lanes, float dot) {
    for (int64_t c = lane; c < s->along; c += lanes) {
        int64_t at = r->first + c * r->stride;
        s->in_diff[at] = s->out[at] * (s->out_diff[at] - dot);
    }
}

#endif
