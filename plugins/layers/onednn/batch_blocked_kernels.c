/* Kernels of batch_blocked.h, compiled once for each instruction set (vectors.h).
 *
 * All three passes are products of small tiles whose sums stay in registers: ROWS
 * broadcast numbers times COLS vectors. The address of a vector is the sum of two
 * offsets, one of the tap (channel, row and column of the filter) and one of the
 * output's position, so no matrix of unrolled images is ever written.
 */
#include "batch_blocked.h"
#include "per_isa.h"
#include "register_tiles.h"
#include "vectors.h"

/* Backward weights multiplies vectors by vectors: this many of each. */
#if REGISTERS == 32
enum { GRAD_ROWS = 5, GRAD_COLS = 5 };
#else
enum { GRAD_ROWS = 3, GRAD_COLS = 4 };
#endif

/* Backward data: taps per task (of whole channels), and filters that it sums before it
 * scatters. */
enum { TASK_TAPS = 256, DEPTH = 64 };

/* ---- Sizes in floats ----------------------------------------------------- */

static size_t in_plane(const batch_blocked_conv *c) {
    return c->padded[0] * c->padded[1] * LANES;
}

static size_t out_plane(const batch_blocked_conv *c) {
    return c->positions * LANES;
}

static int is_padded(const batch_blocked_conv *c) {
    return c->pad[0] || c->pad[1];
}

/* Copies planes into the middle of zeroed, padded ones. */
static void pad_planes(const batch_blocked_conv *c, const float *plain, float *padded) {
    size_t planes = c->batch / LANES * c->in_channels;
    size_t small = c->in[0] * c->in[1] * LANES, big = in_plane(c);
    size_t row = c->in[1] * LANES, wide = c->padded[1] * LANES;
    size_t corner = c->pad[0] * wide + c->pad[1] * LANES;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < planes; i++) {
        memset(padded + i * big, 0, big * sizeof(float));
        for (size_t y = 0; y < c->in[0]; y++)
            memcpy(padded + i * big + corner + y * wide, plain + i * small + y * row,
                   row * sizeof(float));
    }
}

static void crop_planes(const batch_blocked_conv *c, size_t planes, const float *padded,
                        float *plain) {
    size_t small = c->in[0] * c->in[1] * LANES, big = in_plane(c);
    size_t row = c->in[1] * LANES, wide = c->padded[1] * LANES;
    size_t corner = c->pad[0] * wide + c->pad[1] * LANES;
    for (size_t i = 0; i < planes; i++)
        for (size_t y = 0; y < c->in[0]; y++)
            memcpy(plain + i * small + y * row, padded + i * big + corner + y * wide,
                   row * sizeof(float));
}

/* ---- Forward and backward data: weights times images ---------------------------- */

/* A row of tiles: `rows` numbers of each depth times all positions. */
typedef struct product {
    const batch_blocked_conv *conv;
    size_t depth;
    const float *weights; /* of row r and depth k: weights[r * row + k * next] */
    size_t row, next;
    const float *bias; /* of each row; NULL: zero */
    const int *tap;    /* of each row (backward data) */
} product;

/* clang-format off */

/* sum[r][j] += over k of weight(r, k) * from[j][offset(k)]; offsets are a table, or
 * multiples of `plane` if that is NULL. */
ALWAYS void multiply(size_t rows, const product *p, const float *const *from,
                     const int *offset, size_t plane, vec sum[ROWS][COLS]) {
    const float *w = p->weights;
    for (size_t k = 0; k < p->depth; k++, w += p->next) {
        size_t at = offset ? (size_t)offset[k] : k * plane;
        vec x[COLS];
        EACH(j, COLS)
            x[j] = *vec_at(from[j] + at);
        EACH(r, rows)
            EACH(j, COLS)
                sum[r][j] += w[r * p->row] * x[j];
    }
}

ALWAYS vec rectified(vec v, float slope) {
    vec low = {0};
    if (slope != 0)
        low = v * slope;
    return choose(less_equal(v, (vec){0}), low, v); /* NaN stays NaN */
}

/* Columns beyond the last position repeat it, and are not stored. */
ALWAYS void forward_tile(size_t rows, const product *p, size_t first, const float *in,
                         float *out) {
    const batch_blocked_conv *c = p->conv;
    size_t cols = least(COLS, c->positions - first), plane = out_plane(c);
    const float *from[COLS];
    vec sum[ROWS][COLS];
    out += first * LANES;
    EACH(j, COLS)
        from[j] = in + c->position[first + least(j, cols - 1)];
    EACH(r, rows)
        EACH(j, COLS)
            sum[r][j] = (vec){0} + (p->bias ? p->bias[r] : 0);
    multiply(rows, p, from, c->tap, 0, sum);
    if (c->relu)
        EACH(r, rows)
            EACH(j, COLS)
                sum[r][j] = rectified(sum[r][j], c->slope);
    EACH(r, rows)
        EACH(j, COLS)
            if (j < cols)
                *vec_to(out + r * plane + j * LANES) = sum[r][j];
}

