/* Arithmetic of sizes. */
#ifndef ONEDNN_SIZES_H
#define ONEDNN_SIZES_H

#include <stddef.h>

static inline size_t ceiling(size_t a, size_t b) {
    return (a + b - 1) / b;
}

static inline size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

static inline size_t most(size_t a, size_t b) {
    return a > b ? a : b;
}

/* Up to a whole cache line. */
static inline size_t aligned(size_t bytes) {
    return ceiling(bytes, 64) * 64;
}

#endif
