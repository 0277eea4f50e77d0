/* Makes random numbers and noise. */
#include "noise.h"

#include <endian.h>
#include <string.h>

/* The mixing function of SplitMix64 (Steele et al., "Fast splittable pseudorandom
 * number generators", OOPSLA 2014), applied three times to a seed, a stream and a
 * counter. */
static uint64_t mix(uint64_t word) {
    word += UINT64_C(0x9e3779b97f4a7c15);
    word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
    return word ^ word >> 31;
}

/* The start of a stream: its words are mix(start + counter). */
static uint64_t stream_start(uint64_t seed, uint64_t stream) {
    return mix(mix(seed) ^ stream);
}

uint64_t random_word(uint64_t seed, uint64_t stream, uint64_t counter) {
    return mix(stream_start(seed, stream) + counter);
}

/* Compiled for each instruction set: integer arithmetic gives the same result on each.
 * Not with the thread sanitizer, which is not ready when the loader chooses one. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define CLONES
#endif

CLONES static void make_words(uint64_t start, size_t count, unsigned char *bytes) {
    for (size_t i = 0; i < count; i++) {
        uint64_t word = htole64(mix(start + i));
        memcpy(bytes + 8 * i, &word, 8);
    }
}

/* Random bytes, eight per word, the lowest first. Training is timed with this, so it
 * must not take longer than the training. */
static void make_noise(const dlc_source *source, int64_t sample, unsigned char *bytes) {
    uint64_t start = stream_start(source->seed, sample_stream(sample)) + AT_NOISE;
    size_t count = (size_t)dlc_shape_count(&source->shape), whole = count / 8;
    uint64_t last = htole64(mix(start + whole));
    make_words(start, whole, bytes);
    memcpy(bytes + 8 * whole, &last, count % 8);
}

/* The bytes are generated at the end of the buffer of floats, and each is read before a
 * float overwrites it. */
void make_noise_floats(const dlc_source *source, int64_t sample, float low, float step,
                       float *floats) {
    size_t count = (size_t)dlc_shape_count(&source->shape);
    unsigned char *bytes = (unsigned char *)floats + count * (sizeof *floats - 1);
    make_noise(source, sample, bytes);
    for (size_t i = 0; i < count; i++)
        floats[i] = low + step * (float)bytes[i];
}

void store_noise(const dlc_source *source, int64_t sample, void *data) {
    if (source->dtype == DLC_U8)
        make_noise(source, sample, data);
    else
        make_noise_floats(source, sample, 0, 1.0f / 255, data);
}
