/* Sweeps a window over images by products of tiles.
 *
 * The left factor's rows are results of an image one after the other, in the order of
 * padded rows, so that a tile may reach from one row into the next; what falls between
 * two rows is computed and dropped. Its columns are the numbers of a row of the window,
 * which lie side by side in the padded image.
 */
#include "per_isa.h"

#include "amx_sweep.h"

#include <omp.h>

enum {
    LEFT_BYTES = 24 << 10,    /* of the left factor in the first cache */
    SOURCE_BYTES = 512 << 10, /* of padded images that a thread works on at a time */
    PANEL_BYTES = 768 << 10,  /* of packed weights that stay in a core's own cache */
    STREAM_BYTES = 8 << 20,   /* of results that the caches do not keep */
    SLACK = 64,               /* zeros that may be read behind an image */
    AHEAD = 16 << 10,         /* bytes to prefetch, as the hardware stops at pages */
    AHEAD_NUMBERS = 256,      /* of weights to prefetch in each row */
    MOST_RUNS = 1024,
    PART_STEPS = 10, /* steps of a part of the channels, at most */
};

static inline size_t ceiling(size_t a, size_t b) {
    return (a + b - 1) / b;
}

static inline size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

static inline size_t most(size_t a, size_t b) {
    return a > b ? a : b;
}

static inline size_t aligned(size_t bytes) {
    return ceiling(bytes, 64) * 64;
}

/* ---- How the work is cut --------------------------------------------------------- */

/* Rows of a phase, and bytes of a copy, of so many rows of results. Results behind the
 * last one are computed from what follows. */
static size_t rows_for(const sweep *s, size_t band) {
    return band + (s->taps[0] - 1) / s->stride;
}

static size_t copy_bytes(const sweep *s, size_t band) {
    size_t pixels = s->phases * rows_for(s, band) * s->width + BLOCK_ROWS * s->columns;
    return aligned(pixels * s->channels * sizeof(bf16) + SLACK);
}

/* Is the source a matrix whose rows are the pixels, in the order of the results? */
static int is_matrix(const sweep *s) {
    return s->taps[0] * s->taps[1] == 1 && s->stride == 1 && s->group == 1 &&
           !s->pad[0] && !s->pad[1] && s->count[0] == s->in[0] &&
           s->count[1] == s->in[1];
}

/* Makes all pixels of the batch the rows of one image. */
static void flatten(sweep *s) {
    if (s->step != 1 || s->first[0] || s->first[1] || s->count[0] != s->out[0] ||
        s->count[1] != s->out[1])
        return;
    size_t pixels = s->batch * s->in[0] * s->in[1];
    s->batch = 1;
    s->in[0] = s->out[0] = s->count[0] = pixels;
    s->in[1] = s->out[1] = s->count[1] = 1;
}

static void cut_into_bands(sweep *s) {
    size_t all = copy_bytes(s, s->count[0]);
    s->band = s->count[0];
    if (all > SOURCE_BYTES)
        s->band = most(1, s->band / ceiling(all, SOURCE_BYTES));
    if (s->batch < s->threads)
        s->band = least(s->band, ceiling(s->count[0], s->threads));
    if (s->across == 1)
        s->band = ceiling(s->band, BLOCK_ROWS) * BLOCK_ROWS;
    s->band = least(s->band, s->count[0]);
    s->bands = ceiling(s->count[0], s->band);
    s->phase_rows = rows_for(s, s->band);
    s->image_bytes = copy_bytes(s, s->band);
    s->together = most(
        1, least(SOURCE_BYTES / s->image_bytes, ceiling(s->batch, s->threads)));
}

/* The largest number of steps, up to PART_STEPS, of which the channels are a multiple;
 * all of them if there is none. */
static size_t part_steps(size_t steps) {
    for (size_t n = PART_STEPS; n >= PART_STEPS / 2; n--)
        if (steps % n == 0)
            return n;
    return steps;
}

static void cut_into_runs(sweep *s) {
    const size_t reach = (BLOCK_ROWS + s->taps[1]) * s->channels * sizeof(bf16);
    s->parts = 1;
    if (reach > LEFT_BYTES && (s->direct || s->channels % TILE_DEPTH == 0)) {
        size_t steps = ceiling(s->channels, TILE_DEPTH);
        s->parts = steps / part_steps(steps);
    }
    if (s->taps[0] * s->taps[1] * s->parts > MOST_RUNS)
        s->parts = 1;
    s->runs = s->taps[0] * (s->parts > 1 ? s->taps[1] * s->parts : 1);
    s->depth = s->parts > 1 ? ceiling(s->channels, TILE_DEPTH) / s->parts * TILE_DEPTH
                            : s->taps[1] * s->channels;
    s->steps = ceiling(s->depth, TILE_DEPTH);
    s->chunk = s->parts > 1 ? s->taps[1] : 1;
    if (reach * s->taps[0] <= LEFT_BYTES)
        s->chunk = s->runs;
}

