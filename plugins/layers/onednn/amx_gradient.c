/* Gradients of weights: for each place in the window the product of the input, shifted
 * by that place, and the gradient of the output, added up over the pixels of the batch.
 *
 * Both factors are copied to the cache: the left one transposed, so that a row holds
 * the pixels of one channel side by side and a shift is an offset, the right one in
 * pairs of pixels. The pixels of an image have the order of padded rows; where there is
 * no result the right factor is zero. For a window of one pixel, which is never
 * shifted, the gradient of the output is the left factor: the sums then come in the
 * order of the weights.
 *
 * The sum is cut into *parts* of the batch, and a part into *units*, bands of rows of
 * some images, by the shape alone. Parts are added in order.
 */
#include "amx_copies.h"
#include "amx_products.h"

#include <omp.h>

enum {
    SUMS_BYTES = 320 << 10, /* of sums that are worked on together */
    CHUNK_STEPS = 8,        /* whose left factor stays in the first cache */
    STREAM_BYTES = 8 << 20, /* of weights that the caches do not keep */
};

/* ---- A task: a slice of the left factor, and a part of the batch ------------------
 */

typedef struct task {
    const gradient *g;
    size_t group, slice, part;
    float *weights_diff;
    block_sums *sums; /* of this group and slice: [place][block of rows][panel] */
    char *left, *right;
    bf16 *padded; /* an image of few channels */
    int stream;
} task;

typedef struct unit {
    size_t image, images, row, rows;
} unit;

static unit unit_of(const gradient *g, size_t n) {
    unit u = {.image = n / g->bands * g->together, .row = n % g->bands * g->band};
    u.images = least(g->together, g->batch - u.image);
    u.rows = least(g->band, g->out[0] - u.row);
    return u;
}

static placing place_image(const gradient *g, const factor *f, size_t group,
                           size_t image) {
    return (placing){
        .image = f->at + image * f->side[0] * f->side[1] * f->all + group * f->channels,
        .across = g->across,
        .scale = 1,
        .end = {f->side[0], f->side[1]},
        .row = f->side[1] * f->all,
        .pixel = f->all,
    };
}

/* Copies the rows of an image, which is its only group, with their padding. Returns
 * where they are. */
static placing pad_image(const task *t, const unit *u, size_t image) {
    const gradient *g = t->g;
    const placing from = place_image(g, &g->left, t->group, u->image + image);
    const size_t width = gradient_padded_width(g), rows = gradient_padded_rows(g);
    bf16 *to = t->padded;
    for (size_t i = 0; i < rows; i++, to += width * g->left.channels) {
        ptrdiff_t y = (ptrdiff_t)(u->row * g->stride + i) - (ptrdiff_t)g->pad[0];
        memset(to, 0, width * g->left.channels * sizeof *to);
        if (y < 0 || y >= (ptrdiff_t)from.end[0])
            continue;
        memcpy(to + g->pad[1] * g->left.channels, from.image + (size_t)y * from.row,
               least(from.end[1], width - g->pad[1]) * g->left.channels * sizeof *to);
    }
    memset(to, 0, PADDED_SLACK);
    return (placing){.image = t->padded,
                     .across = g->across,
                     .scale = g->stride,
                     .end = {rows, width},
                     .row = width * g->left.channels,
                     .pixel = g->left.channels};
}

/* Zeroes the rows behind the first `count` that the last tile of rows reads. */
static void clear_rows(const gradient *g, size_t count, bf16 *rows) {
    size_t end = ceiling(count, TILE_ROWS) * TILE_ROWS;
    memset(rows + count * g->plane, 0, (end - count) * g->plane * sizeof *rows);
}

/* With few channels a row of the window is copied as one pixel with more of them. What
 * is copied beyond it belongs to rows that are not used. */
static void copy_unfolded(const task *t, const unit *u, size_t image, bf16 *to) {
    const gradient *g = t->g;
    const size_t rows = ceiling(g->rows, 8) * 8;
    placing at = pad_image(t, u, image);
    for (size_t py = 0; py < g->row_phases; py++, to += g->slice * g->plane) {
        at.shift[0] = (ptrdiff_t)py;
        copy_turned(&at, rows, g->plane, to);
        clear_rows(g, rows, to);
    }
}

