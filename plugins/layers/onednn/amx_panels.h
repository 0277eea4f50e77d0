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
        vec part[2] = {{0}, {0}};
        if (r < results) {
            part[0] = load_some(low, at);
            part[1] = load_some(high, at + LANES);
        }
        store_adjacent((access){1, 0, LANES}, 2, 0, numbers, part);
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

/* Packs one step of one run for one panel: its tiles side by side. */
static void pack_step(const sweep *s, const sweep_weights *w, size_t group,
                      size_t panel, size_t run, size_t step, char *to) {
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
        uint32_t *tile = (uint32_t *)(void *)(to + t * TILE_BYTES);
        const float *from = begin + (ptrdiff_t)result * w->result;
        if (w->result == 1)
            pack_pairs(s, w, from, first, count, s->results - result, tile);
        else
            pack_turned(w, from, first, count, s->results - result, tile);
    }
}

/* Where a step of a run is within the packed weights of a panel. */
static size_t step_at(const sweep *s, size_t panel, size_t run, size_t step) {
    return (run * s->steps + step) * sweep_panel_tiles(s, panel) * TILE_BYTES;
}

/* Packs all panels, each on one thread. */
static void pack_all(const sweep *s, const sweep_weights *w, char *packed) {
    size_t panels = s->group * s->panels;
#pragma omp for schedule(static)
    for (size_t n = 0; n < panels; n++) {
        const size_t panel = n % s->panels;
        for (size_t run = 0; run < s->runs; run++)
            for (size_t step = 0; step < s->steps; step++)
                pack_step(s, w, n / s->panels, panel, run, step,
                          packed + n * s->panel_bytes + step_at(s, panel, run, step));
    }
}

/* Packs one chunk of some panels, beginning with a run. */
static void pack_chunk(const sweep *s, const sweep_weights *w, size_t panel,
                       size_t panels, size_t run, char *packed) {
    for (size_t r = 0; r < s->chunk; r++)
        for (size_t step = 0; step < s->steps; step++)
            for (size_t p = 0; p < panels; p++)
                pack_step(s, w, 0, panel + p, run + r, step,
                          packed + p * sweep_chunk_bytes(s) +
                              step_at(s, panel + p, r, step));
}

#endif
