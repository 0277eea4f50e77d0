/* Philox4x32-10, and numbers of several distributions from it. */
#include "base/random.h"

#include <math.h>

/* Constants of Philox4x32 and its Weyl key sequence (Salmon et al., table 2). */
#define MUL0 0xD2511F53u
#define MUL1 0xCD9E8D57u
#define WEYL0 0x9E3779B9u
#define WEYL1 0xBB67AE85u

void dlc_random_block(uint64_t seed, uint64_t stream, uint64_t counter,
                      uint32_t words[4]) {
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)MUL0 * c0, p1 = (uint64_t)MUL1 * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += WEYL0;
        k1 += WEYL1;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

dlc_random dlc_random_make(uint64_t seed, uint64_t stream) {
    return (dlc_random){.seed = seed, .stream = stream};
}

uint32_t dlc_random_u32(dlc_random *random) {
    if (!random->left) {
        dlc_random_block(random->seed, random->stream, random->counter++,
                         random->words);
        random->left = 4;
    }
    return random->words[--random->left];
}

static uint64_t random_u64(dlc_random *random) {
    uint64_t high = dlc_random_u32(random);
    return high << 32 | dlc_random_u32(random);
}

__extension__ typedef unsigned __int128 wide;

uint64_t dlc_random_below(dlc_random *random, uint64_t bound) {
    /* Reject the few values that would bias the result: those below 2^64 % bound, which
     * is below bound and takes a division. */
    for (;;) {
        wide product = (wide)random_u64(random) * bound;
        uint64_t low = (uint64_t)product;
        if (low >= bound || low >= -bound % bound)
            return (uint64_t)(product >> 64);
    }
}

float dlc_random_uniform(dlc_random *random) {
    return (float)(dlc_random_u32(random) >> 8) * 0x1p-24f;
}

float dlc_random_normal(dlc_random *random) {
    double u = ((double)dlc_random_u32(random) + 1.0) * 0x1p-32; /* (0, 1] */
    double v = (double)dlc_random_u32(random) * 0x1p-32;
    return (float)(sqrt(-2.0 * log(u)) * cos(2.0 * M_PI * v));
}