static void copy_left(const task *t, const unit *u, size_t image) {
    const gradient *g = t->g;
    const size_t first = t->slice * g->slice;
    bf16 *to = (bf16 *)(void *)(t->left + image * gradient_left_bytes(g));
    if (g->unfolded) {
        copy_unfolded(t, u, image, to);
        return;
    }
    const size_t channels = least(g->left.channels - first, g->slice);
    placing at = place_image(g, &g->left, t->group, u->image + image);
    at.image += first;
    at.scale = g->stride;
    for (size_t py = 0; py < g->row_phases; py++)
        for (size_t px = 0; px < g->column_phases; px++, to += g->slice * g->plane) {
            at.shift[0] = (ptrdiff_t)(u->row * g->stride + py) - (ptrdiff_t)g->pad[0];
            at.shift[1] = (ptrdiff_t)px - (ptrdiff_t)g->pad[1];
            copy_turned(&at, channels, g->plane, to);
            clear_rows(g, channels, to);
        }
}

static void copy_right(const task *t, const unit *u, size_t image) {
    const gradient *g = t->g;
    placing at = place_image(g, &g->right, t->group, u->image + image);
    at.shift[0] = (ptrdiff_t)u->row;
    at.end[0] = least(at.end[0], u->row + u->rows);
    copy_pairs(&at, g->right.channels, g->steps, u->images * g->steps * TILE_BYTES,
               t->right + image * g->steps * TILE_BYTES);
}

/* ---- Sums ------------------------------------------------------------------------ */

static size_t blocks_of_rows(const gradient *g) {
    return g->slice / BLOCK_ROWS;
}

/* Stores the rows of a block side by side with the weights. */
static void store_as_is(const gradient *g, const block_sums *sums, size_t rows,
                        size_t cols, int stream, float *to) {
    for (size_t r = 0; r < rows; r++, to += g->right.channels)
        for (size_t c = 0; c < cols; c += LANES) {
            const access some = {0, 1, least(cols - c, LANES)};
            vec v = row_part(sums->at[r], c / LANES);
            if (cols - c >= LANES && stream)
                store_stream(some, to + c, v);
            else
                store(some, to + c, v);
        }
}

/* Stores the columns of a block; the weights of a result are `window` numbers apart. */
static void store_turned(const block_sums *sums, size_t rows, size_t cols,
                         size_t window, float *to) {
    for (size_t r = 0; r < rows; r += LANES)
        for (size_t c = 0; c < cols; c += LANES) {
            const access some = {0, 1, least(rows - r, LANES)};
            bits square[LANES];
            for (size_t i = 0; i < LANES; i++)
                square[i] = (bits)row_part(sums->at[r + i], c / LANES);
            transpose(square);
            for (size_t i = 0; i < LANES && c + i < cols; i++)
                store(some, to + (c + i) * window + r, (vec)square[i]);
        }
}

static void store_block(const gradient *g, size_t group, size_t slice, size_t place,
                        size_t block, size_t panel, const block_sums *sums, int stream,
                        float *weights_diff) {
    const size_t first = slice * g->slice + block * BLOCK_ROWS;
    const size_t rows = least(g->rows - first, BLOCK_ROWS);
    const size_t cols = least(g->right.channels - panel * BLOCK_COLS, BLOCK_COLS);
    if (g->swapped) {
        float *to = weights_diff +
                    (group * g->left.channels + first) * g->right.channels +
                    panel * BLOCK_COLS;
        store_as_is(g, sums, rows, cols, stream, to);
        return;
    }
    const size_t window = g->places * g->rows;
    float *to = weights_diff +
                (group * g->right.channels + panel * BLOCK_COLS) * window +
                place * g->rows + first;
    store_turned(sums, rows, cols, window, to);
}

/* Where the rows of a place begin in the left factor. */
static size_t place_at(const gradient *g, size_t place) {
    if (g->unfolded)
        return (place % g->stride * g->slice * g->plane +
                place / g->stride * g->across) *
               sizeof(bf16);
    size_t y = place / g->kernel[1], x = place % g->kernel[1], s = g->stride;
    size_t row = (y % s * g->column_phases + x % s) * g->slice;
    return (row * g->plane + y / s * g->across + x / s) * sizeof(bf16);
}

/* A part of a unit's sum whose left factor fits the first cache: some images, or some
 * steps of one image. */
typedef struct chunk {
    size_t image, images, step, steps;
    int first, last; /* of the task, whose results go to the weights */
} chunk;