/* Packed weights and sums of a panel, where threads share these. */
static size_t chunk_bytes(const sweep *s) {
    return s->panel_bytes / s->runs * s->chunk +
           ceiling(s->count[0], BLOCK_ROWS) * sizeof(block_sums);
}

void PER_ISA(sweep_plan_)(sweep *s) {
    s->channels = s->in_channels / s->group;
    s->results = s->out_channels / s->group;
    s->direct = is_matrix(s);
    if (s->direct)
        flatten(s);
    /* A window of one column reads only some columns, which are copied side by side. */
    s->columns = s->taps[1] == 1 ? 1 : s->stride;
    s->width = ceiling((s->count[1] - 1) * s->columns + s->taps[1], s->columns) *
               s->columns;
    s->across = s->width / s->columns;
    s->phases = least(s->stride, s->taps[0]);
    cut_into_runs(s);
    s->by_panels = s->direct && s->batch == 1 && s->in[1] == 1 && s->step == 1 &&
                   s->results > s->count[0];
    s->tiled = s->direct &&
               (s->parts > 1 || s->by_panels || s->channels % TILE_DEPTH != 0);
    s->panels = ceiling(s->results, BLOCK_COLS);
    s->panel_bytes = s->runs * s->steps * 2 * TILE_BYTES;
    s->near_panels = most(1, least(s->panels, PANEL_BYTES / s->panel_bytes));
    if (s->by_panels) /* of each, one chunk is packed at a time, for all blocks of rows
                       */
        s->near_panels = !s->adjacent ? 1
                                      : most(1, least(ceiling(s->panels, s->threads),
                                                      PANEL_BYTES / chunk_bytes(s)));
    cut_into_bands(s);
}

/* Bytes of a block of rows of the source, as tiles. */
static size_t block_bytes(const sweep *s) {
    return s->runs * s->steps * 2 * TILE_BYTES;
}

/* Blocks of rows that are copied as tiles before they are multiplied: one, unless they
 * are used for several sets of panels. */
static size_t blocks_at_once(const sweep *s) {
    size_t most_blocks = ceiling(s->band * s->across, BLOCK_ROWS);
    return s->panels == s->near_panels
               ? 1
               : most(1, least(most_blocks, SOURCE_BYTES / block_bytes(s)));
}

/* What all threads share: the packed weights or, if threads share these, the source. */
static size_t packed_bytes(const sweep *s) {
    return s->by_panels ? ceiling(s->count[0], BLOCK_ROWS) * block_bytes(s)
                        : s->group * s->panels * s->panel_bytes;
}

/* Of a thread: copies of images or of a block of rows, and sums of chunks. Threads that
 * share panels pack some adjacent ones at a time, to read longer stretches of memory.
 */
static size_t copies_bytes(const sweep *s) {
    if (s->by_panels)
        return s->near_panels * s->panel_bytes / s->runs * s->chunk;
    if (s->tiled)
        return blocks_at_once(s) * block_bytes(s);
    if (s->direct)
        return aligned(BLOCK_ROWS * s->channels * sizeof(bf16));
    return aligned(s->together * s->image_bytes);
}

static size_t thread_bytes(const sweep *s) {
    size_t blocks = s->by_panels ? ceiling(s->count[0], BLOCK_ROWS) : 1;
    return copies_bytes(s) + blocks * s->near_panels * sizeof(block_sums);
}

size_t PER_ISA(sweep_space_)(const sweep *s) {
    return packed_bytes(s) + s->threads * thread_bytes(s);
}

/* ---- Weights --------------------------------------------------------------------- */

