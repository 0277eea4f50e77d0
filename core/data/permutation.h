/* Permutations that take no memory. Used by the order of samples. */
#ifndef DLC_DATA_PERMUTATION_H
#define DLC_DATA_PERMUTATION_H

#include <stdint.h>

/* Where a permutation of 0 .. count - 1, one for each seed and stream, takes i.
 * `count` is at least 1, and at most 2^62. */
int64_t dlc_permutation_at(uint64_t seed, uint64_t stream, int64_t count, int64_t i);

#endif
