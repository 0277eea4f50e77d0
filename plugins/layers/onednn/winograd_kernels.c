/* Kernels of winograd.h, compiled once for each instruction set (vectors.h). Tiles are
 * processed in blocks, so that data between the transforms stays in the cache. */
#include "winograd.h"

#include <omp.h>

#include "per_isa.h"
#include "winograd_tiles.h"

enum {
    /* Size of a block of tiles, for an L2 cache of 1 MB. */
    NEAR_BYTES = 900 << 10,
    FEWEST_TILES = 24,
    MOST_TILES = 96,
    /* Gradient of the weights: channels of a task, tiles that it sums at once, and a
     * number of tasks that suffices for any number of threads. */
    TASK_IN = 48,
    TASK_OUT = 64,
    TASK_TILES = 48,
    TASKS = 32,
    /* Added after each point's matrix, so that equal positions of the 36 don't conflict
     * in a cache. */
    APART = LANES,
};

/* ---- Filters ------------------------------------------------------------- */

/* How a pass addresses the plain weights. */
typedef struct filters {
    const float *numbers;
    size_t to_row, from_row; /* between neighbouring channels */
    int turned;
} filters;

/* Transforms the taps from one channel to LANES others to 36 points. */
ALWAYS void filter_points(size_t r, const filters *w, size_t to, size_t from, float *at,
                          size_t apart) {
    vec g[MOST_SIDE * MOST_SIDE], half[POINTS * MOST_SIDE], points[POINTS];
    const float *taps = w->numbers + to * w->to_row + from * w->from_row;
    for (size_t t = 0; t < r * r; t++) {
        float each[LANES];
        const float *tap = taps + (w->turned ? r * r - 1 - t : t);
        for (size_t i = 0; i < LANES; i++)
            each[i] = tap[i * w->to_row];
        memcpy(&g[t], each, sizeof each);
    }
    EACH(i, r)
    points_of_taps(r, g + i, r, half + i, r);
    EACH(i, POINTS) {
        points_of_taps(r, half + i * r, 1, points, 1);
        EACH(j, POINTS)
        *vec_to(at + (i * POINTS + j) * apart) = points[j];
    }
}

static size_t filters_apart(const pass *p) {
    return p->from_channels * p->to_channels + APART;
}

/* Transforms all filters of a group, into 36 matrices in panels. */
static void read_filters(const pass *p, const filters *w, float *to) {
    panels layout = panels_of(p->from_channels, p->to_channels);
    size_t apart = filters_apart(p);
#pragma omp for collapse(2) schedule(static)
    for (size_t v = 0; v < layout.vectors; v++)
        for (size_t c = 0; c < layout.depth; c++) {
            size_t next, at = panel_at(&layout, v, &next) + c * next;
            if (p->side == 3)
                filter_points(3, w, v * LANES, c, to + at, apart);
            else
                filter_points(5, w, v * LANES, c, to + at, apart);
        }
}

/* ---- Forward and backward data ------------------------------------------- */

ALWAYS void write_outputs(size_t r, const float *from, size_t apart, const vec *bias,
                          limit_kind kind, const limits *limit, const ptrdiff_t *offset,
                          float *plane) {
    vec row[POINTS], half[MOST_OUTPUTS * POINTS], y[MOST_OUTPUTS];
    size_t m = POINTS + 1 - r;
    EACH(i, POINTS) {
        EACH(j, POINTS)
        row[j] = *vec_at(from + (j * POINTS + i) * apart);
        outputs_of_points(r, row, 1, half + i, POINTS);
    }
    EACH(i, m) {
        outputs_of_points(r, half + i * POINTS, 1, y, 1);
        EACH(j, m)
        if (offset[i * m + j] >= 0)
            *vec_to(plane + offset[i * m + j]) = bounded(kind, limit, y[j] + *bias);
    }
}

