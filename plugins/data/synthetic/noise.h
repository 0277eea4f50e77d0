/* Random numbers by counter, and samples of noise. */
#ifndef SYNTHETIC_NOISE_H
#define SYNTHETIC_NOISE_H

#include "source.h"

/* Word `counter` of (seed, stream). */
uint64_t random_word(uint64_t seed, uint64_t stream, uint64_t counter);

/* [0, 1) */
static inline float unit(uint64_t word) {
    return (float)(word >> 40) * 0x1p-24f;
}

/* Streams: each sample has one for its label, shift and noise, each class one for its
 * spots. */
static inline uint64_t sample_stream(int64_t sample) {
    return (uint64_t)sample << 1;
}

static inline uint64_t class_stream(int32_t label) {
    return (uint64_t)label << 1 | 1;
}

/* Counters of a sample's stream; noise comes after them. */
enum { AT_LABEL, AT_DOWN, AT_RIGHT, AT_NOISE };

/* The noise of a sample as floats, low + step * byte. */
void make_noise_floats(const dlc_source *source, int64_t sample, float low, float step,
                       float *floats);
/* Makes a sample that is noise alone. */
void store_noise(const dlc_source *source, int64_t sample, void *data);

#endif
