/* How the work of a sweep is cut: bands of images, runs and chunks of the window, and
 * panels of weights, from the shape, the number of threads and the sizes of caches. */
#include "amx_plan.h"

enum {
    LEFT_BYTES = 24 << 10,    /* of the left factor in the first cache */
    SOURCE_BYTES = 512 << 10, /* of padded images that a thread works on at a time */
    PANEL_BYTES = 768 << 10,  /* of packed weights that stay in a core's own cache */
    MORE_SOURCE = 1 << 20,    /* the same where weights do not stay there */
    FEWER_PANELS = 384 << 10,
    PART_STEPS = 10, /* of a part of the channels, at most */
};

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
    if (all > s->source_bytes)
        s->band = most(1, s->band / ceiling(all, s->source_bytes));
    if (s->batch < s->threads)
        s->band = least(s->band, ceiling(s->count[0], s->threads));
    if (s->across == 1)
        s->band = ceiling(s->band, BLOCK_ROWS) * BLOCK_ROWS;
    s->band = least(s->band, s->count[0]);
    s->bands = ceiling(s->count[0], s->band);
    s->phase_rows = rows_for(s, s->band);
    s->image_bytes = copy_bytes(s, s->band);
    s->together = most(
        1, least(s->source_bytes / s->image_bytes, ceiling(s->batch, s->threads)));
}

/* The largest divisor of `steps` from half of PART_STEPS to PART_STEPS; `steps` if
 * there is none. */
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

/* Weights that do not stay in the cache are read again for each set of images, so these
 * are larger. Threads that share the panels pack one chunk of each at a time; where
 * weights of adjacent results are adjacent, many panels make longer reads. */
static void choose_near_panels(sweep *s) {
    const size_t sums = ceiling(s->count[0], BLOCK_ROWS) * sizeof(block_sums);
    s->near_panels = least(s->panels, PANEL_BYTES / s->panel_bytes);
    s->source_bytes = SOURCE_BYTES;
    if (s->near_panels < s->panels) {
        s->near_panels = most(1, FEWER_PANELS / s->panel_bytes);
        s->source_bytes = MORE_SOURCE;
    }
    if (s->by_panels && s->adjacent)
        s->near_panels = most(1, least(ceiling(s->panels, s->threads),
                                       PANEL_BYTES / (sweep_chunk_bytes(s) + sums)));
    else if (s->by_panels)
        s->near_panels = 1;
}

void sweep_plan(sweep *s) {
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
    choose_near_panels(s);
    cut_into_bands(s);
}

/* Blocks of rows that are copied as tiles before they are multiplied: one, unless they
 * are used for several sets of panels. */
size_t sweep_blocks_at_once(const sweep *s) {
    size_t most_blocks = ceiling(s->band * s->across, BLOCK_ROWS);
    return s->panels == s->near_panels
               ? 1
               : most(1, least(most_blocks, s->source_bytes / s->panel_bytes));
}

/* What all threads share: the packed weights or, if threads share these, the source. */
size_t sweep_packed_bytes(const sweep *s) {
    return s->by_panels ? ceiling(s->count[0], BLOCK_ROWS) * s->panel_bytes
                        : s->group * s->panels * s->panel_bytes;
}

/* Of a thread: copies of images or of a block of rows, and sums of chunks. Threads that
 * share panels pack some adjacent ones at a time, to read longer stretches of memory.
 */
size_t sweep_copies_bytes(const sweep *s) {
    if (s->by_panels)
        return s->near_panels * sweep_chunk_bytes(s);
    if (s->tiled)
        return sweep_blocks_at_once(s) * s->panel_bytes;
    if (s->direct)
        return aligned(BLOCK_ROWS * s->channels * sizeof(bf16));
    return aligned(s->together * s->image_bytes);
}

size_t sweep_thread_bytes(const sweep *s) {
    size_t blocks = s->by_panels ? ceiling(s->count[0], BLOCK_ROWS) : 1;
    return sweep_copies_bytes(s) + blocks * s->near_panels * sizeof(block_sums);
}

size_t sweep_space(const sweep *s) {
    return sweep_packed_bytes(s) + s->threads * sweep_thread_bytes(s);
}

sweep_place sweep_place_of(const sweep *s, size_t run) {
    if (s->parts == 1)
        return (sweep_place){.y = run};
    return (sweep_place){.y = run / s->taps[1] / s->parts,
                         .x = run % s->taps[1],
                         .channel = run / s->taps[1] % s->parts * s->depth};
}
