/* How things are divided into equal parts: arrays into slices, one per rank. */
#ifndef DLC_BASE_SLICE_H
#define DLC_BASE_SLICE_H

#include <stddef.h>
#include <stdint.h>

/* Where slice r of `count` elements begins: count * r / ranks, without overflow. */
static inline size_t dlc_slice(size_t count, int32_t r, int32_t ranks) {
    size_t n = (size_t)ranks, i = (size_t)r;
    return count / n * i + count % n * i / n;
}

/* The greatest common divisor of two numbers that are not negative. */
static inline int64_t dlc_common_divisor(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

#endif
