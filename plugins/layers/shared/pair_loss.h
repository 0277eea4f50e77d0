/* Losses that compare each value with a target of its own: sigmoid_cross_entropy_loss
 * and euclidean_loss. */
#ifndef LAYERS_SHARED_PAIR_LOSS_H
#define LAYERS_SHARED_PAIR_LOSS_H

#include <dlcore/tensor.h>

#include <math.h>

#include "host_device.h"

typedef enum pair_loss_kind { PAIR_LOSS_SIGMOID, PAIR_LOSS_EUCLIDEAN } pair_loss_kind;

typedef struct pair_loss_args {
    pair_loss_kind kind;
    int64_t samples, each; /* values of a sample */
    int per_element;       /* the mean is taken over elements and not over samples */
    dlc_dtype type;        /* of the targets: DLC_F32 or DLC_I32 */
    int has_ignore;
    int32_t ignore;
    const float *values;
    const void *targets;
    float *part; /* {sum, count} of each sample */
    float *out;  /* {sum, count} */
    /* backward */
    float loss_scale;
    const float *loss_scale_at; /* another factor, in device memory; NULL: none */
    float *diff;
} pair_loss_args;

/* The target of element i; 0 if it does not count: NaN, DLC_LABEL_NONE or ignored. */
BODY int pair_loss_target(const pair_loss_args *l, int64_t i, float *target) {
    if (l->type == DLC_I32) {
        int32_t label = ((const int32_t *)l->targets)[i];
        *target = (float)label;
        return label != DLC_LABEL_NONE && !(l->has_ignore && label == l->ignore);
    }
    *target = ((const float *)l->targets)[i];
    return *target == *target && !(l->has_ignore && *target == (float)l->ignore);
}

/* Caffe's SigmoidCrossEntropyLoss: -t log p - (1 - t) log(1 - p) of p = 1 / (1 +
 * exp(-x)), in a form in which nothing overflows; and EuclideanLoss: (x - t)^2 / 2. */
BODY float pair_loss_value(pair_loss_kind kind, float x, float t) {
    if (kind == PAIR_LOSS_SIGMOID)
        return (x > 0 ? x : 0) - x * t + log1pf(expf(-fabsf(x)));
    return 0.5f * (x - t) * (x - t);
}

BODY float pair_loss_slope(pair_loss_kind kind, float x, float t) {
    return kind == PAIR_LOSS_SIGMOID ? 1 / (1 + expf(-x)) - t : x - t;
}

typedef struct pair_loss_sum {
    double sum;
    int64_t count; /* of elements */
} pair_loss_sum;

/* Every `step`-th element of a sample, from the `first` on. */
BODY pair_loss_sum pair_loss_part(const pair_loss_args *l, int64_t sample,
                                  int64_t first, int64_t step) {
    pair_loss_sum s = {0, 0};
    for (int64_t k = first; k < l->each; k += step) {
        int64_t i = sample * l->each + k;
        float target;
        if (!pair_loss_target(l, i, &target))
            continue;
        s.sum += (double)pair_loss_value(l->kind, l->values[i], target);
        s.count++;
    }
    return s;
}

BODY void pair_loss_sample_done(const pair_loss_args *l, int64_t sample,
                                pair_loss_sum s) {
    l->part[2 * sample] = (float)s.sum;
    l->part[2 * sample + 1] = l->per_element ? (float)s.count : s.count > 0;
}

/* The total, of one thread. */
BODY void pair_loss_total(const pair_loss_args *l) {
    double sum = 0, count = 0;
    for (int64_t n = 0; n < l->samples; n++) {
        sum += (double)l->part[2 * n];
        count += (double)l->part[2 * n + 1];
    }
    l->out[0] = (float)sum;
    l->out[1] = (float)count;
}

/* The gradient of element i. */
BODY void pair_loss_gradient(const pair_loss_args *l, int64_t i) {
    float scale = l->loss_scale_at ? *l->loss_scale_at * l->loss_scale : l->loss_scale;
    float target, count = l->out[1];
    int counts = pair_loss_target(l, i, &target) && count > 0;
    l->diff[i] = counts ? pair_loss_slope(l->kind, l->values[i], target) * scale / count
                        : 0;
}

#endif
