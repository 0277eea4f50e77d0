/* What decoders do with single pixels. */
#ifndef DECODERS_PIXELS_H
#define DECODERS_PIXELS_H

#include <stddef.h>
#include <stdint.h>

/* The brightness of a colour by ITU-R BT.601, rounded. */
static inline unsigned char pixel_grey(unsigned red, unsigned green, unsigned blue) {
    return (unsigned char)((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16);
}

/* Copies `count` pixels of 1 or 3 channels to pixels of 1 or 3, `step` bytes apart. */
static inline void pixels_copy(const unsigned char *from, int32_t have, size_t count,
                               unsigned char *to, int32_t want, ptrdiff_t step) {
    for (size_t i = 0; i < count; i++, from += have, to += step) {
        if (want == 3) {
            to[0] = from[0];
            to[1] = from[have == 3 ? 1 : 0];
            to[2] = from[have == 3 ? 2 : 0];
        } else {
            to[0] = have == 3 ? pixel_grey(from[0], from[1], from[2]) : from[0];
        }
    }
}

#endif
