/* Matrix products in small tiles whose sums stay in registers, for winograd_kernels.c.
 * A matrix that is read column by column is stored in panels, with columns side by side
 * in the order of the inner loop. */
#ifndef ONEDNN_WINOGRAD_PRODUCTS_H
#define ONEDNN_WINOGRAD_PRODUCTS_H

#include "register_tiles.h"
#include "vectors.h"

/* ---- Panels -------------------------------------------------------------- */

/* A matrix of `depth` rows whose columns come in vectors: `width` of them make a panel,
 * the last one has the rest. */
typedef struct panels {
    size_t depth, vectors, width;
} panels;

static inline panels panels_of(size_t depth, size_t columns) {
    size_t vectors = columns / LANES;
    return (panels){depth, vectors, equal_block(vectors, COLS)};
}

/* The offset of row 0 of vector v, and the distance between its rows. */
static size_t panel_at(const panels *p, size_t v, size_t *apart) {
    size_t first = v / p->width * p->width;
    *apart = least(p->width, p->vectors - first) * LANES;
    return first * LANES * p->depth + (v - first) * LANES;
}

/* ---- Products ------------------------------------------------------------ */

/* out[r][c] (+)= sum over k of a[r * a_row + k * a_next] * b[k][c] */
typedef struct product {
    size_t depth, a_row, a_next, b_next, out_row;
    int add;
} product;

/* clang-format off */

ALWAYS void product_tile(size_t rows, size_t cols, const product *p, const float *a,
                         const float *b, float *out) {
    vec sum[ROWS][COLS];
    EACH(r, rows)
        EACH(j, cols)
            sum[r][j] = p->add ? *vec_to(out + r * p->out_row + j * LANES) : (vec){0};
    for (size_t k = 0; k < p->depth; k++, a += p->a_next, b += p->b_next) {
        vec x[COLS];
        EACH(j, cols)
            x[j] = *vec_at(b + j * LANES);
        EACH(r, rows)
            EACH(j, cols)
                sum[r][j] += a[r * p->a_row] * x[j];
    }
    EACH(r, rows)
        EACH(j, cols)
            *vec_to(out + r * p->out_row + j * LANES) = sum[r][j];
}

typedef void product_fn(const product *p, const float *a, const float *b, float *out);
#define TILE(rows, cols) \
    static __attribute__((noinline)) void product_##rows##_##cols( \
        const product *p, const float *a, const float *b, float *out) { \
        product_tile(rows, cols, p, a, b, out); \
    }
#define TILES(cols) \
    TILE(1, cols) TILE(2, cols) TILE(3, cols) TILE(4, cols) TILE(5, cols) TILE(6, cols)
#define TILES_OF(cols) \
    {product_1_##cols, product_2_##cols, product_3_##cols, \
     product_4_##cols, product_5_##cols, product_6_##cols}
TILES(1) TILES(2)
#if REGISTERS == 32
TILES(3) TILES(4)
#endif
static product_fn *const product_tiles[COLS][ROWS] = {
    TILES_OF(1), TILES_OF(2),
#if REGISTERS == 32
    TILES_OF(3), TILES_OF(4),
#endif
};

/* clang-format on */

/* Multiplies `rows` of a by a panel of b. */
static void multiply(const product *p, size_t rows, size_t cols, const float *a,
                     const float *b, float *out) {
    size_t block = equal_block(rows, ROWS);
    for (size_t r = 0; r < rows; r += block)
        product_tiles[cols - 1][least(block, rows - r) - 1](p, a + r * p->a_row, b,
                                                            out + r * p->out_row);
}

#endif