ALWAYS void write_tile(size_t r, limit_kind kind, const limits *limit, const pass *p,
                       const float *points, size_t apart, const float *bias,
                       const range *some, size_t tile, float *to) {
    place where = place_of(p, tile);
    ptrdiff_t offset[MOST_OUTPUTS * MOST_OUTPUTS];
    static const size_t before[2];
    offsets_of(&where, before, p->to, POINTS + 1 - r, offset);
    size_t plane = p->to[0] * p->to[1] * LANES;
    float *image = to + vectors_before(p, where.image, some, p->to_channels) * plane;
    if (bias)
        bias += vectors_before(p, 0, some, p->to_channels) * LANES;
    for (size_t v = 0; v < some->count; v++, image += plane, points += LANES) {
        vec add = {0};
        if (bias)
            add = floats_at(bias + v * LANES);
        write_outputs(r, points, apart, &add, kind, limit, offset, image);
    }
}

typedef void write_fn(const limits *limit, const pass *p, const float *points,
                      size_t apart, const float *bias, const range *some, size_t tile,
                      float *to);
#define WRITE(side, kind) \
    static __attribute__((noinline)) void write_##side##_##kind( \
        const limits *limit, const pass *p, const float *points, size_t apart, \
        const float *bias, const range *some, size_t tile, float *to) { \
        write_tile(side, kind, limit, p, points, apart, bias, some, tile, to); \
    }
WRITE(3, LIMIT_NONE)
WRITE(3, LIMIT_RELU)
WRITE(3, LIMIT_ANY)
WRITE(5, LIMIT_NONE)
WRITE(5, LIMIT_RELU)
WRITE(5, LIMIT_ANY)
static write_fn *const write_tiles[2][LIMIT_KINDS] = {
    {write_3_LIMIT_NONE, write_3_LIMIT_RELU, write_3_LIMIT_ANY},
    {write_5_LIMIT_NONE, write_5_LIMIT_RELU, write_5_LIMIT_ANY},
};

/* Tiles that a thread processes at once: their input's points and the sums of a panel
 * of outputs stay in the cache, while all filters pass over them. */
static size_t tiles_of_block(const pass *p) {
    size_t tile = ALL * (p->from_channels + (size_t)COLS * LANES) * sizeof(float);
    size_t tiles = NEAR_BYTES / tile / ROWS * ROWS;
    return tiles < FEWEST_TILES ? FEWEST_TILES : least(tiles, MOST_TILES);
}

static size_t block_floats(size_t tiles, size_t channels) {
    return ALL * (tiles * channels + APART);
}

/* A thread's part of the space. */
static size_t thread_floats(const pass *p) {
    size_t tiles = tiles_of_block(p);
    return block_floats(tiles, p->from_channels) +
           block_floats(tiles, (size_t)COLS * LANES);
}

typedef struct pass_run {
    const pass *pass;
    const float *from, *filters, *bias;
    float *to;
    const bounds *limit;
    size_t tiles;
} pass_run;

static void run_block(const pass_run *run, size_t g, size_t first, float *space) {
    const pass *p = run->pass;
    size_t count = least(run->tiles, p->tiles - first);
    size_t in = run->tiles * p->from_channels + APART;
    size_t out = run->tiles * COLS * LANES + APART;
    float *points = space, *sums = space + ALL * in;
    const range all = {g, 0, p->from_channels / LANES};
    for (size_t t = 0; t < count; t++)
        read_tile(p, run->from, &all, first + t, points + t * p->from_channels, in);
    limits values = limits_of(run->limit);
    write_fn *write = write_tiles[p->side == 5][limit_kind_of(run->limit)];
    panels layout = panels_of(p->from_channels, p->to_channels);
    for (size_t v = 0; v < layout.vectors; v += layout.width) {
        const range some = {g, v, least(layout.width, layout.vectors - v)};
        size_t row, at = panel_at(&layout, v, &row);
        const product times = {.depth = layout.depth,
                               .a_row = p->from_channels,
                               .a_next = 1,
                               .b_next = row,
                               .out_row = row};
        for (size_t e = 0; e < ALL; e++)
            multiply(&times, count, some.count, points + e * in,
                     run->filters + e * filters_apart(p) + at, sums + e * out);
        for (size_t t = 0; t < count; t++)
            write(&values, p, sums + t * row, out, run->bias, &some, first + t,
                  run->to);
    }
}

