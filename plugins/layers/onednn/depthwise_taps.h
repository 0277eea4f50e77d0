/* Which numbers of an image the kernels of depthwise.h read, and with which taps:
 * tables of addresses for blocks of columns. For files that are compiled once for each
 * instruction set (vectors.h).
 *
 * Both passes to images are the same: each number of the image they write (`to`) is a
 * sum of taps times neighbours in the image they read (`from`). Forward, the neighbours
 * of adjacent columns are `stride` apart. Backward with a stride, every `stride`th
 * column has the same taps, and adjacent neighbours; so columns are processed in
 * *phases*, each with some of the taps.
 *
 * A block is COLUMNS columns of one phase of one row. Its table is used for all
 * channels; taps outside the image read zeros.
 */
#ifndef ONEDNN_DEPTHWISE_TAPS_H
#define ONEDNN_DEPTHWISE_TAPS_H

#include "depthwise.h"
#include "register_tiles.h"
#include "vectors.h"

/* Images are often multiples of seven. */
enum { COLUMNS = 7, MOST_READ = (COLUMNS - 1) * DEPTHWISE_STRIDE + DEPTHWISE_TAPS };

/* A loop that must be unrolled completely, of up to 32 rounds. */
#define EACH_READ(i, count) \
    _Pragma("GCC unroll 32") for (size_t i = 0; (i) < (count); (i)++)

/* ---- Which taps read what ------------------------------------------------------- */

typedef struct pass {
    const depthwise_conv *conv;
    const size_t *from, *to; /* sizes of the images */
    int backward;
    size_t step[2], phases[2];
    size_t wide; /* channels, rounded up to whole vectors */
} pass;

static size_t wide_of(const depthwise_conv *c) {
    return ceiling(c->channels, LANES) * LANES;
}

static pass pass_of(const depthwise_conv *c, int backward) {
    pass p = {.conv = c, .from = c->in, .to = c->out, .wide = wide_of(c)};
    if (backward) {
        p.from = c->out;
        p.to = c->in;
    }
    p.backward = backward;
    for (int d = 0; d < 2; d++) {
        p.step[d] = backward ? 1 : c->stride[d];
        p.phases[d] = backward ? c->stride[d] : 1;
    }
    return p;
}

/* What a row or column of `to` reads: `taps` adjacent rows or columns of `from`, times
 * the taps from `tap` on, as arrange() orders them. Some may lie outside of `from`. */
typedef struct reach {
    ptrdiff_t first;
    size_t taps, tap;
} reach;

/* Taps of a phase, and of all phases before it. */
static size_t phase_taps(const pass *p, int d, size_t phase) {
    size_t window = p->conv->window[d], stride = p->conv->stride[d];
    return phase < window ? ceiling(window - phase, stride) : 0;
}

static size_t taps_before(const pass *p, int d, size_t phase) {
    size_t taps = 0;
    for (size_t i = 0; i < phase; i++)
        taps += phase_taps(p, d, i);
    return taps;
}

static reach reach_of(const pass *p, int d, size_t at) {
    const depthwise_conv *c = p->conv;
    if (!p->backward)
        return (reach){(ptrdiff_t)(at * c->stride[d]) - (ptrdiff_t)c->pad[d],
                       c->window[d], 0};
    size_t phase = (at + c->pad[d]) % c->stride[d];
    size_t last = (at + c->pad[d]) / c->stride[d], taps = phase_taps(p, d, phase);
    return (reach){(ptrdiff_t)(last + 1) - (ptrdiff_t)taps, taps,
                   taps_before(p, d, phase)};
}

/* The place of a tap of the window. Backward, the taps of a phase are in the order in
 * which they read `from`. */
static size_t place_of(const pass *p, int d, size_t tap) {
    if (!p->backward)
        return tap;
    size_t stride = p->conv->stride[d], phase = tap % stride;
    return taps_before(p, d, phase) + phase_taps(p, d, phase) - 1 - tap / stride;
}

static int is_inside(ptrdiff_t at, size_t size) {
    return at >= 0 && (size_t)at < size;
}

/* ---- A block of columns ---------------------------------------------------------- */

/* Some rows of `from`, the taps they are multiplied with, and columns of these rows. In
 * the table of addresses, columns outside the image are the row of zeros. */
