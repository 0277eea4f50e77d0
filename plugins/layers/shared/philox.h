/* Counter-based random numbers: any of them, in any order, on any thread.
 * Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011,
 * section 4.3 (constants: table 2). */
#ifndef LAYERS_SHARED_PHILOX_H
#define LAYERS_SHARED_PHILOX_H

#include <stdint.h>

#include "host_device.h"

typedef struct philox_words {
    uint32_t word[4];
} philox_words;

BODY philox_words philox(uint64_t seed, uint64_t counter, uint32_t stream,
                         uint32_t step) {
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = stream, c3 = step;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    philox_words out = {{c0, c1, c2, c3}};
    return out;
}

#endif
