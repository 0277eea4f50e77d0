/* Kernels of colours.h, compiled once for each instruction set (vectors.h).
 *
 * A unit is some rows of the output of one image. The rows of the image under them are
 * copied to where they have a margin for the padding; the taps of a row of the window
 * are then adjacent, and a tile of them times two vectors of filters stays in registers
 * over all pixels of the unit.
 */
#include "colours.h"
#include "per_isa.h"
#include "register_tiles.h"
#include "vectors.h"

#include <omp.h>

/* A tile of sums is some taps times so many vectors of filters. */
#if REGISTERS == 32
enum { TILE_TAPS = 13 };
#else
enum { TILE_TAPS = 6 };
#endif
enum { TILE_VECTORS = 2, UNIT_PIXELS = 128, MOST_PARTS = 32, LINE_FLOATS = 16 };

/* As EACH, of more iterations. */
#define EACH_TAP(i, count) \
    _Pragma("GCC unroll 16") for (size_t i = 0; (i) < (count); (i)++)

/* ---- Sizes ---------------------------------------------------------------------- */

/* Of a row of the window. */
static size_t run_of(const colours_conv *c) {
    return c->kernel[1] * c->channels;
}

static size_t taps_of(const colours_conv *c) {
    return c->kernel[0] * run_of(c);
}

static size_t rounded(size_t floats) {
    return ceiling(floats, LINE_FLOATS) * LINE_FLOATS;
}

/* Rows of the output. */
static size_t unit_rows(const colours_conv *c) {
    return most(1, least(c->out[0], UNIT_PIXELS / c->out[1]));
}

/* What is copied for a unit, along one axis: of pixels, or of rows. */
static size_t width_of(const colours_conv *c, int axis, size_t outputs) {
    return (outputs - 1) * c->stride[axis] + c->kernel[axis];
}

static size_t copy_row(const colours_conv *c) {
    return rounded(width_of(c, 1, c->out[1]) * c->channels);
}

static size_t thread_floats(const colours_conv *c) {
    return width_of(c, 0, unit_rows(c)) * copy_row(c);
}

static size_t units_of_image(const colours_conv *c) {
    return ceiling(c->out[0], unit_rows(c));
}

static size_t parts_of(const colours_conv *c) {
    return least(MOST_PARTS, c->images * units_of_image(c));
}

static size_t sums_of(const colours_conv *c) {
    return (taps_of(c) + 1) * c->filters;
}

static size_t space_bytes(const colours_conv *c) {
    return (parts_of(c) * sums_of(c) + c->threads * thread_floats(c)) * sizeof(float);
}

/* ---- Sums ----------------------------------------------------------------------- */

/* The rows of the image under `rows` rows of windows. */
static void copy_rows(const colours_conv *c, const float *in, size_t first, size_t rows,
                      float *to) {
    const size_t row = copy_row(c), left = c->pad[1] * c->channels;
    const size_t inside = least(c->in[1] * c->channels, row - left);
    for (size_t i = 0; i < width_of(c, 0, rows); i++, to += row) {
        size_t y = first * c->stride[0] + i - c->pad[0]; /* may wrap around */
        size_t taken = y < c->in[0] ? inside : 0;
        memset(to, 0, left * sizeof *to);
        memcpy(to + left, in + (taken ? y : 0) * c->in[1] * c->channels,
               taken * sizeof *to);
        memset(to + left + taken, 0, (row - left - taken) * sizeof *to);
    }
}

/* The pixels of a unit: rows and columns, how far apart they are in the copied rows and
 * in the gradient, and the gradients of the first pixel. soon: what is fetched on the
 * way. */
typedef struct pixels {
    size_t rows, columns, row_step, column_step, step;
    const float *vector[TILE_VECTORS], *soon;
} pixels;

/* clang-format off */

ALWAYS void tile(size_t taps, const float *copy, const pixels *p, float *sums,
                 size_t filters) {
    const float *a = p->vector[0], *b = p->vector[1], *soon = p->soon;
    const size_t step = p->step, column_step = p->column_step;
    vec sum[TILE_TAPS][TILE_VECTORS];
    EACH_TAP(t, taps)
        EACH(v, TILE_VECTORS)
            sum[t][v] = floats_at(sums + t * filters + v * LANES);
    for (size_t y = 0; y < p->rows; y++) {
        const float *x = copy + y * p->row_step;
        for (size_t i = p->columns; i; i--, x += column_step) {
            const vec d[TILE_VECTORS] = {floats_at(a), floats_at(b)};
            fetch_ahead(soon, sizeof(vec));
            EACH_TAP(t, taps)
                EACH(v, TILE_VECTORS)
                    sum[t][v] += x[t] * d[v];
            a += step;
            b += step;
            soon += step;
        }
    }
    EACH_TAP(t, taps)
        EACH(v, TILE_VECTORS)
            floats_to(sums + t * filters + v * LANES, sum[t][v]);
}

/* clang-format on */

/* One function for each number of taps, so that each keeps its sums in registers. */
typedef void tile_fn(const float *copy, const pixels *p, float *sums, size_t filters);
#define TILE(taps) \
    static __attribute__((noinline)) void tile_##taps( \
        const float *copy, const pixels *p, float *sums, size_t filters) { \
        tile(taps, copy, p, sums, filters); \
    }
