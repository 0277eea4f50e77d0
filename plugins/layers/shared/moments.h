/* Count, mean and M2 (the sum of squared differences from the mean) of numbers in
 * several parts, combined part by part: Chan, Golub and LeVeque 1979, "Updating
 * formulae and a pairwise algorithm for computing sample variances". Unlike a
 * difference of sums of squares this keeps its accuracy however large the mean is. */
#ifndef LAYERS_SHARED_MOMENTS_H
#define LAYERS_SHARED_MOMENTS_H

#include "host_device.h"

typedef struct moments {
    double count, mean, m2;
} moments;

/* Any count may be 0. */
BODY moments moments_merge(moments a, moments b) {
    double count = a.count + b.count, apart = b.mean - a.mean;
    double weight = count > 0 ? b.count / count : 0;
    moments both = {count, a.mean + apart * weight,
                    a.m2 + b.m2 + apart * apart * a.count * weight};
    return both;
}

/* Of numbers with this mean and variance. Rounding may make a variance negative. */
BODY moments moments_of(double count, double mean, double variance) {
    moments m = {count, mean, variance > 0 ? variance * count : 0};
    return m;
}

BODY double moments_variance(moments m) {
    return m.count > 0 ? m.m2 / m.count : 0;
}

/* The variance's unbiased estimate. */
BODY double moments_unbiased(moments m) {
    return m.count > 1 ? m.m2 / (m.count - 1) : 0;
}

/* ---- Values of all ranks ---------------------------------------------------------
 *
 * Each rank has a block of `kinds` doubles per channel, kind after kind, that are
 * combined channel by channel into the block of rank 0. */

enum { MOMENT_KINDS = 3, SUM_KINDS = 2 };

BODY double *block_of(double *blocks, int kinds, long long channels, int rank) {
    return blocks + (long long)rank * kinds * channels;
}

BODY moments moments_at(const double *block, long long channels, long long c) {
    moments m = {block[c], block[channels + c], block[2 * channels + c]};
    return m;
}

BODY void moments_put(double *block, long long channels, long long c, moments m) {
    block[c] = m.count;
    block[channels + c] = m.mean;
    block[2 * channels + c] = m.m2;
}

#endif
