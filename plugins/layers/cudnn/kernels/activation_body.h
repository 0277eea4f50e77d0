/* The arithmetic of activations. */
#ifndef DLCORE_CUDNN_ACTIVATION_BODY_H
#define DLCORE_CUDNN_ACTIVATION_BODY_H

#include "../../shared/bounds.h"
#include "body.h"

typedef enum activation_kind {
    /* Backward reads the output. */
    ACT_BOUNDS = 1, /* relu, clip */
    ACT_SIGMOID,
    ACT_TANH,
    ACT_ELU,
    /* Backward reads the input. */
    ACT_GELU_ERF,
    ACT_GELU_TANH,
    ACT_SWISH,
    ACT_SOFTPLUS,
    ACT_MISH,
    ACT_HARDSWISH,
    ACT_ABS,
} activation_kind;

BODY int activation_by_output(activation_kind kind) {
    return kind <= ACT_ELU;
}

typedef struct activation_args {
    activation_kind kind;
    dlc_dtype type;
    int64_t count;
    float alpha;  /* of elu; beta of swish */
    bounds limit; /* rounded to the type */
    const void *in;
    void *out;
    /* backward */
    const void *read; /* output or input, see activation_by_output */
    const void *out_diff;
    void *in_diff;
} activation_args;

BODY float sigmoid_of(float x) {
    return 1 / (1 + expf(-x));
}

BODY float softplus_of(float x) {
    return x > 20 ? x : log1pf(expf(x));
}

#define GELU_ROOT 0.79788456080286535588f /* sqrt(2 / pi) */
#define GELU_CUBE 0.044715f
#define ROOT_HALF 0.70710678118654752440f
#define ROOT_INVERSE_2PI 0.39894228040143267794f

BODY float activation_value(const activation_args *a, float x) {
    switch (a->kind) {
    case ACT_BOUNDS:
        return bounds_apply(&a->limit, x);
    case ACT_SIGMOID:
        return sigmoid_of(x);
    case ACT_TANH:
        return tanhf(x);
    case ACT_ELU:
        return x > 0 ? x : a->alpha * expm1f(x);
    case ACT_GELU_ERF:
        return 0.5f * x * (1 + erff(x * ROOT_HALF));
    case ACT_GELU_TANH:
        return 0.5f * x * (1 + tanhf(GELU_ROOT * (x + GELU_CUBE * x * x * x)));
    case ACT_SWISH:
        return x * sigmoid_of(a->alpha * x);
    case ACT_SOFTPLUS:
        return softplus_of(x);
    case ACT_MISH:
        return x * tanhf(softplus_of(x));
    case ACT_HARDSWISH:
        return x * fminf(fmaxf(x + 3, 0), 6) / 6;
    case ACT_ABS:
        return fabsf(x);
    }
    return x;
}

BODY float gelu_tanh_slope(float x) {
    float t = tanhf(GELU_ROOT * (x + GELU_CUBE * x * x * x));
    float inner = GELU_ROOT * (1 + 3 * GELU_CUBE * x * x);
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * inner;
}

BODY float mish_slope(float x) {
    float t = tanhf(softplus_of(x));
    return t + x * (1 - t * t) * sigmoid_of(x);
}

/* The gradient of the input, given `v`: the output or the input. */
BODY float activation_gradient(const activation_args *a, float v, float diff) {
    float s;
    switch (a->kind) {
    case ACT_BOUNDS:
        return bounds_gradient(&a->limit, v, diff);
    case ACT_SIGMOID:
        return diff * v * (1 - v);
    case ACT_TANH:
        return diff * (1 - v * v);
    case ACT_ELU:
        return v > 0 ? diff : diff * (v + a->alpha);
    case ACT_GELU_ERF:
        return diff * (0.5f * (1 + erff(v * ROOT_HALF)) +
                       v * ROOT_INVERSE_2PI * expf(-0.5f * v * v));
    case ACT_GELU_TANH:
        return diff * gelu_tanh_slope(v);
    case ACT_SWISH:
        s = sigmoid_of(a->alpha * v);
        return diff * (s + a->alpha * v * s * (1 - s));
    case ACT_SOFTPLUS:
        return diff * sigmoid_of(v);
    case ACT_MISH:
        return diff * mish_slope(v);
    case ACT_HARDSWISH:
        return v <= -3 ? 0 : v >= 3 ? diff : diff * (2 * v + 3) / 6;
    case ACT_ABS:
        return v > 0 ? diff : v < 0 ? -diff : 0;
    }
    return diff;
}

BODY void activation_forward_many(const activation_args *a, dlc_dtype type, int width,
                                  int64_t at) {
    pack x = load(type, width, a->in, at);
    for (int k = 0; k < width; k++)
        x.v[k] = activation_value(a, x.v[k]);
    store(type, width, a->out, at, x);
}

BODY void activation_backward_many(const activation_args *a, dlc_dtype type, int width,
                                   int64_t at) {
    pack v = load(type, width, a->read, at);
    pack diff = load(type, width, a->out_diff, at);
    for (int k = 0; k < width; k++)
        diff.v[k] = activation_gradient(a, v.v[k], diff.v[k]);
    store(type, width, a->in_diff, at, diff);
}

/* Called by the threads of vector_range_of(type, count). */
BODY void activation_forward_at(const activation_args *a, dlc_dtype type,
                                int64_t item) {
    const vector_range s = vector_range_of(type, a->count);
    if (item < s.wide)
        activation_forward_many(a, type, s.width, item * s.width);
    else if (item < s.items)
        activation_forward_many(a, type, 1, vector_range_rest(s, item));
}

BODY void activation_backward_at(const activation_args *a, dlc_dtype type,
                                 int64_t item) {
    const vector_range s = vector_range_of(type, a->count);
    if (item < s.wide)
        activation_backward_many(a, type, s.width, item * s.width);
    else if (item < s.items)
        activation_backward_many(a, type, 1, vector_range_rest(s, item));
}

#endif
