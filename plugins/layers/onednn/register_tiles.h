/* Tiles of a matrix product whose sums stay in registers, for files that are compiled
 * once for each instruction set: their size, and how rows are cut into them. */
#ifndef ONEDNN_REGISTER_TILES_H
#define ONEDNN_REGISTER_TILES_H

#include "sizes.h"

#if defined(__AVX512F__) || defined(__aarch64__)
#define REGISTERS 32
#else
#define REGISTERS 16
#endif

/* ROWS broadcast numbers times COLS vectors: the sums, one operand's vectors and a
 * broadcast fill the registers. */
enum { ROWS = 6, COLS = REGISTERS == 32 ? 4 : 2 };

/* Blocks as equal as possible: 20 rows are 4 x 5, not 3 x 6 + 2. */
static inline size_t equal_block(size_t rows, size_t at_most) {
    return ceiling(rows, ceiling(rows, at_most));
}

#endif
