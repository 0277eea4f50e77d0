/* Blocks of up to 2 x 2 tiles of sums: how they are multiplied; and vectors of pairs.
 */
#ifndef ONEDNN_AMX_BLOCKS_H
#define ONEDNN_AMX_BLOCKS_H

#include "amx_tiles.h"
#include "vectors.h"

_Static_assert(LANES == TILE_COLS, "a vector is a row of sums");

/* Where a block's factors are. The sum goes over `runs`, and in each of them over
 * `steps` of 32 numbers. Distances are in bytes; the right factor's tiles are packed.
 */
typedef struct block_factors {
    const char *left;
    size_t left_row;             /* between rows of the left factor */
    size_t left_tile, left_step; /* between its two tiles, and between steps */
    const size_t *left_at;       /* where each run begins */
    size_t runs, steps;
    const char *right;
    size_t right_step, right_tile;
} block_factors;

/* to = from + left * right; `from` NULL: zero. `rows`, `cols`: tiles, literal numbers.
 */
ALWAYS void block_multiply(size_t rows, size_t cols, const block_factors *f,
                           const block_sums *from, block_sums *to) {
    enum { ROW = BLOCK_COLS * sizeof(float) };
    const char *right = f->right;
    if (from) {
        tile_load(0, from->at[0], ROW);
        if (cols > 1)
            tile_load(1, from->at[0] + TILE_COLS, ROW);
        if (rows > 1)
            tile_load(2, from->at[TILE_ROWS], ROW);
        if (rows > 1 && cols > 1)
            tile_load(3, from->at[TILE_ROWS] + TILE_COLS, ROW);
    } else {
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
    }
    for (size_t n = 0; n < f->runs; n++) {
        const char *left = f->left + f->left_at[n];
        for (size_t step = 0; step < f->steps; step++) {
            tile_load(6, right, TILE_ROW_BYTES);
            tile_load(4, left, f->left_row);
            tile_dot(0, 4, 6);
            if (rows > 1) {
                tile_load(5, left + f->left_tile, f->left_row);
                tile_dot(2, 5, 6);
            }
            if (cols > 1) {
                tile_load(7, right + f->right_tile, TILE_ROW_BYTES);
                tile_dot(1, 4, 7);
            }
            if (rows > 1 && cols > 1)
                tile_dot(3, 5, 7);
            left += f->left_step;
            right += f->right_step;
        }
    }
    tile_store(0, to->at[0], ROW);
    if (cols > 1)
        tile_store(1, to->at[0] + TILE_COLS, ROW);
    if (rows > 1)
        tile_store(2, to->at[TILE_ROWS], ROW);
    if (rows > 1 && cols > 1)
        tile_store(3, to->at[TILE_ROWS] + TILE_COLS, ROW);
}

#define BLOCK(rows, cols) \
    static __attribute__((noinline)) void block_##rows##_##cols( \
        const block_factors *f, const block_sums *from, block_sums *to) { \
        block_multiply(rows, cols, f, from, to); \
    }
BLOCK(1, 1)
BLOCK(1, 2)
BLOCK(2, 1)
BLOCK(2, 2)

/* `rows`, `cols`: numbers of results, for which whole tiles are computed. */
static inline void block_sum(const block_factors *f, size_t rows, size_t cols,
                             const block_sums *from, block_sums *to) {
    if (rows > TILE_ROWS && cols > TILE_COLS)
        block_2_2(f, from, to);
    else if (rows > TILE_ROWS)
        block_2_1(f, from, to);
    else if (cols > TILE_COLS)
        block_1_2(f, from, to);
    else
        block_1_1(f, from, to);
}

/* ---- Vectors of bfloat16 -------------------------------------------------------- */

ALWAYS vec row_part(const float *row, size_t part) {
    return *vec_at(row + part * LANES);
}

/* A vector of pairs: `even` in the lower halves, `odd` in the upper ones. */
ALWAYS bits pairs_of(vec even, vec odd) {
    bits low = __builtin_convertvector(to_halves(even), bits);
    return low | __builtin_convertvector(to_halves(odd), bits) << 16;
}

/* clang-format off */
#define TURN_LOW(d) \
    0 & (d) ? 16 - (d) : 0, 1 & (d) ? 17 - (d) : 1, 2 & (d) ? 18 - (d) : 2, \
    3 & (d) ? 19 - (d) : 3, 4 & (d) ? 20 - (d) : 4, 5 & (d) ? 21 - (d) : 5, \
    6 & (d) ? 22 - (d) : 6, 7 & (d) ? 23 - (d) : 7, 8 & (d) ? 24 - (d) : 8, \
    9 & (d) ? 25 - (d) : 9, 10 & (d) ? 26 - (d) : 10, 11 & (d) ? 27 - (d) : 11, \
    12 & (d) ? 28 - (d) : 12, 13 & (d) ? 29 - (d) : 13, 14 & (d) ? 30 - (d) : 14, \
    15 & (d) ? 31 - (d) : 15
#define TURN_HIGH(d) \
    0 & (d) ? 16 : 0 + (d), 1 & (d) ? 17 : 1 + (d), 2 & (d) ? 18 : 2 + (d), \
    3 & (d) ? 19 : 3 + (d), 4 & (d) ? 20 : 4 + (d), 5 & (d) ? 21 : 5 + (d), \
    6 & (d) ? 22 : 6 + (d), 7 & (d) ? 23 : 7 + (d), 8 & (d) ? 24 : 8 + (d), \
    9 & (d) ? 25 : 9 + (d), 10 & (d) ? 26 : 10 + (d), 11 & (d) ? 27 : 11 + (d), \
    12 & (d) ? 28 : 12 + (d), 13 & (d) ? 29 : 13 + (d), 14 & (d) ? 30 : 14 + (d), \
    15 & (d) ? 31 : 15 + (d)
#define TURN_STAGE(d) \
    _Pragma("GCC unroll 16") for (size_t i = 0; i < LANES; i++) \
        if (!(i & (d))) { \
            bits upper = row[i], lower = row[i + (d)]; \
            row[i] = __builtin_shufflevector(upper, lower, TURN_LOW(d)); \
            row[i + (d)] = __builtin_shufflevector(upper, lower, TURN_HIGH(d)); \
        }
/* clang-format on */

/* Transposes 16 x 16 numbers of 32 bits: in each stage the halves beside the diagonal
 * of all squares of 2d x 2d change places. */
ALWAYS void transpose(bits row[LANES]) {
    TURN_STAGE(8)
    TURN_STAGE(4)
    TURN_STAGE(2)
    TURN_STAGE(1)
}

#endif