/* clang-format off */
TILE(1) TILE(2) TILE(3) TILE(4) TILE(5) TILE(6)
#if REGISTERS == 32
TILE(7) TILE(8) TILE(9) TILE(10) TILE(11) TILE(12) TILE(13)
#endif
static tile_fn *const tiles[TILE_TAPS] = {
    tile_1, tile_2, tile_3, tile_4, tile_5, tile_6,
#if REGISTERS == 32
    tile_7, tile_8, tile_9, tile_10, tile_11, tile_12, tile_13,
#endif
};
/* clang-format on */

/* Where the vector that begins with filter `f` is in the gradients of an image. */
static size_t vector_at(const colours_conv *c, size_t f) {
    return f / c->block * c->out[0] * c->out[1] * c->block + f % c->block;
}

static void add_biases(const pixels *p, float *sums) {
    EACH(v, TILE_VECTORS) {
        vec sum = floats_at(sums + v * LANES);
        for (size_t i = 0; i < p->rows * p->columns; i++)
            sum += floats_at(p->vector[v] + i * p->step);
        floats_to(sums + v * LANES, sum);
    }
}

static void add_unit(const colours_conv *c, const float *in, const float *out_diff,
                     size_t unit, float *sums, float *copy) {
    const size_t image = unit / units_of_image(c), run = run_of(c);
    const size_t first = unit % units_of_image(c) * unit_rows(c);
    const size_t block = equal_block(run, TILE_TAPS), row = copy_row(c);
    pixels p = {.rows = least(unit_rows(c), c->out[0] - first),
                .columns = c->out[1],
                .row_step = c->stride[0] * row,
                .column_step = c->stride[1] * c->channels,
                .step = c->block};
    copy_rows(c, in + image * c->in[0] * c->in[1] * c->channels, first, p.rows, copy);
    out_diff += image * c->out[0] * c->out[1] * c->filters +
                first * c->out[1] * c->block;
    const size_t filters = (size_t)TILE_VECTORS * LANES; /* of a tile */
    for (size_t f = 0; f < c->filters; f += filters) {
        EACH(v, TILE_VECTORS)
        p.vector[v] = out_diff + vector_at(c, f + v * LANES);
        add_biases(&p, sums + taps_of(c) * c->filters + f);
        for (size_t k = 0; k < c->kernel[0]; k++)
            for (size_t t = 0; t < run; t += block) {
                /* Two tiles fetch a vector each of the next unit's pixels. */
                size_t v = k < TILE_VECTORS && t == 0 ? k : TILE_VECTORS;
                p.soon = v < TILE_VECTORS ? p.vector[v] + p.rows * p.columns * p.step
                                          : p.vector[0];
                // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): 1 to TILE_TAPS
                tiles[least(block, run - t) - 1](copy + k * row + t, &p,
                                                 sums + (k * run + t) * c->filters + f,
                                                 c->filters);
            }
    }
}

/* Adds the parts of a vector of filters, in order, into the first. */
static void add_parts(const colours_conv *c, size_t f, float *sums, float *weights_diff,
                      float *bias_diff) {
    const size_t taps = taps_of(c), parts = parts_of(c), area = taps / c->channels;
    for (size_t t = 0; t <= taps; t++) {
        const float *from = sums + t * c->filters + f;
        float total[LANES];
        vec sum = floats_at(from);
        for (size_t p = 1; p < parts; p++)
            sum += floats_at(from + p * sums_of(c));
        memcpy(total, &sum, sizeof total);
        size_t plain = t % c->channels * area + t / c->channels;
        for (size_t i = 0; i < LANES; i++)
            if (t < taps)
                weights_diff[(f + i) * taps + plain] = total[i];
            else if (bias_diff)
                bias_diff[f + i] = total[i];
    }
}

static void backward_weights(const colours_conv *c, const float *in,
                             const float *out_diff, float *weights_diff,
                             float *bias_diff, float *space) {
    const size_t parts = parts_of(c), units = c->images * units_of_image(c);
    float *threads = space + parts * sums_of(c);
#pragma omp parallel num_threads((int)c->threads)
    {
        float *copy = threads + (size_t)omp_get_thread_num() * thread_floats(c);
#pragma omp for schedule(static)
        for (size_t p = 0; p < parts; p++) {
            float *sums = space + p * sums_of(c);
            memset(sums, 0, sums_of(c) * sizeof *sums);
            for (size_t u = units * p / parts; u < units * (p + 1) / parts; u++)
                add_unit(c, in, out_diff, u, sums, copy);
        }
#pragma omp for schedule(static)
        for (size_t f = 0; f < c->filters; f += LANES)
            add_parts(c, f, space, weights_diff, bias_diff);
    }
}

const colours_kernels PER_ISA(colours_) = {
    .name = ISA_NAME,
    .lanes = LANES,
    .filters = (size_t)TILE_VECTORS * LANES,
    .space_bytes = space_bytes,
    .backward_weights = backward_weights,
};
