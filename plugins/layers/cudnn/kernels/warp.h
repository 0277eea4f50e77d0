/* Sizes of warps and blocks, and the operations of reductions over them. Threads of a
 * block are reduced by a tree, lanes of a warp by a butterfly (warp.cuh). On the host,
 * in tests, the lanes are an array. */
#ifndef DLCORE_CUDNN_WARP_H
#define DLCORE_CUDNN_WARP_H

#include "body.h"

enum { WARP_SIZE = 32, BLOCK = 256 /* threads of a block */ };

typedef struct pair {
    float a, b;
} pair;

BODY pair pair_sum(pair x, pair y) {
    pair sum = {x.a + y.a, x.b + y.b};
    return sum;
}

/* The larger number; NaN counts as larger than any. */
BODY float max_or_nan(float x, float y) {
    return x > y || x != x ? x : y;
}

#endif
