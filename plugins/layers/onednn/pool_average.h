/* Averages of windows that may overhang the padded image, with Caffe's divisor: the
 * window's area inside the padded image. */
#ifndef ONEDNN_POOL_AVERAGE_H
#define ONEDNN_POOL_AVERAGE_H

#include "onednn.h"

typedef struct pool_average {
    sliding_window window;
    int64_t batch, channels, in[2], out[2];
    int last; /* channels last; else plain */
} pool_average;

pool_average pool_average_plan(const sliding_window *window, const dlc_shape *in,
                               const dlc_shape *out, int last);
void pool_average_forward(const pool_average *pool, const float *in, float *out);
void pool_average_backward(const pool_average *pool, const float *out_diff,
                           float *in_diff);

#endif
