/* Kernels of depthwise.h, compiled once for each instruction set (vectors.h). A block
 * of columns (depthwise_taps.h) is processed one vector of channels after the other,
 * with its sums in registers.
 */
#include "depthwise_taps.h"
#include "per_isa.h"

/* ---- Weights --------------------------------------------------------------------- */

static float as_bf16(float value) {
    vec v = from_halves(to_halves((vec){0} + value));
    return v[0];
}

/* Transposes the weights to [row][column][wide], and zeroes the channels that don't
 * exist and a row of zeros after them. */
static void arrange(const pass *p, const float *weights, float *to) {
    const depthwise_conv *c = p->conv;
    size_t area = c->window[0] * c->window[1];
    memset(to + area * p->wide, 0, p->wide * sizeof(float));
#pragma omp parallel for schedule(static) if (area * p->wide > 4096)
    for (size_t v = 0; v < p->wide; v += LANES)
        for (size_t i = 0; i < area; i++) {
            size_t row = place_of(p, 0, i / c->window[1]);
            size_t column = place_of(p, 1, i % c->window[1]);
            float *place = to + (row * c->window[1] + column) * p->wide + v;
            for (size_t k = 0; k < LANES; k++) {
                float w = v + k < c->channels ? weights[(v + k) * area + i] : 0;
                place[k] = c->bf16 ? as_bf16(w) : w;
            }
        }
}

/* ---- Passes to images ------------------------------------------------------------ */

typedef struct result {
    const float *weights, *bias;
    limit_kind kind;
    limits limit;
    char *to[COLUMNS];
    size_t at;        /* the columns begin so many elements after those in the table */
    const char *soon; /* these columns of the next row */
    size_t channels;
} result;

/* One vector of channels. */
ALWAYS void sum_vector(size_t taps, size_t step, access v, const block *b,
                       const result *to, size_t i) {
    const access bias = {0, v.partial, v.lanes};
    vec sums[COLUMNS], first = {0};
    if (to->bias)
        first = load(bias, to->bias + i);
    EACH(u, COLUMNS) sums[u] = first;
    for (size_t r = 0; r < b->rows; r++) {
        const float *weights = to->weights + b->tap[r] + b->first_tap + i;
        const char *const *read = b->read[r];
        if (taps) {
            vec weight[UNROLLED];
            EACH(t, taps)
            weight[t] = floats_at(weights + t * b->apart);
            EACH_READ(j, (COLUMNS - 1) * step + taps) {
                vec x = load(v, element(v, read[j], b->at + i));
                EACH(t, taps)
                if (j >= t && (j - t) % step == 0 && (j - t) / step < COLUMNS)
                    sums[(j - t) / step] += x * weight[t];
            }
        } else {
            for (size_t t = 0; t < b->taps; t++) {
                vec weight = floats_at(weights + t * b->apart);
                EACH(u, COLUMNS)
                sums[u] += load(v, element(v, read[u * b->step + t], b->at + i)) *
                           weight;
            }
        }
    }
    if (to->kind != LIMIT_NONE)
        EACH(u, COLUMNS) sums[u] = bounded(LIMIT_ANY, &to->limit, sums[u]);
    EACH(u, COLUMNS)
    if (u < b->columns)
        store(v, element_to(v, to->to[u], to->at + i), sums[u]);
}

/* Runs `call` for the vectors of channels, which begin at `i`, while the rows after
 * these are read ahead. `v`: how to access a vector; the last may be partial. */
#define FOR_CHANNELS(bf16_, taps_, step_, b_, to_, call) \
    do { \
        size_t i = 0; \
        for (; i + LANES <= (to_)->channels; i += LANES) { \
            const access v = {bf16_, 0, LANES}; \
            for (size_t r_ = 0; r_ < (b_)->more; r_++) \
                read_ahead(v, (b_)->soon + r_ * (b_)->row_bytes, \
                           COLUMNS * ((taps_) ? (step_) : 1), i); \
            read_ahead(v, (to_)->soon, COLUMNS, i); \
            call; \
        } \
        if (i < (to_)->channels) { \
            const access v = {bf16_, 1, (to_)->channels - i}; \
            call; \
        } \
    } while (0)

ALWAYS void sum_vectors(int bf16, size_t taps, size_t step, const block *b,
                        const result *to) {
    FOR_CHANNELS(bf16, taps, step, b, to, sum_vector(taps, step, v, b, to, i));
}

static void sum_block(const block *b, const result *to) {
    FOR_TAPS(sum_vectors, 0, b, b, to)
}

static void sum_block_bf16(const block *b, const result *to) {
    FOR_TAPS(sum_vectors, 1, b, b, to)
}