/* Packs a tile of weights that lie side by side for each result: `count` of them. */
static void pack_turned(const sweep_weights *w, const float *from, size_t first,
                        size_t count, size_t results, uint32_t *tile) {
    bits row[LANES];
    const access low = {0, 1, least(count, LANES)};
    const access high = {0, 1, count > LANES ? count - LANES : 0};
    for (size_t r = 0; r < LANES; r++) {
        const float *at = from + (ptrdiff_t)r * w->result + first;
        __builtin_prefetch(at + AHEAD_NUMBERS);
        __builtin_prefetch(at + AHEAD_NUMBERS + LANES);
        bf16 numbers[TILE_DEPTH];
        vec a = {0}, b = {0};
        if (r < results && count == TILE_DEPTH) {
            a = *(const vec_there *)(const void *)at;
            b = *(const vec_there *)(const void *)(at + LANES);
        } else if (r < results && count) {
            a = load_some(low, at);
            if (high.lanes)
                b = load_some(high, at + LANES);
        }
        store_two(a, b, TILE_DEPTH, 0, numbers);
        memcpy(&row[r], numbers, sizeof row[r]);
    }
    transpose(row);
    memcpy(tile, row, sizeof row);
}

/* Packs a tile of weights whose results lie side by side. */
static void pack_pairs(const sweep *s, const sweep_weights *w, const float *from,
                       size_t first, size_t count, size_t results, uint32_t *tile) {
    const access some = {0, results < LANES, least(results, LANES)};
    const float *column = from + (ptrdiff_t)(first / s->channels) * w->column;
    size_t channel = first % s->channels;
    vec number[TILE_DEPTH];
    for (size_t k = 0; k < TILE_DEPTH; k++) {
        number[k] = (vec){0};
        __builtin_prefetch(column + (ptrdiff_t)(channel + TILE_DEPTH) * w->channel);
        if (k < count)
            number[k] = load(some, column + (ptrdiff_t)channel * w->channel);
        if (++channel == s->channels) {
            channel = 0;
            column += w->column;
        }
    }
    for (size_t k = 0; k < TILE_ROWS; k++, tile += TILE_COLS) {
        bits packed = pairs_of(number[2 * k], number[2 * k + 1]);
        memcpy(tile, &packed, sizeof packed);
    }
}

static size_t panel_tiles(const sweep *s, size_t panel) {
    return s->results - panel * BLOCK_COLS > TILE_COLS ? 2 : 1;
}

/* The place in the window of a run: row, column and first channel. */
typedef struct place {
    size_t y, x, channel;
} place;

static place place_of(const sweep *s, size_t run) {
    if (s->parts == 1)
        return (place){.y = run};
    return (place){.y = run / s->taps[1] / s->parts,
                   .x = run % s->taps[1],
                   .channel = run / s->taps[1] % s->parts * s->depth};
}

/* Packs one step of one run for one panel. */
static void pack_step(const sweep *s, const sweep_weights *w, size_t group,
                      size_t panel, size_t run, size_t step, char *packed) {
    const size_t tiles = panel_tiles(s, panel), first = step * TILE_DEPTH;
    const place from_here = place_of(s, run);
    const size_t depth = s->parts > 1 ? least(s->depth, s->channels - from_here.channel)
                                      : s->depth;
    const size_t count = depth > first ? least(depth - first, TILE_DEPTH) : 0;
    const float *begin = w->at + (ptrdiff_t)from_here.y * w->row +
                         (ptrdiff_t)from_here.x * w->column +
                         (ptrdiff_t)from_here.channel * w->channel +
                         (ptrdiff_t)group * w->group;
    for (size_t t = 0; t < tiles; t++) {
        size_t result = panel * BLOCK_COLS + t * TILE_COLS;
        size_t at = ((run * s->steps + step) * tiles + t) * TILE_BYTES;
        uint32_t *tile = (uint32_t *)(void *)(packed + at);
        const float *from = begin + (ptrdiff_t)result * w->result;
        if (w->result == 1)
            pack_pairs(s, w, from, first, count, s->results - result, tile);
        else
            pack_turned(w, from, first, count, s->results - result, tile);
    }
}

/* Packs all panels, each on one thread. */
static void pack_all(const sweep *s, const sweep_weights *w, char *packed) {
    size_t panels = s->group * s->panels;
#pragma omp for schedule(static)
    for (size_t p = 0; p < panels; p++)
        for (size_t run = 0; run < s->runs; run++)
            for (size_t step = 0; step < s->steps; step++)
                pack_step(s, w, p / s->panels, p % s->panels, run, step,
                          packed + p * s->panel_bytes);
}

/* ---- Images ---------------------------------------------------------------------- */

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

/* Finds where each run begins in the copy of an image, or in a block of tiles. */
static void find_runs(item *t) {
    const sweep *s = t->s;
    for (size_t run = 0; run < s->runs; run++) {
        const place p = place_of(s, run);
        size_t row = p.y % s->stride * s->phase_rows + p.y / s->stride;
        t->run_at[run] = s->tiled ? run * s->steps * 2 * TILE_BYTES
                                  : ((row * s->width + p.x) * s->channels + p.channel) *
                                        sizeof(bf16);
    }
}

