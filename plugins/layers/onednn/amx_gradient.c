/* Gradients of weights: for each place in the window the product of the input, shifted
 * by that place, and the gradient of the output, summed over all pixels of the batch.
 *
 * Both factors are copied to the cache: the left one transposed, so that a row holds
 * the pixels of one channel side by side and a shift is an offset, the right one in
 * pairs of pixels. The pixels of an image have the order of padded rows; where there is
 * no result the right factor is zero. Of a window of one pixel, which is never shifted,
 * the gradient of the output is the left factor, so that sums have the order of the
 * weights.
 *
 * The sum is cut into *parts* of the batch, and a part into *units*, bands of rows of
 * some images, by the shape alone. Parts are added in order.
 */
#include "per_isa.h"

#include "amx_blocks.h"
#include "amx_gradient.h"

#include <omp.h>

enum {
    UNIT_BYTES = 1 << 20,         /* of both factors in a core's own cache */
    SUMS_BYTES = 320 << 10,       /* of sums that are worked on together */
    CHUNK_STEPS = 8,             /* whose left factor stays in the first cache */
    PART_BYTES = 16 << 20,        /* of the sums of all parts */
    PART_WORK = 8 << 20,          /* multiply-adds */
    TASKS = 32,                   /* to share, where parts may be made */
    SLICE = 256,                  /* rows of the left factor of a task */
    MOST_TOGETHER = 32,           /* images of a unit */
    FEW_CHANNELS = TILE_ROWS - 1, /* rows of tiles are shared by places of the window */
    STREAM_BYTES = 8 << 20,
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
    size_t plane_rows;    /* of a band, in each phase */
    size_t plane;         /* positions between rows of the left factor */
    size_t steps;         /* of 32 positions, for an image of a unit */
    size_t together;      /* images of a unit */
    size_t sets;          /* units = sets of images x bands */
    size_t parts;
    size_t panels; /* of BLOCK_COLS numbers of the right factor */
} gradient;

static inline size_t ceiling(size_t a, size_t b) {
    return (a + b - 1) / b;
}

static inline size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

static inline size_t most(size_t a, size_t b) {
    return a > b ? a : b;
}

/* ---- How the work is cut --------------------------------------------------------- */

static size_t rows_for(const gradient *g, size_t band) {
    return band + (g->kernel[0] - 1) / g->stride;
}

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
    while (steps_for(g, g->band) > 1 && g->band > 1 && unit_bytes(g, g->band) > UNIT_BYTES)
        g->band = ceiling(g->band, 2);
    g->bands = ceiling(g->out[0], g->band);
    g->band = ceiling(g->out[0], g->bands);
    g->together = 1;
    if (g->bands == 1)
        g->together = most(1, least(least(g->batch, MOST_TOGETHER),
                                    UNIT_BYTES / unit_bytes(g, g->band)));
    g->sets = ceiling(g->batch, g->together);
    g->together = ceiling(g->batch, g->sets);
    g->plane_rows = rows_for(g, g->band);
    g->plane = plane_for(g, g->band);
    g->steps = steps_for(g, g->band);
}

static size_t sums_bytes(const gradient *g) {
    size_t blocks = ceiling(g->slice, BLOCK_ROWS) * g->slices * g->places * g->panels;
    return g->group * blocks * sizeof(block_sums);
}

/* Parts are worth their sums where there is work to share, and while sums are small. */
static size_t parts_of(const gradient *g) {
    const size_t work = g->batch * g->out[0] * g->out[1] * g->group * g->rows *
                        g->places * g->right.channels;
    size_t parts = least(ceiling(TASKS, g->group * g->slices), work / PART_WORK);
    return most(1, least(parts, least(g->sets * g->bands, PART_BYTES / sums_bytes(g))));
}

