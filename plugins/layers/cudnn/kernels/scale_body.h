/* Multiplies each channel by a number and adds another; their gradients are sums in two
 * steps whose order depends on the shape alone. The data is rows of channels, channels
 * last. */
#ifndef DLCORE_CUDNN_SCALE_BODY_H
#define DLCORE_CUDNN_SCALE_BODY_H

#include "warp.h"

enum {
    SCALE_ROW_THREADS = 8, /* threads that share a channel of a chunk */
    SCALE_ROWS = 128,      /* minimum rows of a chunk */
    SCALE_CHUNKS = 512     /* maximum */
};

typedef struct scale_args {
    dlc_dtype type;
    int64_t rows, channels;
    const void *from;           /* forward: in; backward: out_diff */
    void *to;                   /* out; in_diff */
    const float *factor, *bias; /* bias: NULL for none, as in backward */
    /* backward */
    const void *in;
    float *partial;                 /* two floats per chunk and channel */
    float *factor_diff, *bias_diff; /* bias_diff: NULL for none */
} scale_args;

/* The number of chunks into which the rows are divided. */
BODY int64_t scale_chunks(int64_t rows) {
    return min_i64((rows + SCALE_ROWS - 1) / SCALE_ROWS, SCALE_CHUNKS);
}

BODY int scale_width(const scale_args *s) {
    int width = width_of(s->type, 1);
    return s->channels % width == 0 ? width : 1;
}

/* Handles `width` channels of one row; `vector` counts such groups. */
BODY void scale_at(const scale_args *s, dlc_dtype type, int width, int64_t row,
                   int64_t vector) {
    int64_t channel = vector * width, at = row * s->channels + channel;
    pack v = load(type, width, s->from, at);
    for (int k = 0; k < width; k++) {
        v.v[k] *= s->factor[channel + k];
        if (s->bias)
            v.v[k] += s->bias[channel + k];
    }
    store(type, width, s->to, at, v);
}

/* The partial sums of one thread: a of the factor's gradient, b of the bias'. */
BODY pair scale_partial(const scale_args *s, dlc_dtype type, int64_t channel,
                        int64_t chunk, int lane) {
    int64_t chunks = scale_chunks(s->rows), each = (s->rows + chunks - 1) / chunks;
    int64_t end = min_i64((chunk + 1) * each, s->rows);
    pair sum = {0, 0};
    for (int64_t r = chunk * each + lane; r < end; r += SCALE_ROW_THREADS) {
        float diff = load_one(type, s->from, r * s->channels + channel);
        sum.a += diff * load_one(type, s->in, r * s->channels + channel);
        sum.b += diff;
    }
    return sum;
}

BODY void scale_partial_done(const scale_args *s, int64_t channel, int64_t chunk,
                             pair sum) {
    s->partial[2 * (chunk * s->channels + channel)] = sum.a;
    s->partial[2 * (chunk * s->channels + channel) + 1] = sum.b;
}

/* Adds up the chunks of one channel. */
BODY void scale_sum_at(const scale_args *s, int64_t channel) {
    int64_t chunks = scale_chunks(s->rows);
    pair sum = {0, 0};
    for (int64_t k = 0; k < chunks; k++) {
        const float *part = s->partial + 2 * (k * s->channels + channel);
        pair one = {part[0], part[1]};
        sum = pair_sum(sum, one);
    }
    s->factor_diff[channel] = sum.a;
    if (s->bias_diff)
        s->bias_diff[channel] = sum.b;
}

#endif
