/* Blocks of results: bias, activation, rounding, and their places in the image, for
 * amx_sweep.c. */
#ifndef ONEDNN_AMX_RESULTS_H
#define ONEDNN_AMX_RESULTS_H

#include "amx_blocks.h"
#include "amx_plan.h"

/* A thread's part of a sweep. */
typedef struct item {
    const sweep *s;
    const char *packed; /* weights of the first panel of the group */
    const float *bias;
    const bounds *limit;
    bf16 *out;
    const bf16 *source;
    char *copies; /* of images, or of a block of rows */
    block_sums *sums;
    size_t group, image, images, row, rows; /* a band of rows of some images */
    int stream, add;
    size_t run_at[MOST_RUNS];
} item;

/* How the results of a panel are stored; a compile-time constant in every use. */
typedef struct storing {
    limit_kind limit;
    int whole; /* BLOCK_COLS channels */
    int add, stream;
} storing;

/* What the results of a panel have in common. */
typedef struct panel_values {
    limits limit;
    vec bias[2];
    size_t count; /* channels */
} panel_values;

static panel_values values_of(const item *t, size_t channel, size_t count) {
    panel_values v = {.limit = limits_of(t->limit), .count = count};
    if (!t->bias)
        return v;
    v.bias[0] = load_some((access){0, 1, least(count, LANES)}, t->bias + channel);
    if (count > LANES)
        v.bias[1] = load_some((access){0, 1, count - LANES}, t->bias + channel + LANES);
    return v;
}

/* Stores `rows` results, `apart` numbers apart. */
ALWAYS void store_run(storing how, const panel_values *v,
                      const float (*sums)[BLOCK_COLS], size_t rows, size_t apart,
                      bf16 *to) {
    const size_t count = how.whole ? BLOCK_COLS : v->count;
    const size_t parts = count > LANES ? 2 : 1;
    const access whole = {1, 0, LANES}, last = {1, 1, count - (parts - 1) * LANES};
    for (size_t r = 0; r < rows; r++, to += apart) {
        vec part[2];
        EACH(i, parts) {
            part[i] = row_part(sums[r], i) + v->bias[i];
            if (how.add)
                part[i] += load(i + 1 < parts ? whole : last, to + i * LANES);
            part[i] = bounded(how.limit, &v->limit, part[i]);
        }
        if (how.whole)
            store_adjacent(whole, 2, how.stream ? STREAM_LINES : 0, to, part);
        for (size_t i = 0; !how.whole && i < parts; i++)
            store(i + 1 < parts ? whole : last, to + i * LANES, part[i]);
    }
}

/* Stores a block of results, row by row of the image; what was computed between two
 * rows is dropped. */
ALWAYS void store_rows(storing how, const item *t, size_t image, size_t first,
                       size_t rows, size_t panel, const block_sums *sums) {
    const sweep *s = t->s;
    const size_t channel = t->group * s->results + panel * BLOCK_COLS;
    const panel_values v = values_of(
        t, channel, least(s->results - panel * BLOCK_COLS, BLOCK_COLS));
    size_t i = first / s->across, j = first % s->across;
    for (size_t r = 0; r < rows; i++, j = 0) {
        /* A matrix is one column, whose rows follow each other. */
        size_t run = s->across == 1 ? rows : least(s->across - j, rows - r);
        size_t stored = s->across == 1    ? rows
                        : j < s->count[1] ? least(run, s->count[1] - j)
                                          : 0;
        size_t y = s->first[0] + s->step * (t->row + i);
        size_t x = s->first[1] + s->step * j;
        size_t apart = s->step * s->out_channels * (s->across == 1 ? s->out[1] : 1);
        store_run(how, &v, sums->at + r, stored, apart,
                  t->out + ((image * s->out[0] + y) * s->out[1] + x) * s->out_channels +
                      channel);
        r += run;
    }
}

#define STORE_ROWS(limit, whole, add, stream) \
    store_rows((storing){limit, whole, add, stream}, t, image, first, rows, panel, sums)

static void store_block(const item *t, size_t image, size_t first, size_t rows,
                        size_t panel, const block_sums *sums) {
    const limit_kind limit = limit_kind_of(t->limit);
    const int whole = t->s->results - panel * BLOCK_COLS >= BLOCK_COLS;
    if (!whole && t->add)
        STORE_ROWS(LIMIT_ANY, 0, 1, 0);
    else if (!whole)
        STORE_ROWS(LIMIT_ANY, 0, 0, 0);
    else if (t->add)
        STORE_ROWS(LIMIT_NONE, 1, 1, 0);
    else if (limit == LIMIT_NONE && t->stream)
        STORE_ROWS(LIMIT_NONE, 1, 0, 1);
    else if (limit == LIMIT_NONE)
        STORE_ROWS(LIMIT_NONE, 1, 0, 0);
    else if (limit == LIMIT_RELU && t->stream)
        STORE_ROWS(LIMIT_RELU, 1, 0, 1);
    else if (limit == LIMIT_RELU)
        STORE_ROWS(LIMIT_RELU, 1, 0, 0);
    else
        STORE_ROWS(LIMIT_ANY, 1, 0, 0);
}

#endif