/* in_diff[tap + position] += sum over filters of weight[filter][tap] *
 * out_diff[filter][position]; `out_diff` holds the tile's columns only. */
ALWAYS void backward_tile(size_t rows, const product *p, size_t first,
                          const float *out_diff, float *in_diff) {
    const batch_blocked_conv *c = p->conv;
    size_t cols = least(COLS, c->positions - first);
    const float *from[COLS];
    vec sum[ROWS][COLS];
    EACH(j, COLS)
        from[j] = out_diff + j * LANES;
    EACH(r, rows)
        EACH(j, COLS)
            sum[r][j] = (vec){0};
    multiply(rows, p, from, NULL, (size_t)COLS * LANES, sum);
    EACH(r, rows)
        EACH(j, COLS)
            if (j < cols)
                *vec_to(in_diff + p->tap[r] + c->position[first + j]) += sum[r][j];
}

/* clang-format on */

/* One function for each number of rows, so that each keeps its sums in registers. */
typedef void row_fn(const product *p, size_t first, const float *from, float *to);
#define ROW(tile, rows) \
    static __attribute__((noinline)) void tile##_##rows( \
        const product *p, size_t first, const float *from, float *to) { \
        tile(rows, p, first, from, to); \
    }
/* clang-format off */
#define ROWS_OF(tile) \
    ROW(tile, 1) ROW(tile, 2) ROW(tile, 3) ROW(tile, 4) ROW(tile, 5) ROW(tile, 6) \
    static row_fn *const tile##_rows[ROWS] = { \
        tile##_1, tile##_2, tile##_3, tile##_4, tile##_5, tile##_6};
/* clang-format on */
ROWS_OF(forward_tile)
ROWS_OF(backward_tile)

static void forward(const batch_blocked_conv *c, const float *in, const float *weights,
                    const float *bias, float *out, float *space) {
    size_t filters = c->out_channels / c->group, block = equal_block(filters, ROWS);
    size_t image = c->in_channels / c->group * in_plane(c); /* of one group */
    if (is_padded(c)) {
        pad_planes(c, in, space);
        in = space;
    }
#pragma omp parallel for collapse(3) schedule(static)
    for (size_t n = 0; n < c->batch / LANES; n++)
        for (size_t g = 0; g < c->group; g++)
            for (size_t f = 0; f < filters; f += block) {
                size_t filter = g * filters + f;
                const product p = {.conv = c,
                                   .depth = c->taps,
                                   .weights = weights + filter * c->taps,
                                   .row = c->taps,
                                   .next = 1,
                                   .bias = bias ? bias + filter : NULL};
                for (size_t j = 0; j < c->positions; j += COLS)
                    forward_tile_rows[least(block, filters - f) - 1](
                        &p, j, in + (n * c->group + g) * image,
                        out + (n * c->out_channels + filter) * out_plane(c));
            }
}

/* Adds the contribution of `filters` filters to the gradients of an image's taps
 * `first` .. `first + taps`. Planes may be a power of two apart, which causes cache
 * conflicts: the columns of a tile are first copied side by side. */
static void scatter(const batch_blocked_conv *c, size_t first, size_t taps,
                    size_t filters, const float *weights, const float *out_diff,
                    float *in_diff) {
    vec columns[DEPTH * COLS];
    size_t block = equal_block(taps, ROWS);
    for (size_t j = 0; j < c->positions; j += COLS) {
        size_t cols = least(COLS, c->positions - j);
        for (size_t f = 0; f < filters; f++)
            for (size_t i = 0; i < COLS; i++)
                columns[f * COLS + i] = *vec_at(out_diff + f * out_plane(c) +
                                                (j + least(i, cols - 1)) * LANES);
        for (size_t t = first; t < first + taps; t += block) {
            const product p = {.conv = c,
                               .depth = filters,
                               .weights = weights + t,
                               .row = 1,
                               .next = c->taps,
                               .tap = c->tap + t};
            backward_tile_rows[least(block, first + taps - t) - 1](
                &p, j, (const float *)columns, in_diff);
        }
    }
}

/* A task owns whole channels, since their taps overlap. */
static void backward_data(const batch_blocked_conv *c, const float *out_diff,
                          const float *weights, float *in_diff, float *space) {
    size_t filters = c->out_channels / c->group, channels = c->in_channels / c->group;
    size_t area = c->kernel[0] * c->kernel[1], plane = in_plane(c);
    size_t most = area < TASK_TAPS ? TASK_TAPS / area : 1;
    size_t small = c->in[0] * c->in[1] * LANES;
    float *to = is_padded(c) ? space : in_diff;
#pragma omp parallel for collapse(3) schedule(static)
    for (size_t n = 0; n < c->batch / LANES; n++)
        for (size_t g = 0; g < c->group; g++)
            for (size_t i = 0; i < channels; i += most) {
                size_t count = least(most, channels - i);
                size_t image = (n * c->group + g) * channels;
                memset(to + (image + i) * plane, 0, count * plane * sizeof(float));
                for (size_t f = 0; f < filters; f += DEPTH) {
                    size_t filter = g * filters + f;
                    scatter(c, i * area, count * area, least(DEPTH, filters - f),
                            weights + filter * c->taps,
                            out_diff + (n * c->out_channels + filter) * out_plane(c),
                            to + image * plane);
                }
                if (to != in_diff)
                    crop_planes(c, count, to + (image + i) * plane,
                                in_diff + (image + i) * small);
            }
}