typedef struct block {
    size_t rows, columns;            /* that exist */
    size_t taps, step;               /* reads of adjacent columns are `step` apart */
    size_t apart;                    /* floats from tap to tap */
    size_t tap[DEPTHWISE_TAPS];      /* of each row, in floats, in column 0 */
    const char *row[DEPTHWISE_TAPS]; /* column 0 of each row */
    const char *read[DEPTHWISE_TAPS][MOST_READ];
    size_t first_tap; /* of these columns, in floats */
    int inside;       /* no column is outside the image */
    const char *next; /* the row after the last, and how far the ones after it are */
    size_t row_bytes;
    size_t more;      /* rows after the last that the next block of rows reads */
    const char *soon; /* in the next row, what these columns read */
    size_t at;        /* the columns begin so many elements after those in the table */
} block;

static size_t element_bytes(const depthwise_conv *c) {
    return c->bf16 ? sizeof(uint16_t) : sizeof(float);
}

/* The rows that row `at` reads, of one block of channels of one image, `plane`. */
static void take_rows(const pass *p, const void *from, size_t plane, size_t at,
                      block *b) {
    const depthwise_conv *c = p->conv;
    const reach rows = reach_of(p, 0, at);
    size_t bytes = p->from[1] * c->side * element_bytes(c);
    size_t channel = plane % (c->channels / c->side) * c->side;
    b->apart = p->wide;
    b->rows = 0;
    b->inside = 0;
    b->next = from;
    b->row_bytes = bytes;
    b->more = p->step[0];
    for (size_t i = 0; i < rows.taps; i++) {
        ptrdiff_t row = rows.first + (ptrdiff_t)i;
        if (!is_inside(row, p->from[0]))
            continue;
        b->row[b->rows] = (const char *)from +
                          (plane * p->from[0] + (size_t)row) * bytes;
        b->tap[b->rows] = (rows.tap + i) * c->window[1] * p->wide + channel;
        b->next = b->row[b->rows++] + bytes;
    }
}

/* The columns that the block of columns from `at` on reads. Adjacent blocks inside the
 * image share a table. */
static void take_columns(const pass *p, const void *zeros, size_t at, block *b) {
    const reach columns = reach_of(p, 1, at);
    size_t side = p->conv->side, bytes = side * element_bytes(p->conv);
    size_t phases = p->phases[1], step = p->step[1];
    size_t left = ceiling(p->to[1] - at, phases);
    size_t reads = columns.taps ? (COLUMNS - 1) * step + columns.taps : 0;
    int inside = columns.first >= 0 && (size_t)columns.first + reads <= p->from[1];
    b->columns = least(COLUMNS, left);
    b->soon = b->next + at / phases * step * bytes;
    b->at += COLUMNS * step * side;
    if (inside && b->inside)
        return;
    b->inside = inside;
    b->at = 0;
    b->taps = columns.taps;
    b->step = step;
    b->first_tap = columns.tap * p->wide;
    for (size_t r = 0; r < b->rows; r++)
        for (size_t i = 0; i < reads; i++) {
            ptrdiff_t column = columns.first + (ptrdiff_t)i;
            b->read[r][i] = is_inside(column, p->from[1])
                                ? b->row[r] + (size_t)column * bytes
                                : zeros;
        }
}

/* The most taps that have code of their own. */
enum { UNROLLED = 5 };

/* The memory of some columns of a row, contiguous, is read ahead in parts, one with
 * each vector of channels. It may lie after the end of the image, and is not accessed.
 */
ALWAYS void read_ahead(access v, const char *row, size_t columns, size_t i) {
    enum { LINE = 64 };
    const char *part = element(v, row, i * columns);
    size_t bytes = (size_t)((const char *)element(v, row, LANES * columns) - row);
    EACH_READ(k, (bytes + LINE - 1) / LINE) __builtin_prefetch(part + k * LINE, 0, 2);
}

/* Calls `call(bf16, taps, step, ...)` with constants; taps 0: of any number. */
#define FOR_TAPS(call, bf16, b, ...) \
    switch ((b)->step <= 2 && (b)->taps <= UNROLLED ? (b)->taps * 4 + (b)->step : 0) { \
    case 1 * 4 + 1: \
        call(bf16, 1, 1, __VA_ARGS__); \
        break; \
    case 2 * 4 + 1: \
        call(bf16, 2, 1, __VA_ARGS__); \
        break; \
    case 3 * 4 + 1: \
        call(bf16, 3, 1, __VA_ARGS__); \
        break; \
    case 3 * 4 + 2: \
        call(bf16, 3, 2, __VA_ARGS__); \
        break; \
    case 5 * 4 + 1: \
        call(bf16, 5, 1, __VA_ARGS__); \
        break; \
    case 5 * 4 + 2: \
        call(bf16, 5, 2, __VA_ARGS__); \
        break; \
    default: \
        call(bf16, 0, 0, __VA_ARGS__); \
    }

#endif
