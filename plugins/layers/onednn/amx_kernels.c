/* Forward and backward of convolutions and inner products by tiles (amx.h). */
#include "amx_products.h"

#include <string.h>

/* ---- Forward --------------------------------------------------------------------- */

static sweep forward_sweep(const amx_conv *c) {
    sweep s = {
        .threads = c->threads,
        .batch = c->batch,
        .group = c->group,
        .in = {c->in[0], c->in[1]},
        .in_channels = c->in_channels,
        .out = {c->out[0], c->out[1]},
        .out_channels = c->out_channels,
        .step = 1,
        .count = {c->out[0], c->out[1]},
        .taps = {c->kernel[0], c->kernel[1]},
        .stride = c->stride,
        .pad = {(ptrdiff_t)c->pad[0], (ptrdiff_t)c->pad[1]},
    };
    sweep_plan(&s);
    return s;
}

static void forward(const amx_conv *c, const bf16 *in, const float *weights,
                    const float *bias, const bounds *limit, bf16 *out, void *space) {
    const sweep s = forward_sweep(c);
    const size_t row = c->kernel[1] * s.channels, window = c->kernel[0] * row;
    const sweep_weights w = {
        .at = weights,
        .row = (ptrdiff_t)row,
        .column = (ptrdiff_t)s.channels,
        .channel = 1,
        .result = (ptrdiff_t)window,
        .group = (ptrdiff_t)(window * s.results),
    };
    PER_ISA(sweep_run_)(&s, in, &w, bias, limit, 0, out, space);
}

/* ---- Backward to the data -------------------------------------------------------- */

/* Of one dimension: pixels i with i + pad = stride * q + remainder, q from `low` on,
 * are reached by the taps remainder + stride * n, from output q - n. */
typedef struct residue {
    size_t low, count; /* of q */
    size_t first;      /* pixel of the first q */
    size_t taps;       /* 0: no tap reaches these pixels */
} residue;

static residue residue_of(const amx_conv *c, int d, size_t remainder) {
    const size_t stride = c->stride, pad = c->pad[d];
    residue r = {0};
    r.low = pad > remainder ? ceiling(pad - remainder, stride) : 0;
    r.first = r.low * stride + remainder - pad;
    r.count = r.first < c->in[d] ? ceiling(c->in[d] - r.first, stride) : 0;
    r.taps = remainder < c->kernel[d] ? ceiling(c->kernel[d] - remainder, stride) : 0;
    return r;
}

static sweep residue_sweep(const amx_conv *c, const residue r[2]) {
    sweep s = {
        .threads = c->threads,
        .batch = c->batch,
        .group = c->group,
        .in = {c->out[0], c->out[1]},
        .in_channels = c->out_channels,
        .out = {c->in[0], c->in[1]},
        .out_channels = c->in_channels,
        .first = {r[0].first, r[1].first},
        .step = c->stride,
        .count = {r[0].count, r[1].count},
        .taps = {r[0].taps, r[1].taps},
        .stride = 1,
        .adjacent = 1,
    };
    for (int d = 0; d < 2; d++)
        s.pad[d] = (ptrdiff_t)r[d].taps - 1 - (ptrdiff_t)r[d].low;
    sweep_plan(&s);
    return s;
}

static void zero_pixels(const amx_conv *c, const residue r[2], bf16 *in_diff) {
    size_t rows = c->batch * r[0].count;
#pragma omp parallel for schedule(static)
    for (size_t n = 0; n < rows; n++) {
        size_t y = r[0].first + n % r[0].count * c->stride;
        bf16 *row = in_diff +
                    (n / r[0].count * c->in[0] + y) * c->in[1] * c->in_channels;
        for (size_t j = 0; j < r[1].count; j++)
            memset(row + (r[1].first + j * c->stride) * c->in_channels, 0,
                   c->in_channels * sizeof *row);
    }
}

static void backward_data(const amx_conv *c, const bf16 *out_diff, const float *weights,
                          int add, bf16 *in_diff, void *space) {
    const size_t channels = c->in_channels / c->group, row = c->kernel[1] * channels;
    const ptrdiff_t stride = (ptrdiff_t)c->stride;
    for (size_t n = 0; n < c->stride * c->stride; n++) {
        const size_t remainder[2] = {n / c->stride, n % c->stride};
        const residue r[2] = {residue_of(c, 0, remainder[0]),
                              residue_of(c, 1, remainder[1])};
        if (!r[0].count || !r[1].count)
            continue;
        if (!r[0].taps || !r[1].taps) {
            if (!add)
                zero_pixels(c, r, in_diff);
            continue;
        }
        const sweep s = residue_sweep(c, r);
        const size_t last[2] = {remainder[0] + (r[0].taps - 1) * c->stride,
                                remainder[1] + (r[1].taps - 1) * c->stride};
        const sweep_weights w = {
            .at = weights + last[0] * row + last[1] * channels,
            .row = -stride * (ptrdiff_t)row,
            .column = -stride * (ptrdiff_t)channels,
            .channel = (ptrdiff_t)(c->kernel[0] * row),
            .result = 1,
            .group = (ptrdiff_t)(c->kernel[0] * row * s.channels),
        };
        const bounds none = BOUNDS_NONE;
        PER_ISA(sweep_run_)(&s, out_diff, &w, NULL, &none, add, in_diff, space);
    }
}

/* ---- Space ----------------------------------------------------------------------- */

static size_t space_bytes(const amx_conv *c, int training) {
    sweep s = forward_sweep(c);
    size_t bytes = sweep_space(&s);
    if (!training)
        return bytes;
    for (size_t n = 0; n < c->stride * c->stride; n++) {
        const residue r[2] = {residue_of(c, 0, n / c->stride),
                              residue_of(c, 1, n % c->stride)};
        if (!r[0].count || !r[1].count || !r[0].taps || !r[1].taps)
            continue;
        s = residue_sweep(c, r);
        bytes = most(bytes, sweep_space(&s));
    }
    return most(bytes, gradient_space(c));
}

const amx_kernels PER_ISA(amx_) = {
    .name = ISA_NAME,
    .space_bytes = space_bytes,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weights = PER_ISA(gradient_run_),
};
