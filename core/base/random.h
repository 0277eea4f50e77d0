/* Counter-based random numbers: a (seed, stream, counter) gives the same numbers on
 * every machine and for any number of ranks and threads.
 *
 * Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * SC 2011, section 4.3.
 */
#ifndef DLC_BASE_RANDOM_H
#define DLC_BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Computes the four random words of a counter. */
void dlc_random_block(uint64_t seed, uint64_t stream, uint64_t counter,
                      uint32_t words[4]);

/* A sequence of random words; start with {seed, stream, 0}. */
typedef struct dlc_random {
    uint64_t seed, stream, counter;
    uint32_t words[4];
    uint32_t left; /* words not yet returned */
} dlc_random;

dlc_random dlc_random_make(uint64_t seed, uint64_t stream);
uint32_t dlc_random_u32(dlc_random *random);
/* A number of 0 .. bound-1, uniformly (Lemire 2019); bound >= 1. */
uint64_t dlc_random_below(dlc_random *random, uint64_t bound);
/* A number of [0, 1) with 24 bits, uniformly. */
float dlc_random_uniform(dlc_random *random);
/* A number of the standard normal distribution (Box-Muller). */
float dlc_random_normal(dlc_random *random);

#endif