/* ---- Backward weights: images times gradients ----------------------------------- */

/* Adds halves, then halves of those: the order does not depend on the compiler. */
static float lane_sum(vec v) {
    float a[LANES];
    memcpy(a, &v, sizeof a);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            a[i] += a[i + half];
    return a[0];
}

/* clang-format off */

/* weights_diff[filter][tap] of one tile; SIMD lanes are added after all images and
 * positions. Columns beyond the last tap repeat it, and are not stored. */
ALWAYS void gradient_tile(size_t rows, const batch_blocked_conv *c, size_t first,
                          const float *in, const float *out_diff, float *diff) {
    size_t cols = least(GRAD_COLS, c->taps - first), plane = out_plane(c);
    const int *position = c->position;
    vec sum[GRAD_ROWS][GRAD_COLS];
    EACH(r, rows)
        EACH(t, GRAD_COLS)
            sum[r][t] = (vec){0};
    for (size_t n = 0; n < c->batch / LANES; n++) {
        const float *from[GRAD_COLS];
        EACH(t, GRAD_COLS)
            from[t] = in + c->tap[first + least(t, cols - 1)];
        for (size_t j = 0; j < c->positions; j++) {
            vec d[GRAD_ROWS];
            EACH(r, rows)
                d[r] = *vec_at(out_diff + r * plane + j * LANES);
            EACH(t, GRAD_COLS) {
                vec x = *vec_at(from[t] + position[j]);
                EACH(r, rows)
                    sum[r][t] += d[r] * x;
            }
        }
        in += c->in_channels * in_plane(c);
        out_diff += c->out_channels * plane;
    }
    EACH(r, rows)
        EACH(t, GRAD_COLS)
            if (t < cols)
                diff[r * c->taps + t] = lane_sum(sum[r][t]);
}

/* clang-format on */

typedef void gradient_fn(const batch_blocked_conv *c, size_t first, const float *in,
                         const float *out_diff, float *diff);
#define GRADIENT(rows) \
    static __attribute__((noinline)) void gradient_##rows( \
        const batch_blocked_conv *c, size_t first, const float *in, \
        const float *out_diff, float *diff) { \
        gradient_tile(rows, c, first, in, out_diff, diff); \
    }
GRADIENT(1)
GRADIENT(2)
GRADIENT(3)
#if REGISTERS == 32
GRADIENT(4)
GRADIENT(5)
static gradient_fn *const gradient_rows[GRAD_ROWS] = {
    gradient_1, gradient_2, gradient_3, gradient_4, gradient_5};
#else
static gradient_fn *const gradient_rows[GRAD_ROWS] = {gradient_1, gradient_2,
                                                      gradient_3};
#endif

static float bias_gradient(const batch_blocked_conv *c, const float *out_diff) {
    vec sum = {0};
    for (size_t n = 0; n < c->batch / LANES; n++) {
        const float *plane = out_diff + n * c->out_channels * out_plane(c);
        for (size_t j = 0; j < c->positions; j++)
            sum += *vec_at(plane + j * LANES);
    }
    return lane_sum(sum);
}

/* Threads split the weights, so there are no partial sums to add. */
static void backward_weights(const batch_blocked_conv *c, const float *in,
                             const float *out_diff, float *weights_diff,
                             float *bias_diff, const float *space) {
    size_t filters = c->out_channels / c->group;
    size_t block = equal_block(filters, GRAD_ROWS);
    size_t image = c->in_channels / c->group * in_plane(c);
    if (is_padded(c))
        in = space;
#pragma omp parallel for collapse(3) schedule(static)
    for (size_t g = 0; g < c->group; g++)
        for (size_t f = 0; f < filters; f += block)
            for (size_t t = 0; t < c->taps; t += GRAD_COLS) {
                size_t rows = least(block, filters - f), filter = g * filters + f;
                const float *diff = out_diff + filter * out_plane(c);
                /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): 1 .. GRAD_ROWS */
                gradient_rows[rows - 1](c, t, in + g * image, diff,
                                        weights_diff + filter * c->taps + t);
                for (size_t r = 0; bias_diff && t == 0 && r < rows; r++)
                    bias_diff[filter + r] = bias_gradient(c, diff + r * out_plane(c));
            }
}

const batch_blocked_kernels PER_ISA(batch_blocked_) = {
    .name = ISA_NAME,
    .lanes = LANES,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weights = backward_weights,
};
