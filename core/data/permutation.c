/* A permutation by a Feistel network: two halves of a number are mixed in turn by
 * random words, which can always be undone, so no two numbers become one. The network
 * permutes the numbers up to a power of four; a number that leaves the range goes
 * through it again until it is back (Black and Rogaway, "Ciphers with arbitrary finite
 * domains", CT-RSA 2002). */
#include "data/permutation.h"

#include "base/random.h"

enum { ROUNDS = 8 };

static uint64_t run_network(uint64_t seed, uint64_t stream, int half, uint64_t number) {
    uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t left = number >> half, right = number & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint32_t words[4];
        dlc_random_block(seed, stream, round << 32 | right, words);
        uint64_t mixed = left ^ (words[0] & mask);
        left = right;
        right = mixed;
    }
    return left << half | right;
}

int64_t dlc_permutation_at(uint64_t seed, uint64_t stream, int64_t count, int64_t i) {
    int half = 1;
    while (UINT64_C(1) << 2 * half < (uint64_t)count)
        half++;
    uint64_t number = (uint64_t)i;
    do
        number = run_network(seed, stream, half, number);
    while (number >= (uint64_t)count);
    return (int64_t)number;
}
