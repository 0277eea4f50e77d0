/* Average pooling with overhanging windows. An image is a set of planes, each processed
 * separately: one plane of all channels if these are innermost, else one plane per
 * channel. */
#include "pool_average.h"

#include <string.h>

pool_average pool_average_plan(const sliding_window *window, const dlc_shape *in,
                               const dlc_shape *out, int last) {
    pool_average pool = {
        .window = *window,
        .batch = in->dims[0],
        .channels = in->dims[1],
        .in = {in->dims[2], in->dims[3]},
        .out = {out->dims[2], out->dims[3]},
        .last = last,
    };
    return pool;
}

/* The part of a window inside the image, and 1 / the area that counts. */
typedef struct part {
    int64_t top, bottom, left, right;
    float scale;
} part;

static int64_t min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static part part_of(const pool_average *pool, int64_t y, int64_t x) {
    const sliding_window *w = &pool->window;
    int64_t top = y * w->stride[0] - w->pad_begin[0];
    int64_t left = x * w->stride[1] - w->pad_begin[1];
    int64_t bottom = min64(top + w->kernel[0], pool->in[0] + w->pad_begin[0]);
    int64_t right = min64(left + w->kernel[1], pool->in[1] + w->pad_begin[1]);
    return (part){
        .scale = 1.0f / (float)((bottom - top) * (right - left)),
        .top = max64(top, 0),
        .left = max64(left, 0),
        .bottom = min64(bottom, pool->in[0]),
        .right = min64(right, pool->in[1]),
    };
}

static void sum_window(const pool_average *pool, part p, int64_t width,
                       const float *plane, float *sum) {
    memset(sum, 0, (size_t)width * sizeof(float));
    for (int64_t y = p.top; y < p.bottom; y++)
        for (int64_t x = p.left; x < p.right; x++) {
            const float *pixel = plane + (y * pool->in[1] + x) * width;
            for (int64_t c = 0; c < width; c++)
                sum[c] += pixel[c];
        }
    for (int64_t c = 0; c < width; c++)
        sum[c] *= p.scale;
}

static void distribute_window(const pool_average *pool, part p, int64_t width,
                              const float *diff, float *plane) {
    for (int64_t y = p.top; y < p.bottom; y++)
        for (int64_t x = p.left; x < p.right; x++) {
            float *pixel = plane + (y * pool->in[1] + x) * width;
            for (int64_t c = 0; c < width; c++)
                pixel[c] += diff[c] * p.scale;
        }
}

void pool_average_forward(const pool_average *pool, const float *in, float *out) {
    int64_t width = pool->last ? pool->channels : 1;
    int64_t planes = pool->last ? pool->batch : pool->batch * pool->channels;
    int64_t in_size = pool->in[0] * pool->in[1] * width;
    int64_t out_size = pool->out[0] * pool->out[1] * width;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < planes; i++)
        for (int64_t y = 0; y < pool->out[0]; y++)
            for (int64_t x = 0; x < pool->out[1]; x++)
                sum_window(pool, part_of(pool, y, x), width, in + i * in_size,
                           out + i * out_size + (y * pool->out[1] + x) * width);
}

void pool_average_backward(const pool_average *pool, const float *out_diff,
                           float *in_diff) {
    int64_t width = pool->last ? pool->channels : 1;
    int64_t planes = pool->last ? pool->batch : pool->batch * pool->channels;
    int64_t in_size = pool->in[0] * pool->in[1] * width;
    int64_t out_size = pool->out[0] * pool->out[1] * width;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < planes; i++) {
        memset(in_diff + i * in_size, 0, (size_t)in_size * sizeof(float));
        for (int64_t y = 0; y < pool->out[0]; y++)
            for (int64_t x = 0; x < pool->out[1]; x++)
                distribute_window(pool, part_of(pool, y, x), width,
                                  out_diff + i * out_size +
                                      (y * pool->out[1] + x) * width,
                                  in_diff + i * in_size);
    }
}