static void run_pass(const pass *p, size_t threads, filters w, const float *from,
                     const float *bias, const bounds *limit, float *to, float *space) {
    size_t group_weights = p->from_channels * p->to_channels * p->side * p->side;
    float *mine = space + ALL * filters_apart(p);
    size_t tiles = tiles_of_block(p);
    const pass_run run = {p, from, space, bias, to, limit, tiles};
#pragma omp parallel num_threads((int)threads) firstprivate(w)
    for (size_t g = 0; g < p->group; g++, w.numbers += group_weights) {
        read_filters(p, &w, space);
        float *own = mine + (size_t)omp_get_thread_num() * thread_floats(p);
#pragma omp for schedule(static)
        for (size_t first = 0; first < p->tiles; first += tiles)
            run_block(&run, g, first, own);
    }
}

static void forward(const winograd_conv *c, const float *in, const float *weights,
                    const float *bias, const bounds *limit, float *out, float *space) {
    const pass p = pass_of(c, 0);
    size_t area = c->side * c->side;
    const filters w = {weights, p.from_channels * area, area, 0};
    run_pass(&p, c->threads, w, in, bias, limit, out, space);
}

static void backward_data(const winograd_conv *c, const float *out_diff,
                          const float *weights, float *in_diff, float *space) {
    const pass p = pass_of(c, 1);
    size_t area = c->side * c->side;
    const filters w = {weights, area, p.to_channels * area, 1};
    const bounds none = BOUNDS_NONE;
    run_pass(&p, c->threads, w, out_diff, NULL, &none, in_diff, space);
}

/* ---- Backward weights ---------------------------------------------------- */

/* Transforms a tile of the output's gradient to a row of each of 36 matrices. */
ALWAYS void read_gradient(size_t r, const pass *p, const float *diff, const range *some,
                          size_t tile, float *to, size_t apart) {
    place where = place_of(p, tile);
    ptrdiff_t offset[MOST_OUTPUTS * MOST_OUTPUTS];
    static const size_t before[2];
    size_t m = POINTS + 1 - r;
    offsets_of(&where, before, p->to, m, offset);
    size_t plane = p->to[0] * p->to[1] * LANES;
    const float *image = diff +
                         vectors_before(p, where.image, some, p->to_channels) * plane;
    for (size_t v = 0; v < some->count; v++, image += plane, to += LANES) {
        vec y[MOST_OUTPUTS], half[POINTS * MOST_OUTPUTS], points[POINTS];
        EACH(i, m) {
            EACH(j, m)
            y[j] = vec_or_zero(image, offset[j * m + i]);
            points_of_outputs(r, y, 1, half + i, m);
        }
        EACH(i, POINTS) {
            points_of_outputs(r, half + i * m, 1, points, 1);
            EACH(j, POINTS)
            *vec_to(to + (i * POINTS + j) * apart) = points[j];
        }
    }
}

/* Transforms the sums of all parts to the taps' gradients from one channel to LANES
 * others. */
ALWAYS void write_taps(size_t r, const float *from, size_t apart, size_t parts,
                       size_t part, float *diff, size_t to_row) {
    vec row[POINTS], half[MOST_SIDE * POINTS], g[MOST_SIDE];
    EACH(i, POINTS) {
        EACH(j, POINTS) {
            const float *at = from + (j * POINTS + i) * apart;
            row[j] = *vec_at(at);
            for (size_t k = 1; k < parts; k++)
                row[j] += *vec_at(at + k * part);
        }
        taps_of_points(r, row, 1, half + i, POINTS);
    }
    for (size_t i = 0; i < r; i++) {
        taps_of_points(r, half + i * POINTS, 1, g, 1);
        for (size_t j = 0; j < r; j++)
            for (size_t k = 0; k < LANES; k++)
                diff[k * to_row + i * r + j] = g[j][k];
    }
}