static void multiply_chunk(const task *t, const unit *u, const chunk *k, size_t block,
                           size_t panel, size_t panels) {
    const gradient *g = t->g;
    const size_t first = t->slice * g->slice + block * BLOCK_ROWS;
    const size_t tile_apart = u->images * g->steps * TILE_BYTES;
    size_t run_at[MOST_TOGETHER];
    block_factors f = {
        .left_row = g->plane * sizeof(bf16),
        .left_tile = TILE_ROWS * g->plane * sizeof(bf16),
        .left_step = TILE_ROW_BYTES,
        .left_at = run_at,
        .runs = k->images,
        .steps = k->steps,
        .right_step = TILE_BYTES,
        .right_tile = tile_apart,
    };
    for (size_t i = 0; i < k->images; i++)
        run_at[i] = (k->image + i) * gradient_left_bytes(g);
    for (size_t place = 0; place < g->places; place++) {
        f.left = t->left + place_at(g, place) + block * 2 * f.left_tile +
                 k->step * TILE_ROW_BYTES;
        block_sums *kept = t->sums + (place * blocks_of_rows(g) + block) * g->panels;
        for (size_t p = panel; p < panel + panels; p++) {
            block_sums here, *to = k->last ? &here : kept + p;
            f.right = t->right + 2 * p * tile_apart +
                      (k->image * g->steps + k->step) * TILE_BYTES;
            block_sum(&f, g->rows - first, g->right.channels - p * BLOCK_COLS,
                      k->first ? NULL : kept + p, to);
            if (k->last)
                store_block(g, t->group, t->slice, place, block, p, to, t->stream,
                            t->weights_diff);
        }
    }
}

/* Adds the products of a unit. `first`, `last`: of the task. */
static void multiply_unit(const task *t, const unit *u, int first, int last) {
    const gradient *g = t->g;
    const size_t blocks = blocks_of_rows(g);
    const size_t panels = most(
        1, least(g->panels, SUMS_BYTES / (g->places * blocks * sizeof(block_sums))));
    const size_t images = g->steps >= CHUNK_STEPS ? 1 : CHUNK_STEPS / g->steps;
    const size_t steps = ceiling(g->steps, ceiling(g->steps, CHUNK_STEPS));
    for (size_t panel = 0; panel < g->panels; panel += panels)
        for (size_t image = 0; image < u->images; image += images)
            for (size_t step = 0; step < g->steps; step += steps) {
                const chunk k = {
                    .image = image,
                    .images = least(images, u->images - image),
                    .step = step,
                    .steps = least(steps, g->steps - step),
                    .first = first && !image && !step,
                    .last = last && image + images >= u->images &&
                            step + steps >= g->steps,
                };
                for (size_t block = 0; block < blocks; block++)
                    if (t->slice * g->slice + block * BLOCK_ROWS < g->rows)
                        multiply_chunk(t, u, &k, block, panel,
                                       least(panels, g->panels - panel));
            }
}

static void do_task(const task *t) {
    const gradient *g = t->g;
    size_t units = g->sets * g->bands;
    size_t from = units * t->part / g->parts, to = units * (t->part + 1) / g->parts;
    for (size_t n = from; n < to; n++) {
        const unit u = unit_of(g, n);
        for (size_t i = 0; i < u.images; i++) {
            copy_left(t, &u, i);
            copy_right(t, &u, i);
        }
        multiply_unit(t, &u, n == from, g->parts == 1 && n + 1 == to);
    }
}

/* Adds the parts of one block in order. */
static void add_parts(const gradient *g, const block_sums *sums, size_t apart,
                      block_sums *total) {
    *total = *sums;
    for (size_t part = 1; part < g->parts; part++) {
        sums += apart;
        for (size_t r = 0; r < BLOCK_ROWS; r++)
            for (size_t c = 0; c < BLOCK_COLS; c++)
                total->at[r][c] += sums->at[r][c];
    }
}

static void add_all(const gradient *g, const block_sums *sums, int stream,
                    float *weights_diff) {
    const size_t blocks = blocks_of_rows(g),
                 apart = gradient_sums_bytes(g) / sizeof *sums;
#pragma omp for schedule(static)
    for (size_t n = 0; n < apart; n++) {
        size_t panel = n % g->panels, block = n / g->panels % blocks;
        size_t place = n / g->panels / blocks % g->places;
        size_t slice = n / g->panels / blocks / g->places;
        size_t group = slice / g->slices;
        block_sums total;
        slice %= g->slices;
        if (slice * g->slice + block * BLOCK_ROWS >= g->rows)
            continue;
        add_parts(g, sums + n, apart, &total);
        store_block(g, group, slice, place, block, panel, &total, stream, weights_diff);
    }
}

