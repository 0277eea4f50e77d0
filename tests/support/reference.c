/* Computes test values by a hash, and their pairwise sum. */
#include "support/reference.h"

#include <string.h>

float reference_value(uint64_t salt, int rank, size_t i) {
    /* The finalizer of SplitMix64 (Steele et al. 2014) of the three arguments. */
    uint64_t z = salt * 0x9e3779b97f4a7c15u + (uint64_t)rank * 0xd1342543de82ef95u + i;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    /* Any sign and fraction, magnitudes 2^-16 .. 2^-1: nearly every addition rounds. */
    uint32_t bits = (uint32_t)z & 0x807fffff;
    float value;
    bits |= (111 + ((uint32_t)(z >> 32) & 15)) << 23;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void reference_fill(uint64_t salt, int rank, size_t count, float *values) {
    for (size_t i = 0; i < count; i++)
        values[i] = reference_value(salt, rank, i);
}

float reference_sum(uint64_t salt, int ranks, size_t i) {
    float v[64];
    for (int r = 0; r < ranks; r++)
        v[r] = reference_value(salt, r, i);
    for (int stride = 1; stride < ranks; stride *= 2)
        for (int r = 0; r + stride < ranks; r += 2 * stride)
            v[r] += v[r + stride];
    return v[0];
}

size_t reference_wrong(uint64_t salt, int ranks, size_t begin, size_t end,
                       const float *sums) {
    size_t wrong = 0;
    for (size_t i = begin; i < end; i++) {
        float want = reference_sum(salt, ranks, i);
        wrong += memcmp(&want, &sums[i], sizeof want) != 0;
    }
    return wrong;
}