/* How the work is cut: a task sums a part of all tiles for some channels of a group, so
 * that its sums stay in the cache. Tasks are the same for any number of threads. */
typedef struct gradient {
    const pass *pass;
    size_t in_vectors, out_vectors; /* of a task */
    size_t in_tasks, out_tasks;     /* of a group */
    size_t parts, blocks;           /* blocks of tiles in a part */
    size_t apart, task;             /* floats of a point's sums, and of a task's */
} gradient;

static gradient gradient_of(const pass *p) {
    size_t in = p->from_channels / LANES, out = p->to_channels / LANES;
    gradient d = {.pass = p};
    d.in_vectors = equal_block(in, TASK_IN / LANES);
    d.out_vectors = equal_block(out, TASK_OUT / LANES);
    d.in_tasks = (in + d.in_vectors - 1) / d.in_vectors;
    d.out_tasks = (out + d.out_vectors - 1) / d.out_vectors;
    size_t tasks = p->group * d.in_tasks * d.out_tasks;
    size_t blocks = (p->tiles + TASK_TILES - 1) / TASK_TILES;
    d.blocks = equal_block(blocks, blocks / least(blocks, TASKS / tasks + 1));
    d.parts = (blocks + d.blocks - 1) / d.blocks;
    d.apart = d.in_vectors * LANES * d.out_vectors * LANES + APART;
    d.task = ALL * d.apart;
    return d;
}

static size_t part_floats(const gradient *d) {
    return d->pass->group * d->in_tasks * d->out_tasks * d->task;
}

static size_t sums_at(const gradient *d, size_t group, size_t in, size_t out) {
    return ((group * d->in_tasks + in) * d->out_tasks + out) * d->task;
}

static size_t gradient_thread_floats(const gradient *d) {
    return block_floats(TASK_TILES, d->in_vectors * LANES) +
           block_floats(TASK_TILES, d->out_vectors * LANES);
}

static void gradient_block(const gradient *d, const float *in, const float *out_diff,
                           const range *from, const range *to, size_t first, int add,
                           float *space, float *sums) {
    const pass *p = d->pass;
    size_t count = least(TASK_TILES, p->tiles - first);
    size_t rows = from->count * LANES, columns = to->count * LANES;
    size_t in_apart = TASK_TILES * rows + APART;
    size_t out_apart = TASK_TILES * columns + APART;
    float *diff = space + ALL * in_apart;
    for (size_t t = 0; t < count; t++) {
        read_tile(p, in, from, first + t, space + t * rows, in_apart);
        if (p->side == 3)
            read_gradient(3, p, out_diff, to, first + t, diff + t * columns, out_apart);
        else
            read_gradient(5, p, out_diff, to, first + t, diff + t * columns, out_apart);
    }
    const product times = {.depth = count,
                           .a_row = 1,
                           .a_next = rows,
                           .b_next = columns,
                           .out_row = columns,
                           .add = add};
    for (size_t e = 0; e < ALL; e++)
        for (size_t v = 0; v < to->count; v += COLS)
            multiply(&times, rows, least(COLS, to->count - v), space + e * in_apart,
                     diff + e * out_apart + v * LANES, sums + e * d->apart + v * LANES);
}

static void gradient_task(const gradient *d, const float *in, const float *out_diff,
                          const range *from, const range *to, size_t part, float *space,
                          float *sums) {
    size_t first = part * d->blocks * TASK_TILES;
    size_t end = least(d->pass->tiles, first + d->blocks * TASK_TILES);
    for (size_t tile = first; tile < end; tile += TASK_TILES)
        gradient_block(d, in, out_diff, from, to, tile, tile > first, space, sums);
}

static range task_range(size_t group, size_t task, size_t vectors, size_t channels) {
    size_t first = task * vectors;
    return (range){group, first, least(vectors, channels / LANES - first)};
}

