/* Windows that slide over the padded images of a batch (amx_sweep.c): what forward and
 * backward to the data have in common. Compiled once for each instruction set. */
#ifndef ONEDNN_AMX_SWEEP_H
#define ONEDNN_AMX_SWEEP_H

#include "amx_blocks.h"

/* For result (i, j) of an image, and each of its channels,
 *
 *     result = sum over y < taps[0], x < taps[1], c < channels of
 *              source[stride * i + y - pad[0]][stride * j + x - pad[1]][c] *
 *              weight[y][x][c],
 *
 * where the source is zero outside the image. */
typedef struct sweep {
    size_t threads, batch, group;
    size_t in[2], in_channels; /* of the source, all groups */
    size_t out[2], out_channels;
    /* Result (i, j) is pixel first + step * (i, j) of the output. */
    size_t first[2], step, count[2];
    size_t taps[2], stride;
    ptrdiff_t pad[2];
    int adjacent; /* weights of adjacent results are adjacent */

    /* Set by sweep_plan(). */
    size_t channels, results; /* of a group, of source and output */
    int direct;               /* the source is a matrix, read where it is or as tiles */
    int tiled;                /* blocks of its rows are copied as tiles */
    int by_panels;            /* threads share the weights, not the images */
    size_t columns;           /* pixels from one result to the next in a padded row */
    size_t width, across;     /* of a padded row: pixels, and results */
    size_t phases;            /* sets of rows whose numbers have the same remainder */
    size_t band, bands;       /* rows of results done together, and how often */
    size_t phase_rows;        /* of a band, in each phase */
    size_t image_bytes;       /* of a band's padded copy */
    size_t together;          /* images of an item of work */
    /* The numbers of a window come in runs that lie side by side in the source: a row
     * of the window, or, with many channels, a part of the channels at one place. */
    size_t parts;       /* of the channels */
    size_t runs, depth; /* and the numbers of a run */
    size_t steps;       /* tiles of a run */
    size_t chunk;       /* runs whose part of the left factor fits the first cache */
    size_t panels;      /* of BLOCK_COLS results of a group */
    size_t panel_bytes; /* of the packed weights of a panel */
    size_t near_panels; /* as many as stay in a core's own cache */
} sweep;

/* Where the weights are, in numbers: of a row and a column of the window, a channel of
 * the source, a result, and a group. Either rows of the window lie side by side for
 * each result (column = channels, channel = 1), or results do (result = 1). */
typedef struct sweep_weights {
    const float *at;
    ptrdiff_t row, column, channel, result, group;
} sweep_weights;

void PER_ISA(sweep_plan_)(sweep *s);
size_t PER_ISA(sweep_space_)(const sweep *s);
/* `bias` may be NULL. `add`: to what is in `out`. */
void PER_ISA(sweep_run_)(const sweep *s, const bf16 *source,
                         const sweep_weights *weights, const float *bias,
                         const bounds *limit, int add, bf16 *out, void *space);

#endif