static void write_row(const pass *p, const void *from, result *r, void *to,
                      size_t plane, size_t at, const void *zeros) {
    const depthwise_conv *c = p->conv;
    size_t bytes = c->side * element_bytes(c), phases = p->phases[1];
    char *row = (char *)to + (plane * p->to[0] + at) * p->to[1] * bytes;
    block b;
    take_rows(p, from, plane, at, &b);
    for (size_t phase = 0; phase < phases; phase++) {
        for (size_t u = 0; u < COLUMNS; u++)
            r->to[u] = row + (phase + u * phases) * bytes;
        b.inside = 0;
        r->at = 0;
        for (size_t x = phase; x < p->to[1]; x += COLUMNS * phases) {
            take_columns(p, zeros, x, &b);
            r->soon = row + (p->to[1] + x - phase + phase * COLUMNS) * bytes;
            if (c->bf16)
                sum_block_bf16(&b, r);
            else
                sum_block(&b, r);
            r->at += COLUMNS * phases * c->side;
        }
    }
}

static void run_pass(const pass *p, const void *from, const float *weights,
                     const float *bias, const bounds *limit, void *to, float *space) {
    const depthwise_conv *c = p->conv;
    size_t blocks = c->channels / c->side, planes = c->batch * blocks;
    const float *zeros = space + c->window[0] * c->window[1] * p->wide;
    arrange(p, weights, space);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < planes * p->to[0]; i++) {
        size_t plane = i / p->to[0], channel = plane % blocks * c->side;
        result r = {.weights = space,
                    .bias = bias ? bias + channel : NULL,
                    .kind = limit_kind_of(limit),
                    .limit = limits_of(limit),
                    .channels = c->side};
        write_row(p, from, &r, to, plane, i % p->to[0], zeros);
    }
}

static void forward(const depthwise_conv *c, const void *in, const float *weights,
                    const float *bias, const bounds *limit, void *out, float *space) {
    const pass p = pass_of(c, 0);
    run_pass(&p, in, weights, bias, limit, out, space);
}

static void backward_data(const depthwise_conv *c, const void *out_diff,
                          const float *weights, void *in_diff, float *space) {
    const pass p = pass_of(c, 1);
    run_pass(&p, out_diff, weights, NULL, &BOUNDS_NONE, in_diff, space);
}

/* ---- Gradient of the weights ----------------------------------------------------- */

/* How the work is cut, equally for any number of threads: a task sums some rows of the
 * output, of some adjacent channels, so that its sums stay in the cache. */
typedef struct gradient {
    const pass *pass;
    size_t rows, chunks;     /* rows of all images, and in a chunk */
    size_t chunk;            /* rows */
    size_t channels, groups; /* channels of a group */
    size_t sums;             /* floats of a chunk: taps, and the bias */
} gradient;

static gradient gradient_of(const pass *p) {
    enum { POINTS = 2048, CHUNKS = 16, CHANNELS = 256 };
    const depthwise_conv *c = p->conv;
    gradient g = {.pass = p, .rows = c->batch * c->out[0]};
    g.chunk = equal_block(g.rows,
                          least(most(1, POINTS / c->out[1]), ceiling(g.rows, CHUNKS)));
    g.chunks = ceiling(g.rows, g.chunk);
    g.channels = c->side;
    if (c->side == c->channels)
        g.channels = equal_block(p->wide / LANES, CHANNELS / LANES) * LANES;
    g.groups = ceiling(c->channels, g.channels);
    g.sums = (c->window[0] * c->window[1] + 1) * p->wide;
    return g;
}

/* What a block of columns adds to. */
typedef struct total {
    float *sums, *bias;
    const char *diff[COLUMNS];
    size_t at;        /* the columns begin so many elements after those in the table */
    const char *soon; /* these columns of the next row */
    size_t channels;
} total;

ALWAYS void add_taps(size_t taps, size_t step, access v, const block *b,
                     const char *const *read, const vec diff[COLUMNS], float *sums,
                     size_t i) {
    const access part = {0, v.partial, v.lanes};
    if (!taps) {
        for (size_t t = 0; t < b->taps; t++) {
            vec sum = load(part, sums + t * b->apart);
            EACH(u, COLUMNS)
            sum += load(v, element(v, read[u * b->step + t], b->at + i)) * diff[u];
            store(part, sums + t * b->apart, sum);
        }
        return;
    }
    vec sum[UNROLLED];
    EACH(t, taps) sum[t] = load(part, sums + t * b->apart);
    EACH_READ(j, (COLUMNS - 1) * step + taps) {
        vec x = load(v, element(v, read[j], b->at + i));
        EACH(t, taps)
        if (j >= t && (j - t) % step == 0 && (j - t) / step < COLUMNS)
            sum[t] += x * diff[(j - t) / step];
    }
    EACH(t, taps) store(part, sums + t * b->apart, sum[t]);
}

ALWAYS void add_vector(size_t taps, size_t step, access v, const block *b,
                       const total *to, size_t i) {
    const access part = {0, v.partial, v.lanes};
    vec diff[COLUMNS];
    EACH(u, COLUMNS) diff[u] = load(v, element(v, to->diff[u], to->at + i));
    if (to->bias) {
        vec sum = load(part, to->bias + i);
        EACH(u, COLUMNS) sum += diff[u];
        store(part, to->bias + i, sum);
    }
    for (size_t r = 0; r < b->rows; r++)
        add_taps(taps, step, v, b, b->read[r], diff, to->sums + b->tap[r] + i, i);
}