static gradient plan(const amx_conv *c) {
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
static size_t padded_width(const gradient *g) {
    return (g->out[1] - 1) * g->stride + g->kernel[1];
}

static size_t padded_rows(const gradient *g) {
    return (g->band - 1) * g->stride + g->kernel[0];
}

static size_t padded_bytes(const gradient *g) {
    size_t pixels = g->unfolded ? padded_rows(g) * padded_width(g) : 0;
    return ceiling(pixels * g->left.channels * sizeof(bf16) + PADDED_SLACK, 64) * 64;
}

static size_t thread_bytes(const gradient *g) {
    return g->together * unit_bytes(g, g->band) + padded_bytes(g);
}

static size_t bias_bytes(const amx_conv *c) {
    return BIAS_CHUNKS * ceiling(c->out_channels, LANES) * LANES * sizeof(float);
}

size_t PER_ISA(gradient_space_)(const amx_conv *c) {
    const gradient g = plan(c);
    return g.parts * sums_bytes(&g) + g.threads * thread_bytes(&g) + bias_bytes(c);
}

/* ---- Copies of the factors ------------------------------------------------------- */

/* Places of a factor's pixels: position (i, j) is pixel (scale * i + shift[0],
 * scale * j + shift[1]), and zero outside of rows and columns [0, end). */
typedef struct placing {
    const bf16 *image; /* a group's first channel */
    size_t across, scale, end[2];
    ptrdiff_t shift[2];
    size_t row, pixel; /* between rows and pixels of the image, in numbers */
} placing;

/* Finds the pixels of 32 positions; NULL: zero. */
static void find_pixels(const placing *at, size_t position,
                        const bf16 *pixels[TILE_DEPTH]) {
    size_t i = position / at->across, j = position % at->across;
    for (size_t p = 0; p < TILE_DEPTH; p++) {
        ptrdiff_t y = (ptrdiff_t)(at->scale * i) + at->shift[0];
        ptrdiff_t x = (ptrdiff_t)(at->scale * j) + at->shift[1];
        int inside = y >= 0 && x >= 0 && y < (ptrdiff_t)at->end[0] &&
                     x < (ptrdiff_t)at->end[1];
        pixels[p] = inside ? at->image + (size_t)y * at->row + (size_t)x * at->pixel
                           : NULL;
        if (++j == at->across) {
            j = 0;
            i++;
        }
    }
}

/* Begins to load the pixels of the next positions, which follow these. */
static inline void prefetch_pixels(const placing *at, size_t count,
                                   const bf16 *const pixels[TILE_DEPTH]) {
    for (size_t p = 0; p < TILE_DEPTH; p++)
        for (size_t c = 0; pixels[p] && c < count; c += TILE_ROW_BYTES / sizeof(bf16))
            __builtin_prefetch(pixels[p] + TILE_DEPTH * at->scale * at->pixel + c, 0,
                               2);
}

#ifdef __AVX512BW__

/* Eight channels of the pixels p, p + 8, p + 16 and p + 24. */
ALWAYS __m512i four_pixels(const bf16 *const *pixels, size_t p, size_t channel) {
    __m512i four = _mm512_setzero_si512();
    for (size_t i = 0; i < 4; i++)
        if (pixels[p + 8 * i])
            four = _mm512_mask_broadcast_i32x4(
                four, (__mmask16)(0xf << 4 * i),
                _mm_loadu_si128((const void *)(pixels[p + 8 * i] + channel)));
    return four;
}

/* Transposes eight channels of 32 pixels: in each quarter of a vector, 8 x 8 numbers.
 */
ALWAYS void turn_eight(const bf16 *const pixels[TILE_DEPTH], size_t channel,
                       size_t plane, bf16 *to) {
    __m512i a[8], b[8];
    for (size_t p = 0; p < 8; p++)
        a[p] = four_pixels(pixels, p, channel);
    for (size_t p = 0; p < 4; p++) {
        b[2 * p] = _mm512_unpacklo_epi16(a[2 * p], a[2 * p + 1]);
        b[2 * p + 1] = _mm512_unpackhi_epi16(a[2 * p], a[2 * p + 1]);
    }
    for (size_t p = 0; p < 8; p += 4)
        for (size_t i = 0; i < 2; i++) {
            a[p + 2 * i] = _mm512_unpacklo_epi32(b[p + i], b[p + 2 + i]);
            a[p + 2 * i + 1] = _mm512_unpackhi_epi32(b[p + i], b[p + 2 + i]);
        }
    for (size_t i = 0; i < 4; i++) {
        __m512i even = _mm512_unpacklo_epi64(a[i], a[i + 4]);
        __m512i odd = _mm512_unpackhi_epi64(a[i], a[i + 4]);
        _mm512_storeu_si512(to + 2 * i * plane, even);
        _mm512_storeu_si512(to + (2 * i + 1) * plane, odd);
    }
}

enum { EIGHT = 8 };
#else
enum { EIGHT = 1 };

static inline void turn_eight(const bf16 *const pixels[TILE_DEPTH], size_t channel,
                              size_t plane, bf16 *to) {
    (void)plane;
    for (size_t p = 0; p < TILE_DEPTH; p++)
        to[p] = pixels[p] ? pixels[p][channel] : 0;
}
#endif

/* Copies `count` channels, each to a row of `plane` positions. */
static void copy_turned(const placing *at, size_t count, size_t plane, bf16 *to) {
    for (size_t position = 0; position < plane;
         position += TILE_DEPTH, to += TILE_DEPTH) {
        const bf16 *pixels[TILE_DEPTH];
        size_t c = 0;
        find_pixels(at, position, pixels);
        prefetch_pixels(at, count, pixels);
        for (; c + EIGHT <= count; c += EIGHT)
            turn_eight(pixels, c, plane, to + c * plane);
        for (; c < count; c++)
            for (size_t p = 0; p < TILE_DEPTH; p++)
                to[c * plane + p] = pixels[p] ? pixels[p][c] : 0;
    }
}

/* Stores up to 32 channels of two pixels in pairs, a row of a tile for each 16. */
ALWAYS void store_pairs(const bf16 *const pixels[2], size_t channel, size_t count,
                        char *low, char *high) {
#ifdef __AVX512BW__
    /* 64-bit parts of two vectors, as unpacking leaves the order of channels. */
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    const __mmask32 all = (__mmask32)((1ull << count) - 1);
    __m512i even = _mm512_maskz_loadu_epi16(pixels[0] ? all : 0, pixels[0] + channel);
    __m512i odd = _mm512_maskz_loadu_epi16(pixels[1] ? all : 0, pixels[1] + channel);
    __m512i a = _mm512_unpacklo_epi16(even, odd), b = _mm512_unpackhi_epi16(even, odd);
    _mm512_storeu_si512(low, _mm512_permutex2var_epi64(a, first, b));
    if (count > LANES)
        _mm512_storeu_si512(high, _mm512_permutex2var_epi64(a, second, b));
#else
    for (size_t i = 0; i < 2; i++)
        for (size_t c = 0; c < 2 * LANES; c++) {
            bf16 number = pixels[i] && c < count ? pixels[i][channel + c] : 0;
            char *to = c < LANES ? low : high;
            if (c < count || c < LANES)
                memcpy(to + (2 * (c % LANES) + i) * sizeof number, &number,
                       sizeof number);
        }
#endif
}

/* Copies `count` channels as tiles of pairs: those of `steps` steps for one vector of
 * channels after the other, `apart` bytes apart. */
static void copy_pairs(const placing *at, size_t count, size_t steps, size_t apart,
                       char *to) {
    for (size_t step = 0; step < steps; step++, to += TILE_BYTES) {
        const bf16 *pixels[TILE_DEPTH];
        find_pixels(at, step * TILE_DEPTH, pixels);
        prefetch_pixels(at, count, pixels);
        for (size_t c = 0; c < count; c += BLOCK_COLS) {
            char *tile = to + c / LANES * apart;
            const size_t some = least(count - c, BLOCK_COLS);
            for (size_t i = 0; i < TILE_ROWS; i++, tile += TILE_ROW_BYTES)
                store_pairs(pixels + 2 * i, c, some, tile, tile + apart);
        }
    }
}

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
    const size_t width = padded_width(g), rows = padded_rows(g);
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

/* With few channels a row of the window is copied as one pixel with more of them. What
 * is copied beyond it belongs to rows that are not used. */
static void copy_unfolded(const task *t, const unit *u, size_t image, bf16 *to) {
    const gradient *g = t->g;
    placing at = pad_image(t, u, image);
    for (size_t py = 0; py < g->row_phases; py++) {
        at.shift[0] = (ptrdiff_t)py;
        copy_turned(&at, least(ceiling(g->rows, 8) * 8, g->slice), g->plane,
                    to + py * g->slice * g->plane);
    }
}

static void copy_left(const task *t, const unit *u, size_t image) {
    const gradient *g = t->g;
    const size_t first = t->slice * g->slice;
    bf16 *to = (bf16 *)(void *)(t->left + image * left_bytes(g, g->band));
    if (g->unfolded) {
        copy_unfolded(t, u, image, to);
        return;
    }
    placing at = place_image(g, &g->left, t->group, u->image + image);
    at.image += first;
    at.scale = g->stride;
    for (size_t py = 0; py < g->row_phases; py++)
        for (size_t px = 0; px < g->column_phases; px++) {
            at.shift[0] = (ptrdiff_t)(u->row * g->stride + py) - (ptrdiff_t)g->pad[0];
            at.shift[1] = (ptrdiff_t)px - (ptrdiff_t)g->pad[1];
            copy_turned(&at, least(g->left.channels - first, g->slice), g->plane,
                        to + (py * g->column_phases + px) * g->slice * g->plane);
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
        run_at[i] = (k->image + i) * left_bytes(g, g->band);
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
    const size_t blocks = blocks_of_rows(g), apart = sums_bytes(g) / sizeof *sums;
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

static void add_pixels(const amx_conv *c, const bf16 *out_diff, size_t first,
                       size_t end, float *sums) {
    for (size_t at = 0; at < c->out_channels; at += LANES) {
        const access some = {1, 1, least(c->out_channels - at, LANES)};
        vec sum = {0};
        for (size_t p = first; p < end; p++)
            sum += load(some, out_diff + p * c->out_channels + at);
        memcpy(sums + at, &sum, sizeof sum);
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
    gradient g = plan(c);
    (g.swapped ? &g.right : &g.left)->at = in;
    (g.swapped ? &g.left : &g.right)->at = out_diff;
    block_sums *sums = space;
    char *copies = (char *)space + g.parts * sums_bytes(&g);
    const size_t numbers = g.group * g.rows * g.places * g.right.channels;
    const int stream = numbers * sizeof(float) >= STREAM_BYTES;
    const size_t tasks = g.group * g.slices,
                 of_task = sums_bytes(&g) / sizeof *sums / tasks;
#pragma omp parallel num_threads((int)c->threads)
    {
        task t = {.g = &g, .weights_diff = weights_diff, .stream = stream};
        t.left = copies + (size_t)omp_get_thread_num() * thread_bytes(&g);
        t.right = t.left + g.together * left_bytes(&g, g.band);
        t.padded = (bf16 *)(void *)(t.right + g.together * right_bytes(&g, g.band));
        memset(t.left, 0, thread_bytes(&g)); /* what no copy writes is read, too */
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
            bias_gradient(c, out_diff,
                          (float *)(void *)(copies + c->threads * thread_bytes(&g)),
                          bias_diff);
        if (stream)
            stream_end();
    }
}
