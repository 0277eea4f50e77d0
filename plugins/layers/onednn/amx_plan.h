/* What the products of a convolution by AMX's tiles are cut into: sweeps for forward
 * and backward to the data, and gradients of weights. */
#ifndef ONEDNN_AMX_PLAN_H
#define ONEDNN_AMX_PLAN_H

#include "amx.h"
#include "sizes.h"

enum {
    TILE_ROWS = 16,
    TILE_ROW_BYTES = 64,
    TILE_BYTES = TILE_ROWS * TILE_ROW_BYTES,
    TILE_DEPTH = 32, /* bfloat16 numbers in a row of the left factor */
    TILE_COLS = 16,  /* float32 numbers in a row of sums */
    BLOCK_ROWS = 2 * TILE_ROWS,
    BLOCK_COLS = 2 * TILE_COLS,
};

/* The sums of a block, row by row. */
typedef struct block_sums {
    _Alignas(64) float at[BLOCK_ROWS][BLOCK_COLS];
} block_sums;

/* ---- Sweeps ---------------------------------------------------------------------- */

enum {
    SLACK = 64, /* zeros that may be read behind an image */
    MOST_RUNS = 1024,
};

/* A window that slides over the padded images of a batch. For result (i, j) of an
 * image, and each of its channels,
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
    size_t source_bytes;      /* of copies that a thread works on at a time */
    /* The numbers of a window come in runs that lie side by side in the source: a row
     * of the window, or, with many channels, a part of the channels at one place. */
    size_t parts;       /* of the channels */
    size_t runs, depth; /* how many, and the numbers of each */
    size_t steps;       /* tiles of a run, each TILE_DEPTH numbers deep */
    size_t chunk;       /* runs whose part of the left factor fits the first cache */
    size_t panels;      /* of BLOCK_COLS results of a group */
    size_t panel_bytes; /* of a panel's packed weights, or a block of rows as tiles */
    size_t near_panels; /* as many as stay in a core's own cache */
} sweep;

void sweep_plan(sweep *s);
size_t sweep_space(const sweep *s);

/* Blocks of rows that are copied as tiles before they are multiplied. */
size_t sweep_blocks_at_once(const sweep *s);
/* What all threads share: the packed weights or, if threads share these, the source. */
size_t sweep_packed_bytes(const sweep *s);
/* Bytes of a thread: copies of images or of blocks of rows; the same with the sums of
 * chunks. */
size_t sweep_copies_bytes(const sweep *s);
size_t sweep_thread_bytes(const sweep *s);

/* The place in the window of a run: row, column and first channel. */
typedef struct sweep_place {
    size_t y, x, channel;
} sweep_place;
sweep_place sweep_place_of(const sweep *s, size_t run);

/* Bytes of one chunk of a panel's packed weights. */
static inline size_t sweep_chunk_bytes(const sweep *s) {
    return s->chunk * s->steps * 2 * TILE_BYTES;
}

/* Tiles beside each other in a panel. */
static inline size_t sweep_panel_tiles(const sweep *s, size_t panel) {
    return s->results - panel * BLOCK_COLS > TILE_COLS ? 2 : 1;
}

/* ---- Gradients of weights -------------------------------------------------------- */

enum {
    MOST_TOGETHER = 32, /* images of a unit */
    BIAS_CHUNKS = 64,
    PADDED_SLACK = 64, /* bytes that may be read behind a padded image */
};

/* One of the two factors, in memory. */
typedef struct factor {
    const bf16 *at;
    size_t side[2];       /* of the image */
    size_t all, channels; /* of the image, and of a group */
} factor;

typedef struct gradient {
    size_t threads, group, batch;
    size_t kernel[2], stride, pad[2], out[2];
    factor left, right;
    int swapped;  /* the gradient of the output is the left factor */
    int unfolded; /* rows of the left factor are columns of the window, and channels */

    size_t across; /* positions of a padded row */
    size_t row_phases, column_phases;
    size_t rows;          /* of the left factor: numbers of a group */
    size_t slice, slices; /* rows of a task */
    size_t places;        /* shifts: places of the window, or its rows */
    size_t band, bands;   /* rows of results of a unit */
    size_t plane;         /* positions between rows of the left factor */
    size_t steps;         /* of 32 positions, for an image of a unit */
    size_t together;      /* images of a unit */
    size_t sets;          /* units = sets of images x bands */
    size_t parts;
    size_t panels; /* of BLOCK_COLS numbers of the right factor */
} gradient;

gradient gradient_plan(const amx_conv *conv);
size_t gradient_space(const amx_conv *conv);

/* Bytes: of each factor, for one image of a unit; of the sums of a part; of a thread;
 * of the sums of biases. Width and rows of a padded image of few channels. */
size_t gradient_left_bytes(const gradient *g);
size_t gradient_right_bytes(const gradient *g);
size_t gradient_sums_bytes(const gradient *g);
size_t gradient_padded_width(const gradient *g);
size_t gradient_padded_rows(const gradient *g);
size_t gradient_thread_bytes(const gradient *g);
size_t gradient_bias_bytes(const amx_conv *conv);

#endif