static void copy_row(const item *t, size_t image, ptrdiff_t y, bf16 *to) {
    const sweep *s = t->s;
    const size_t channels = s->channels, stride = s->columns == 1 ? s->stride : 1;
    if (y < 0 || y >= (ptrdiff_t)s->in[0]) {
        memset(to, 0, s->width * channels * sizeof *to);
        return;
    }
    const bf16 *from = t->source +
                       (image * s->in[0] + (size_t)y) * s->in[1] * s->in_channels +
                       t->group * channels;
    ptrdiff_t x = -s->pad[1];
    for (size_t i = 0; i < s->width;) {
        size_t count = 1;
        if (x < 0 || x >= (ptrdiff_t)s->in[1]) {
            memset(to, 0, channels * sizeof *to);
        } else {
            if (stride == 1 && s->group == 1)
                count = least(s->width - i, s->in[1] - (size_t)x);
            memcpy(to, from + (size_t)x * s->in_channels,
                   count * channels * sizeof *to);
        }
        i += count;
        x += (ptrdiff_t)(count * stride);
        to += count * channels;
    }
}

/* Copies the padded rows of a band, those of each phase together. */
static void copy_image(const item *t, size_t image, char *copy) {
    const sweep *s = t->s;
    bf16 *to = (bf16 *)(void *)copy;
    for (size_t phase = 0; phase < s->phases; phase++)
        for (size_t i = 0; i < s->phase_rows; i++, to += s->width * s->channels)
            copy_row(t, image,
                     (ptrdiff_t)((t->row + i) * s->stride + phase) - s->pad[0], to);
    memset(to, 0, SLACK);
}

/* Copies up to BLOCK_ROWS pixels of the source as tiles. */
static void copy_block(const item *t, size_t pixel, size_t rows, char *tiles) {
    enum { TOGETHER = 8 }; /* steps: the lines of more would share sets of the cache */
    const size_t channels = t->s->channels, steps = ceiling(channels, TILE_DEPTH);
    for (size_t first = 0; first < steps; first += TOGETHER)
        for (size_t r = 0; r < BLOCK_ROWS; r++) {
            const bf16 *from = t->source + (pixel + r) * channels;
            for (size_t step = first; step < least(first + TOGETHER, steps); step++) {
                char *to = tiles + step * 2 * TILE_BYTES + r * TILE_ROW_BYTES;
                size_t count = r < rows
                                   ? least(channels - step * TILE_DEPTH, TILE_DEPTH)
                                   : 0;
                if (count == TILE_DEPTH) {
                    __builtin_prefetch((const char *)(from + step * TILE_DEPTH) +
                                       AHEAD);
                    memcpy(to, from + step * TILE_DEPTH, TILE_ROW_BYTES);
                    continue;
                }
                memset(to, 0, TILE_ROW_BYTES);
                if (count)
                    memcpy(to, from + step * TILE_DEPTH, count * sizeof(bf16));
            }
        }
}

/* ---- Results --------------------------------------------------------------------- */

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
    for (size_t r = 0; r < rows; r++, to += apart) {
        vec low = row_part(sums[r], 0) + v->bias[0];
        vec high = row_part(sums[r], 1) + v->bias[1];
        if (how.add) {
            low += load_some((access){1, 1, least(count, LANES)}, to);
            if (count > LANES)
                high += load_some((access){1, 1, count - LANES}, to + LANES);
        }
        store_two(bounded(how.limit, &v->limit, low),
                  bounded(how.limit, &v->limit, high), count, how.stream, to);
    }
}

/* Stores a block of results: those of each padded row without what is between rows. */
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

/* The factors of one chunk of a panel. */
static block_factors factors_of(const item *t, const char *left, size_t panel,
                                size_t run, const char *packed) {
    const sweep *s = t->s;
    const size_t tiles = panel_tiles(s, panel);
    const size_t row = s->columns * s->channels * sizeof(bf16);
    return (block_factors){
        .left = left,
        .left_row = s->tiled ? TILE_ROW_BYTES : row,
        .left_tile = s->tiled ? TILE_BYTES : TILE_ROWS * row,
        .left_step = s->tiled ? 2 * TILE_BYTES : TILE_ROW_BYTES,
        .left_at = t->run_at + run,
        .runs = s->chunk,
        .steps = s->steps,
        .right = packed + run * s->steps * tiles * TILE_BYTES,
        .right_step = tiles * TILE_BYTES,
        .right_tile = TILE_BYTES,
    };
}