/* ---- Biases ---------------------------------------------------------------------- */

/* Adds `vectors` adjacent vectors of channels of some pixels. */
ALWAYS void add_vectors(size_t vectors, const access *last, const bf16 *pixel,
                        size_t pixels, size_t apart, float *sums) {
    enum { AHEAD = 4096 / sizeof(bf16) };
    const access whole = {1, 0, LANES};
    vec sum[4] = {{0}, {0}, {0}, {0}};
    for (size_t p = 0; p < pixels; p++, pixel += apart) {
        __builtin_prefetch(pixel + AHEAD, 0, 2);
        EACH(v, vectors)
        sum[v] += load(vectors > 1 ? whole : *last, pixel + v * LANES);
    }
    EACH(v, vectors)
    memcpy(sums + v * LANES, &sum[v], sizeof sum[v]);
}

/* Sums of the channels of pixels [first, end), in float32. */
static void add_pixels(const amx_conv *c, const bf16 *out_diff, size_t first,
                       size_t end, float *sums) {
    enum { WIDE = 4 };
    const size_t channels = c->out_channels, wide = (size_t)WIDE * LANES;
    const bf16 *pixel = out_diff + first * channels;
    size_t at = 0;
    for (; at + wide <= channels; at += wide)
        add_vectors(WIDE, NULL, pixel + at, end - first, channels, sums + at);
    for (; at < channels; at += LANES) {
        const access some = {1, 1, least(channels - at, LANES)};
        add_vectors(1, &some, pixel + at, end - first, channels, sums + at);
    }
}

static void bias_gradient(const amx_conv *c, const bf16 *out_diff, float *sums,
                          float *bias_diff) {
    const size_t pixels = c->batch * c->out[0] * c->out[1];
    const size_t width = ceiling(c->out_channels, LANES) * LANES;
#pragma omp for schedule(static)
    for (size_t n = 0; n < BIAS_CHUNKS; n++)
        add_pixels(c, out_diff, pixels * n / BIAS_CHUNKS,
                   pixels * (n + 1) / BIAS_CHUNKS, sums + n * width);
#pragma omp for schedule(static)
    for (size_t o = 0; o < c->out_channels; o++) {
        double sum = 0;
        for (size_t n = 0; n < BIAS_CHUNKS; n++)
            sum += (double)sums[n * width + o];
        bias_diff[o] = (float)sum;
    }
}

void PER_ISA(gradient_run_)(const amx_conv *c, const bf16 *in, const bf16 *out_diff,
                            float *weights_diff, float *bias_diff, void *space) {
    gradient g = gradient_plan(c);
    (g.swapped ? &g.right : &g.left)->at = in;
    (g.swapped ? &g.left : &g.right)->at = out_diff;
    block_sums *sums = space;
    char *copies = (char *)space + g.parts * gradient_sums_bytes(&g);
    const size_t numbers = g.group * g.rows * g.places * g.right.channels;
    const int stream = numbers * sizeof(float) >= STREAM_BYTES &&
                       g.right.channels % LANES == 0; /* whole lines */
    const size_t tasks = g.group * g.slices,
                 of_task = gradient_sums_bytes(&g) / sizeof *sums / tasks;
#pragma omp parallel num_threads((int)c->threads)
    {
        task t = {.g = &g, .weights_diff = weights_diff, .stream = stream};
        t.left = copies + (size_t)omp_get_thread_num() * gradient_thread_bytes(&g);
        t.right = t.left + g.together * gradient_left_bytes(&g);
        t.padded = (bf16 *)(void *)(t.right + g.together * gradient_right_bytes(&g));
        tiles_begin();
#pragma omp for schedule(static)
        for (size_t n = 0; n < tasks * g.parts; n++) {
            t.part = n / tasks;
            t.group = n % tasks / g.slices;
            t.slice = n % g.slices;
            t.sums = sums + n * of_task;
            do_task(&t);
        }
        tiles_end();
        if (g.parts > 1)
            add_all(&g, sums, stream, weights_diff);
        if (bias_diff)
            bias_gradient(
                c, out_diff,
                (float *)(void *)(copies + c->threads * gradient_thread_bytes(&g)),
                bias_diff);
        if (stream)
            stream_end();
    }
}
