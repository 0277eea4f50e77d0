/* Sweeps a window over images by products of tiles.
 *
 * The left factor's rows are results of an image one after the other, in the order of
 * padded rows, so that a tile may reach from one row into the next; what falls between
 * two rows is computed and dropped. Its columns are the numbers of a row of the window,
 * which lie side by side in the padded image.
 */
#include "amx_panels.h"
#include "amx_products.h"
#include "amx_results.h"

#include <omp.h>

enum {
    STREAM_BYTES = 8 << 20, /* of results that the caches do not keep */
    AHEAD = 16 << 10,       /* bytes to prefetch, as the hardware stops at pages */
};

/* ---- Images ---------------------------------------------------------------------- */

/* Finds where each run begins in the copy of an image, or in a block of tiles. */
static void find_runs(item *t) {
    const sweep *s = t->s;
    for (size_t n = 0; n < s->runs; n++) {
        const sweep_place p = sweep_place_of(s, n);
        size_t row = p.y % s->stride * s->phase_rows + p.y / s->stride;
        t->run_at[n] = s->tiled ? n * s->steps * 2 * TILE_BYTES
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

/* Copies the padded rows of a band, phase after phase. */
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

/* ---- Blocks, items and panels ---------------------------------------------------- */

/* The factors of the chunk of a panel that begins with a run. */
static block_factors factors_of(const item *t, const char *left, size_t panel,
                                size_t run, const char *right) {
    const sweep *s = t->s;
    const size_t tiles = sweep_panel_tiles(s, panel);
    const size_t row = s->columns * s->channels * sizeof(bf16);
    return (block_factors){
        .left = left,
        .left_row = s->tiled ? TILE_ROW_BYTES : row,
        .left_tile = s->tiled ? TILE_BYTES : TILE_ROWS * row,
        .left_step = s->tiled ? 2 * TILE_BYTES : TILE_ROW_BYTES,
        .left_at = t->run_at + run,
        .runs = s->chunk,
        .steps = s->steps,
        .right = right,
        .right_step = tiles * TILE_BYTES,
        .right_tile = TILE_BYTES,
    };
}

/* Computes up to BLOCK_ROWS results of the near panels from `panel` on, from the rows
 * at `left`. The results of a panel are stored while the tiles multiply the next one.
 */
static void do_block(const item *t, const char *left, size_t image, size_t first,
                     size_t panel) {
    const sweep *s = t->s;
    const size_t panels = least(s->near_panels, s->panels - panel);
    const size_t rows = least(t->rows * s->across - first, BLOCK_ROWS);
    block_sums done[2];
    for (size_t run = 0; run < s->runs; run += s->chunk) {
        const int last = run + s->chunk == s->runs;
        for (size_t p = 0; p < panels; p++) {
            const char *right = t->packed + (panel + p) * s->panel_bytes +
                                step_at(s, panel + p, run, 0);
            const block_factors f = factors_of(t, left, panel + p, run, right);
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
    const size_t end = least(first + sweep_blocks_at_once(s) * BLOCK_ROWS,
                             t->rows * s->across);
    const size_t pixel = (image * s->in[0] + t->row) * s->in[1];
    for (size_t r = first; r < end; r += BLOCK_ROWS)
        copy_block(t, pixel + r, end - r,
                   t->copies + (r - first) / BLOCK_ROWS * s->panel_bytes);
    for (size_t panel = 0; panel < s->panels; panel += s->near_panels)
        for (size_t r = first; r < end; r += BLOCK_ROWS)
            do_block(t, t->copies + (r - first) / BLOCK_ROWS * s->panel_bytes, image, r,
                     panel);
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
            do_block(t, rows_at(t, pixel + r), image, r, panel);
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
                         t->image + i, r, panel);
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
                 r += sweep_blocks_at_once(s) * BLOCK_ROWS)
                do_tiled(t, t->image + i, r);
    }
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
            const block_factors f = factors_of(t, source + block * s->panel_bytes,
                                               panel + p, run,
                                               t->copies + p * sweep_chunk_bytes(s));
            block_sums done, *kept = &t->sums[block * s->near_panels + p];
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
                   source + b * s->panel_bytes);
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
        t.copies = (char *)space + sweep_packed_bytes(s) +
                   (size_t)omp_get_thread_num() * sweep_thread_bytes(s);
        t.sums = (block_sums *)(void *)(t.copies + sweep_copies_bytes(s));
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