/* Computes up to BLOCK_ROWS results of some panels, from the rows at `left`. The
 * results of a panel are stored while the tiles multiply the next one. */
static void do_block(const item *t, const char *left, size_t image, size_t first,
                     size_t panel, size_t panels, const char *packed) {
    const sweep *s = t->s;
    const size_t rows = least(t->rows * s->across - first, BLOCK_ROWS);
    block_sums done[2];
    for (size_t run = 0; run < s->runs; run += s->chunk) {
        const int last = run + s->chunk == s->runs;
        for (size_t p = 0; p < panels; p++) {
            const block_factors f = factors_of(t, left, panel + p, run,
                                               packed + p * s->panel_bytes);
            block_sum(&f, rows, s->results - (panel + p) * BLOCK_COLS,
                      run ? &t->sums[p] : NULL, last ? &done[p % 2] : &t->sums[p]);
            if (last && p)
                store_block(t, image, first, rows, panel + p - 1, &done[(p - 1) % 2]);
        }
    }
    store_block(t, image, first, rows, panel + panels - 1, &done[(panels - 1) % 2]);
}

/* Some blocks of rows of one image as tiles, for all panels: weights that stay in the
 * cache are used for all rows before the next ones. */
static void do_tiled(const item *t, size_t image, size_t first) {
    const sweep *s = t->s;
    const size_t end = least(first + blocks_at_once(s) * BLOCK_ROWS,
                             t->rows * s->across);
    const size_t pixel = (image * s->in[0] + t->row) * s->in[1];
    for (size_t r = first; r < end; r += BLOCK_ROWS)
        copy_block(t, pixel + r, end - r,
                   t->copies + (r - first) / BLOCK_ROWS * block_bytes(s));
    for (size_t panel = 0; panel < s->panels; panel += s->near_panels)
        for (size_t r = first; r < end; r += BLOCK_ROWS)
            do_block(t, t->copies + (r - first) / BLOCK_ROWS * block_bytes(s), image, r,
                     panel, least(s->near_panels, s->panels - panel),
                     t->packed + panel * s->panel_bytes);
}

/* Where a block of rows is that begins at a pixel. A last block of fewer rows is
 * copied, since tiles are read whole. */
static const char *rows_at(const item *t, size_t pixel) {
    const sweep *s = t->s;
    const size_t row = s->channels * sizeof(bf16);
    const size_t rows = s->batch * s->in[0] * s->in[1] - pixel;
    const char *from = (const char *)t->source + pixel * row;
    if (rows >= BLOCK_ROWS) {
        for (size_t at = 0; at < BLOCK_ROWS * row; at += TILE_ROW_BYTES)
            __builtin_prefetch(from + AHEAD + at, 0, 2);
        return from;
    }
    memcpy(t->copies, from, rows * row);
    memset(t->copies + rows * row, 0, (BLOCK_ROWS - rows) * row);
    return t->copies;
}

static void do_rows(const item *t, size_t image) {
    const sweep *s = t->s;
    const size_t pixel = (image * s->in[0] + t->row) * s->in[1];
    for (size_t panel = 0; panel < s->panels; panel += s->near_panels)
        for (size_t r = 0; r < t->rows * s->across; r += BLOCK_ROWS)
            do_block(t, rows_at(t, pixel + r), image, r, panel,
                     least(s->near_panels, s->panels - panel),
                     t->packed + panel * s->panel_bytes);
}

static void do_images(const item *t) {
    const sweep *s = t->s;
    const size_t results = t->rows * s->across;
    for (size_t i = 0; i < t->images; i++)
        copy_image(t, t->image + i, t->copies + i * s->image_bytes);
    for (size_t panel = 0; panel < s->panels; panel += s->near_panels)
        for (size_t i = 0; i < t->images; i++)
            for (size_t r = 0; r < results; r += BLOCK_ROWS)
                do_block(t,
                         t->copies + i * s->image_bytes +
                             r * s->columns * s->channels * sizeof(bf16),
                         t->image + i, r, panel,
                         least(s->near_panels, s->panels - panel),
                         t->packed + panel * s->panel_bytes);
}

