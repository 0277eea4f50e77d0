/* Sums of many threads, always in one order: the lanes of a warp by a butterfly, so
 * that each of them has the same bits, and the threads of a block by a tree. On the
 * host, where tests are, all lanes are in one array. */
#ifndef DLCORE_CUDNN_LANES_H
#define DLCORE_CUDNN_LANES_H

#include "body.h"

enum { LANES = 32, BLOCK = 256 /* threads of a block */ };

typedef struct pair {
    float a, b;
} pair;

BODY pair pair_sum(pair x, pair y) {
    pair sum = {x.a + y.a, x.b + y.b};
    return sum;
}

/* The larger; what is no number is larger than any. */
BODY float larger(float x, float y) {
    return x > y || x != x ? x : y;
}

#endif
