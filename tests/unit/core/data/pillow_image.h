/* The image of pillow.py, and what Pillow makes of it. */
#ifndef TEST_PILLOW_IMAGE_H
#define TEST_PILLOW_IMAGE_H

#include <stdint.h>

#include "pillow_results.h"

enum { PILLOW_WIDTH = 9, PILLOW_HEIGHT = 8 };

static inline void pillow_image(uint8_t *pixels) {
    uint32_t state = 1;
    for (int i = 0; i < PILLOW_WIDTH * PILLOW_HEIGHT * 3; i++) {
        state = (state * 1103515245u + 12345u) % 0x80000000u;
        uint8_t value = (uint8_t)(state >> 16);
        pixels[i] = state >> 24 & 1 ? value : value > 127 ? 255 : 0;
    }
}

#endif