/* Threads share images and their bands. */
static void run_items(item *t, const char *packed) {
    const sweep *s = t->s;
    size_t sets = ceiling(s->batch, s->together), items = s->group * sets * s->bands;
#pragma omp for schedule(static)
    for (size_t n = 0; n < items; n++) {
        t->group = n / (sets * s->bands);
        t->packed = packed + t->group * s->panels * s->panel_bytes;
        t->image = n / s->bands % sets * s->together;
        t->images = least(s->together, s->batch - t->image);
        t->row = n % s->bands * s->band;
        t->rows = least(s->band, s->count[0] - t->row);
        if (!s->direct)
            do_images(t);
        for (size_t i = 0; s->direct && !s->tiled && i < t->images; i++)
            do_rows(t, t->image + i);
        for (size_t i = 0; s->tiled && i < t->images; i++)
            for (size_t r = 0; r < t->rows * s->across;
                 r += blocks_at_once(s) * BLOCK_ROWS)
                do_tiled(t, t->image + i, r);
    }
}

/* Packs one chunk of the weights of some panels. */
static void pack_chunk(const sweep *s, const sweep_weights *w, size_t panel,
                       size_t panels, size_t run, char *packed) {
    for (size_t r = run; r < run + s->chunk; r++)
        for (size_t step = 0; step < s->steps; step++)
            for (size_t p = 0; p < panels; p++)
                pack_step(s, w, 0, panel + p, r, step,
                          packed + p * s->panel_bytes / s->runs * s->chunk -
                              run * s->steps * panel_tiles(s, panel + p) * TILE_BYTES);
}

/* Adds the products of a chunk of the whole source and some panels. */
static void do_chunk(const item *t, const char *source, size_t panel, size_t panels,
                     size_t run) {
    const sweep *s = t->s;
    const int last = run + s->chunk == s->runs;
    for (size_t first = 0; first < s->count[0]; first += BLOCK_ROWS) {
        const size_t block = first / BLOCK_ROWS;
        const size_t rows = least(s->count[0] - first, BLOCK_ROWS);
        for (size_t p = 0; p < panels; p++) {
            block_factors f = factors_of(t, source + block * block_bytes(s), panel + p,
                                         run, t->copies);
            block_sums done, *kept = &t->sums[block * s->near_panels + p];
            f.right = t->copies + p * s->panel_bytes / s->runs * s->chunk;
            block_sum(&f, rows, s->results - (panel + p) * BLOCK_COLS,
                      run ? kept : NULL, last ? &done : kept);
            if (last)
                store_block(t, 0, first, rows, panel + p, &done);
        }
    }
}

/* Threads share the panels, and each multiplies the whole source by its own, chunk by
 * chunk. */
static void run_panels(item *t, const sweep_weights *w, char *source) {
    const sweep *s = t->s;
    const size_t blocks = ceiling(s->count[0], BLOCK_ROWS);
    t->images = 1;
    t->rows = s->count[0];
#pragma omp for schedule(static)
    for (size_t b = 0; b < blocks; b++)
        copy_block(t, b * BLOCK_ROWS, s->count[0] - b * BLOCK_ROWS,
                   source + b * block_bytes(s));
#pragma omp for schedule(static)
    for (size_t panel = 0; panel < s->panels; panel += s->near_panels) {
        size_t panels = least(s->near_panels, s->panels - panel);
        for (size_t run = 0; run < s->runs; run += s->chunk) {
            pack_chunk(s, w, panel, panels, run, t->copies);
            do_chunk(t, source, panel, panels, run);
        }
    }
}

void PER_ISA(sweep_run_)(const sweep *s, const bf16 *source,
                         const sweep_weights *weights, const float *bias,
                         const bounds *limit, int add, bf16 *out, void *space) {
    const size_t out_bytes = s->batch * s->out[0] * s->out[1] * s->out_channels *
                             sizeof(bf16);
    const int stream = out_bytes >= STREAM_BYTES && s->results % BLOCK_COLS == 0;
#pragma omp parallel num_threads((int)s->threads)
    {
        item t = {.s = s,
                  .bias = bias,
                  .limit = limit,
                  .out = out,
                  .source = source,
                  .stream = stream,
                  .add = add};
        t.copies = (char *)space + packed_bytes(s) +
                   (size_t)omp_get_thread_num() * thread_bytes(s);
        t.sums = (block_sums *)(void *)(t.copies + copies_bytes(s));
        find_runs(&t);
        tiles_begin();
        if (s->by_panels) {
            run_panels(&t, weights, space);
        } else {
            pack_all(s, weights, space);
            run_items(&t, space);
        }
        tiles_end();
        if (stream)
            stream_end();
    }
}
