/* Weights packed as tiles of pairs, panel by panel, for amx_sweep.c. */
#ifndef ONEDNN_AMX_PANELS_H
#define ONEDNN_AMX_PANELS_H

#include "amx_blocks.h"
#include "amx_products.h"

enum { AHEAD_NUMBERS = 256 }; /* of weights to prefetch in each row */

/* Packs a tile from `count` weights of each result, which are adjacent in memory. */
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

/* Packs one step of one run for one panel. */
static void pack_step(const sweep *s, const sweep_weights *w, size_t group,
                      size_t panel, size_t run, size_t step, char *packed) {
    const size_t tiles = sweep_panel_tiles(s, panel), first = step * TILE_DEPTH;
    const sweep_place from_here = sweep_place_of(s, run);
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

#endif
