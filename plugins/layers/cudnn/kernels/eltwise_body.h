/* Combines inputs of one shape element by element, with an optional fused
 * activation. */
#ifndef DLCORE_CUDNN_ELTWISE_BODY_H
#define DLCORE_CUDNN_ELTWISE_BODY_H

#include <dlcore/layer.h>

#include "../../shared/bounds.h"
#include "../../shared/eltwise_kind.h"
#include "body.h"

typedef struct eltwise_args {
    eltwise_kind operation;
    dlc_dtype type;
    int32_t inputs;
    int bounded;
    bounds limit; /* rounded to the type */
    int64_t count;
    float factor[DLC_MAX_INPUTS]; /* of a sum; otherwise 1 */
    const void *in[DLC_MAX_INPUTS];
    uint8_t *which; /* of a maximum: the index of its input; may be NULL in forward */
    /* forward */
    void *to;
    /* backward */
    const void *out; /* NULL unless bounded */
    const void *out_diff;
    void *in_diff[DLC_MAX_INPUTS]; /* NULL: not wanted */
} eltwise_args;

/* Combines input i (`in`) with the result of those before it (`out`). */
BODY void eltwise_combine(const eltwise_args *a, int width, int32_t i, const pack *in,
                          pack *out, uint8_t *which) {
    for (int k = 0; k < width; k++) {
        if (a->operation == ELTWISE_SUM)
            out->v[k] += a->factor[i] * in->v[k];
        else if (a->operation == ELTWISE_PRODUCT)
            out->v[k] *= in->v[k];
        else if (in->v[k] > out->v[k]) {
            out->v[k] = in->v[k];
            which[k] = (uint8_t)i;
        }
    }
}

BODY void eltwise_forward_many(const eltwise_args *a, dlc_dtype type, int width,
                               int64_t at) {
    raw which = {{0}};
    pack out = load(type, width, a->in[0], at), second = out;
    if (a->inputs > 1) /* issue both loads at once */
        second = load(type, width, a->in[1], at);
    for (int k = 0; k < width; k++)
        out.v[k] *= a->factor[0];
    if (a->inputs > 1)
        eltwise_combine(a, width, 1, &second, &out, which.byte);
    for (int32_t i = 2; i < a->inputs; i++) {
        const pack in = load(type, width, a->in[i], at);
        eltwise_combine(a, width, i, &in, &out, which.byte);
    }
    for (int k = 0; k < width && a->bounded; k++)
        out.v[k] = bounds_apply(&a->limit, out.v[k]);
    store(type, width, a->to, at, out);
    if (a->operation == ELTWISE_MAX && a->which)
        copy_aligned((size_t)width, a->which + at, which.byte);
}

BODY void eltwise_gradient(const eltwise_args *a, dlc_dtype type, int width, int64_t at,
                           int32_t i, const pack *diff, const uint8_t *which) {
    pack to = *diff;
    for (int k = 0; k < width && a->operation == ELTWISE_MAX; k++)
        to.v[k] = which[k] == i ? diff->v[k] : 0;
    for (int k = 0; k < width && a->operation == ELTWISE_SUM; k++)
        to.v[k] *= a->factor[i];
    for (int32_t j = 0; j < a->inputs && a->operation == ELTWISE_PRODUCT; j++) {
        if (j == i)
            continue;
        const pack in = load(type, width, a->in[j], at);
        for (int k = 0; k < width; k++)
            to.v[k] *= in.v[k];
    }
    store(type, width, a->in_diff[i], at, to);
}

/* Is the gradient of input i already in place? */
BODY int eltwise_in_place(const eltwise_args *a, int32_t i) {
    return a->in_diff[i] == a->out_diff && !a->bounded && a->operation == ELTWISE_SUM &&
           a->factor[i] == 1;
}

BODY void eltwise_backward_many(const eltwise_args *a, dlc_dtype type, int width,
                                int64_t at) {
    raw which = {{0}};
    pack diff = load(type, width, a->out_diff, at);
    if (a->operation == ELTWISE_MAX)
        copy_aligned((size_t)width, which.byte, a->which + at);
    if (a->bounded) {
        const pack out = load(type, width, a->out, at);
        for (int k = 0; k < width; k++)
            diff.v[k] = bounds_gradient(&a->limit, out.v[k], diff.v[k]);
    }
    for (int32_t i = 0; i < a->inputs; i++)
        if (a->in_diff[i] && !eltwise_in_place(a, i))
            eltwise_gradient(a, type, width, at, i, &diff, which.byte);
}

/* Called by the threads of vector_range_of(type, count). */
BODY void eltwise_forward_at(const eltwise_args *a, dlc_dtype type, int64_t item) {
    const vector_range s = vector_range_of(type, a->count);
    if (item < s.wide)
        eltwise_forward_many(a, type, s.width, item * s.width);
    else if (item < s.items)
        eltwise_forward_many(a, type, 1, vector_range_rest(s, item));
}

BODY void eltwise_backward_at(const eltwise_args *a, dlc_dtype type, int64_t item) {
    const vector_range s = vector_range_of(type, a->count);
    if (item < s.wide)
        eltwise_backward_many(a, type, s.width, item * s.width);
    else if (item < s.items)
        eltwise_backward_many(a, type, 1, vector_range_rest(s, item));
}

#endif