ALWAYS void add_vectors(int bf16, size_t taps, size_t step, const block *b,
                        const total *to) {
    FOR_CHANNELS(bf16, taps, step, b, to, add_vector(taps, step, v, b, to, i));
}

static void add_block(const block *b, const total *to) {
    FOR_TAPS(add_vectors, 0, b, b, to)
}

static void add_block_bf16(const block *b, const total *to) {
    FOR_TAPS(add_vectors, 1, b, b, to)
}

static void add_row(const gradient *g, const void *in, const char *diff, size_t plane,
                    size_t at, const void *zeros, total *to) {
    const pass *p = g->pass;
    const depthwise_conv *c = p->conv;
    size_t bytes = c->side * element_bytes(c);
    const char *row = diff + (plane * c->out[0] + at) * c->out[1] * bytes;
    block b;
    take_rows(p, in, plane, at, &b);
    for (size_t u = 0; u < COLUMNS; u++)
        to->diff[u] = row + u * bytes;
    to->at = 0;
    for (size_t x = 0; x < c->out[1]; x += COLUMNS) {
        take_columns(p, zeros, x, &b);
        to->soon = row + (c->out[1] + x) * bytes;
        for (size_t u = b.columns; u < COLUMNS; u++)
            to->diff[u] = (const char *)zeros - to->at * element_bytes(c);
        if (c->bf16)
            add_block_bf16(&b, to);
        else
            add_block(&b, to);
        to->at += COLUMNS * c->side;
    }
}

/* Sums one chunk of rows for one group of channels. */
static void add_chunk(const gradient *g, const void *in, const void *out_diff,
                      size_t chunk, size_t group, const void *zeros, int has_bias,
                      float *sums) {
    const depthwise_conv *c = g->pass->conv;
    size_t taps = c->window[0] * c->window[1], wide = g->pass->wide;
    size_t blocks = c->channels / c->side, first = group * g->channels;
    size_t skip = first % c->side * element_bytes(c);
    size_t end = least(g->rows, (chunk + 1) * g->chunk);
    total to = {.channels = least(g->channels, c->channels - first)};
    for (size_t t = 0; t <= taps; t++)
        memset(sums + t * wide + first, 0, to.channels * sizeof *sums);
    to.sums = sums + (blocks > 1 ? 0 : first); /* of a block: the rows' taps say */
    to.bias = has_bias ? sums + taps * wide + first : NULL;
    for (size_t row = chunk * g->chunk; row < end; row++) {
        size_t plane = row / c->out[0] * blocks + first / c->side;
        add_row(g, (const char *)in + skip, (const char *)out_diff + skip, plane,
                row % c->out[0], zeros, &to);
    }
}

/* Adds the chunks of one tap, or of the bias, of one vector of channels. */
static void write_sum(const gradient *g, const float *sums, float *to, size_t apart,
                      size_t channels) {
    vec sum = *vec_at(sums);
    for (size_t i = 1; i < g->chunks; i++)
        sum += *vec_at(sums + i * g->sums);
    for (size_t k = 0; k < least(channels, LANES); k++)
        to[k * apart] = sum[k];
}

static void backward_weights(const depthwise_conv *c, const void *in,
                             const void *out_diff, float *weights_diff,
                             float *bias_diff, float *space) {
    const pass p = pass_of(c, 0);
    const gradient g = gradient_of(&p);
    const size_t taps = c->window[0] * c->window[1];
    float *sums = space + p.wide;
    memset(space, 0, p.wide * sizeof *space);
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (size_t i = 0; i < g.chunks * g.groups; i++)
            add_chunk(&g, in, out_diff, i / g.groups, i % g.groups, space,
                      bias_diff != NULL, sums + i / g.groups * g.sums);
#pragma omp for schedule(static)
        for (size_t v = 0; v < p.wide; v += LANES) {
            for (size_t t = 0; t < taps; t++)
                write_sum(&g, sums + t * p.wide + v, weights_diff + v * taps + t, taps,
                          c->channels - v);
            if (bias_diff)
                write_sum(&g, sums + taps * p.wide + v, bias_diff + v, 1,
                          c->channels - v);
        }
    }
}

/* Kernels may read the weights of a whole vector where a block has fewer channels. */
static size_t space_bytes(const depthwise_conv *c, int training) {
    const pass p = pass_of(c, 0);
    size_t floats = (c->window[0] * c->window[1] + 1) * p.wide + LANES;
    if (training) {
        const gradient g = gradient_of(&p);
        size_t more = p.wide + g.chunks * g.sums;
        floats = most(floats, more);
    }
    return floats * sizeof(float);
}

const depthwise_kernels PER_ISA(depthwise_) = {
    .name = ISA_NAME,
    .space_bytes = space_bytes,
    .forward = forward,
    .backward_data = backward_data,
    .backward_weights = backward_weights,
};