static void sum_tasks(const gradient *d, const float *in, const float *out_diff,
                      float *space, float *sums) {
    const pass *p = d->pass;
    float *own = space + (size_t)omp_get_thread_num() * gradient_thread_floats(d);
#pragma omp for collapse(4) schedule(static)
    for (size_t part = 0; part < d->parts; part++)
        for (size_t g = 0; g < p->group; g++)
            for (size_t i = 0; i < d->in_tasks; i++)
                for (size_t o = 0; o < d->out_tasks; o++) {
                    range from = task_range(g, i, d->in_vectors, p->from_channels);
                    range to = task_range(g, o, d->out_vectors, p->to_channels);
                    gradient_task(d, in, out_diff, &from, &to, part, own,
                                  sums + part * part_floats(d) + sums_at(d, g, i, o));
                }
}

static void write_gradient(const gradient *d, const float *sums, float *weights_diff) {
    const pass *p = d->pass;
    size_t area = p->side * p->side, row = p->from_channels * area;
    size_t part = part_floats(d);
#pragma omp for collapse(3) schedule(static)
    for (size_t g = 0; g < p->group; g++)
        for (size_t v = 0; v < p->to_channels / LANES; v++)
            for (size_t c = 0; c < p->from_channels; c++) {
                size_t i = c / (d->in_vectors * LANES), o = v / d->out_vectors;
                range to = task_range(g, o, d->out_vectors, p->to_channels);
                const float *from = sums + sums_at(d, g, i, o) +
                                    c % (d->in_vectors * LANES) * to.count * LANES +
                                    (v - to.first) * LANES;
                float *diff = weights_diff + (g * p->to_channels + v * LANES) * row +
                              c * area;
                if (p->side == 3)
                    write_taps(3, from, d->apart, d->parts, part, diff, row);
                else
                    write_taps(5, from, d->apart, d->parts, part, diff, row);
            }
}

static void bias_gradient(const winograd_conv *c, const float *out_diff, float *diff) {
    size_t vectors = c->out_channels / LANES, area = c->out[0] * c->out[1];
#pragma omp for schedule(static)
    for (size_t v = 0; v < vectors; v++) {
        vec sum = {0};
        for (size_t n = 0; n < c->batch; n++) {
            const float *plane = out_diff + (n * vectors + v) * area * LANES;
            vec part[4] = {{0}};
            for (size_t i = 0; i < area; i++)
                part[i % 4] += *vec_at(plane + i * LANES);
            sum += (part[0] + part[1]) + (part[2] + part[3]);
        }
        memcpy(diff + v * LANES, &sum, sizeof sum);
    }
}

static void backward_weights(const winograd_conv *c, const float *in,
                             const float *out_diff, float *weights_diff,
                             float *bias_diff, float *space) {
    const pass p = pass_of(c, 0);
    const gradient d = gradient_of(&p);
    float *sums = space, *mine = space + d.parts * part_floats(&d);
#pragma omp parallel num_threads((int)c->threads)
    {
        if (bias_diff)
            bias_gradient(c, out_diff, bias_diff);
        sum_tasks(&d, in, out_diff, mine, sums);
        write_gradient(&d, sums, weights_diff);
    }
}

static size_t pass_floats(const pass *p, size_t threads) {
    return ALL * filters_apart(p) + threads * thread_floats(p);
}

static size_t space_bytes(const winograd_conv *c, int training) {
    size_t threads = c->threads;
    const pass p = pass_of(c, 0), back = pass_of(c, 1);
    size_t floats = pass_floats(&p, threads);
    if (training) {
        const gradient d = gradient_of(&p);
        size_t data = pass_floats(&back, threads);
        size_t weights = d.parts * part_floats(&d) +
                         threads * gradient_thread_floats(&d);
        floats = data > floats ? data : floats;
        floats = weights > floats ? weights : floats;
    }
    return floats * sizeof(float);
}

const winograd_kernels PER_ISA(winograd_) = {
    .name = ISA_NAME,
    .lanes = LANES,
    .space_bytes = space_bytes,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weights = backward_weights,
};
