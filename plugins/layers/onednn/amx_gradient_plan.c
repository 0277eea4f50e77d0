/* How the sum of a gradient of weights is cut: slices, parts, units and bands, from the
 * shape alone, so that results do not depend on the number of threads. */
#include "amx_plan.h"

enum {
    UNIT_BYTES = 1 << 20,         /* of both factors in a core's own cache */
    PART_BYTES = 16 << 20,        /* of the sums of all parts */
    PART_WORK = 8 << 20,          /* multiply-adds */
    TASKS = 32,                   /* to share, where parts may be made */
    SLICE = 256,                  /* rows of the left factor of a task */
    FEW_CHANNELS = TILE_ROWS - 1, /* rows of tiles are shared by places of the window */
};

static size_t steps_for(const gradient *g, size_t band) {
    return ceiling(band * g->across, TILE_DEPTH);
}

/* Rows of tiles begin in different sets of the cache: their distance is an odd number
 * of lines. */
static size_t plane_for(const gradient *g, size_t band) {
    size_t shift = g->unfolded ? 0 : (g->kernel[1] - 1) / g->stride;
    size_t positions = steps_for(g, band) * TILE_DEPTH +
                       (g->kernel[0] - 1) / g->stride * g->across + shift;
    return (ceiling(positions, TILE_DEPTH) | 1) * TILE_DEPTH;
}

static size_t planes_of(const gradient *g) {
    return g->row_phases * g->column_phases;
}

static size_t left_bytes(const gradient *g, size_t band) {
    return planes_of(g) * g->slice * plane_for(g, band) * sizeof(bf16);
}

static size_t right_bytes(const gradient *g, size_t band) {
    return steps_for(g, band) * 2 * g->panels * TILE_BYTES;
}

static size_t unit_bytes(const gradient *g, size_t band) {
    return left_bytes(g, band) + right_bytes(g, band);
}

/* A matrix of pixels and channels is one image of one column. */
static void make_matrix(gradient *g) {
    size_t pixels = g->batch * g->out[0] * g->out[1];
    const factor left = g->left;
    g->left = g->right;
    g->right = left;
    g->swapped = 1;
    g->batch = 1;
    g->out[0] = g->left.side[0] = g->right.side[0] = pixels;
    g->out[1] = g->left.side[1] = g->right.side[1] = 1;
}

static void cut_batch(gradient *g) {
    g->band = g->out[0];
    while (steps_for(g, g->band) > 1 && g->band > 1 &&
           unit_bytes(g, g->band) > UNIT_BYTES)
        g->band = ceiling(g->band, 2);
    g->bands = ceiling(g->out[0], g->band);
    g->band = ceiling(g->out[0], g->bands);
    g->together = 1;
    if (g->bands == 1)
        g->together = most(1, least(least(g->batch, MOST_TOGETHER),
                                    UNIT_BYTES / unit_bytes(g, g->band)));
    g->sets = most(1, ceiling(g->batch, g->together));
    g->together = ceiling(g->batch, g->sets);
    g->plane = plane_for(g, g->band);
    g->steps = steps_for(g, g->band);
}

size_t gradient_sums_bytes(const gradient *g) {
    size_t blocks = ceiling(g->slice, BLOCK_ROWS) * g->slices * g->places * g->panels;
    return g->group * blocks * sizeof(block_sums);
}

/* Parts are worth their sums where there is work to share, and while sums are small. */
static size_t parts_of(const gradient *g) {
    const size_t work = g->batch * g->out[0] * g->out[1] * g->group * g->rows *
                        g->places * g->right.channels;
    size_t parts = least(ceiling(TASKS, g->group * g->slices), work / PART_WORK);
    return most(1, least(parts, least(g->sets * g->bands,
                                      PART_BYTES / gradient_sums_bytes(g))));
}

gradient gradient_plan(const amx_conv *c) {
    gradient g = {.threads = c->threads,
                  .group = c->group,
                  .batch = c->batch,
                  .stride = c->stride};
    g.left = (factor){.all = c->in_channels, .channels = c->in_channels / c->group};
    g.right = (factor){.all = c->out_channels, .channels = c->out_channels / c->group};
    for (int d = 0; d < 2; d++) {
        g.kernel[d] = c->kernel[d];
        g.pad[d] = c->pad[d];
        g.out[d] = g.right.side[d] = c->out[d];
        g.left.side[d] = c->in[d];
    }
    if (c->kernel[0] * c->kernel[1] * c->stride == 1 && !c->pad[0] && !c->pad[1])
        make_matrix(&g);
    g.unfolded = !g.swapped && g.group == 1 && g.left.channels <= FEW_CHANNELS;
    g.row_phases = least(g.stride, g.kernel[0]);
    g.column_phases = g.unfolded ? 1 : least(g.stride, g.kernel[1]);
    g.across = g.out[1] + (g.unfolded ? 0 : (g.kernel[1] - 1) / g.stride);
    g.rows = g.unfolded ? g.kernel[1] * g.left.channels : g.left.channels;
    g.slices = g.unfolded ? 1 : ceiling(g.rows, SLICE);
    g.slice = ceiling(ceiling(g.rows, g.slices), BLOCK_ROWS) * BLOCK_ROWS;
    g.slices = ceiling(g.rows, g.slice);
    g.places = g.kernel[0] * (g.unfolded ? 1 : g.kernel[1]);
    g.panels = ceiling(g.right.channels, BLOCK_COLS);
    cut_batch(&g);
    g.parts = parts_of(&g);
    return g;
}

/* Of a band of an image with few channels. */
size_t gradient_padded_width(const gradient *g) {
    return (g->out[1] - 1) * g->stride + g->kernel[1];
}

size_t gradient_padded_rows(const gradient *g) {
    return (g->band - 1) * g->stride + g->kernel[0];
}

static size_t padded_bytes(const gradient *g) {
    size_t pixels = g->unfolded ? gradient_padded_rows(g) * gradient_padded_width(g)
                                : 0;
    return aligned(pixels * g->left.channels * sizeof(bf16) + PADDED_SLACK);
}

size_t gradient_thread_bytes(const gradient *g) {
    return g->together * unit_bytes(g, g->band) + padded_bytes(g);
}

size_t gradient_bias_bytes(const amx_conv *c) {
    return BIAS_CHUNKS * ceiling(c->out_channels, TILE_COLS) * TILE_COLS *
           sizeof(float);
}

size_t gradient_space(const amx_conv *c) {
    const gradient g = gradient_plan(c);
    return g.parts * gradient_sums_bytes(&g) + g.threads * gradient_thread_bytes(&g) +
           gradient_bias_bytes(c);
}

size_t gradient_left_bytes(const gradient *g) {
    return left_bytes(g, g->band);
}

size_t gradient_right_bytes(const gradient *g) {
    return right_bytes(g, g->band);
}
