/* Copies of both factors of a gradient of weights, for amx_gradient.c: pixels side by
 * side for each channel, and in pairs as tiles. */
#ifndef ONEDNN_AMX_COPIES_H
#define ONEDNN_AMX_COPIES_H

#include "amx_blocks.h"
#include "amx_plan.h"

/* Places of a factor's pixels: position (i, j) is pixel (scale * i + shift[0],
 * scale * j + shift[1]), and zero outside of rows and columns [0, end). */
typedef struct placing {
    const bf16 *image; /* a group's first channel */
    size_t across, scale, end[2];
    ptrdiff_t shift[2];
    size_t row, pixel; /* between rows and pixels of the image, in numbers */
} placing;

/* Finds the pixels of 32 positions; NULL: zero. */
static void find_pixels(const placing *at, size_t position,
                        const bf16 *pixels[TILE_DEPTH]) {
    size_t i = position / at->across, j = position % at->across;
    for (size_t p = 0; p < TILE_DEPTH; p++) {
        ptrdiff_t y = (ptrdiff_t)(at->scale * i) + at->shift[0];
        ptrdiff_t x = (ptrdiff_t)(at->scale * j) + at->shift[1];
        int inside = y >= 0 && x >= 0 && y < (ptrdiff_t)at->end[0] &&
                     x < (ptrdiff_t)at->end[1];
        pixels[p] = inside ? at->image + (size_t)y * at->row + (size_t)x * at->pixel
                           : NULL;
        if (++j == at->across) {
            j = 0;
            i++;
        }
    }
}

/* Begins to load the pixels of the next positions, which follow these. */
static inline void prefetch_pixels(const placing *at, size_t count,
                                   const bf16 *const pixels[TILE_DEPTH]) {
    for (size_t p = 0; p < TILE_DEPTH; p++)
        for (size_t c = 0; pixels[p] && c < count; c += TILE_ROW_BYTES / sizeof(bf16))
            __builtin_prefetch(pixels[p] + TILE_DEPTH * at->scale * at->pixel + c, 0,
                               2);
}

#ifdef __AVX512BW__

/* Eight channels of the pixels p, p + 8, p + 16 and p + 24. */
ALWAYS __m512i four_pixels(const bf16 *const *pixels, size_t p, size_t channel) {
    __m512i four = _mm512_setzero_si512();
    for (size_t i = 0; i < 4; i++)
        if (pixels[p + 8 * i])
            four = _mm512_mask_broadcast_i32x4(
                four, (__mmask16)(0xf << 4 * i),
                _mm_loadu_si128((const void *)(pixels[p + 8 * i] + channel)));
    return four;
}

/* Transposes eight channels of 32 pixels: in each quarter of a vector, 8 x 8 numbers.
 */
ALWAYS void turn_eight(const bf16 *const pixels[TILE_DEPTH], size_t channel,
                       size_t plane, bf16 *to) {
    __m512i a[8], b[8];
    for (size_t p = 0; p < 8; p++)
        a[p] = four_pixels(pixels, p, channel);
    for (size_t p = 0; p < 4; p++) {
        b[2 * p] = _mm512_unpacklo_epi16(a[2 * p], a[2 * p + 1]);
        b[2 * p + 1] = _mm512_unpackhi_epi16(a[2 * p], a[2 * p + 1]);
    }
    for (size_t p = 0; p < 8; p += 4)
        for (size_t i = 0; i < 2; i++) {
            a[p + 2 * i] = _mm512_unpacklo_epi32(b[p + i], b[p + 2 + i]);
            a[p + 2 * i + 1] = _mm512_unpackhi_epi32(b[p + i], b[p + 2 + i]);
        }
    for (size_t i = 0; i < 4; i++) {
        __m512i even = _mm512_unpacklo_epi64(a[i], a[i + 4]);
        __m512i odd = _mm512_unpackhi_epi64(a[i], a[i + 4]);
        _mm512_storeu_si512(to + 2 * i * plane, even);
        _mm512_storeu_si512(to + (2 * i + 1) * plane, odd);
    }
}

#endif

/* Copies `count` channels, each to a row of `plane` positions. */
static void copy_turned(const placing *at, size_t count, size_t plane, bf16 *to) {
    for (size_t position = 0; position < plane;
         position += TILE_DEPTH, to += TILE_DEPTH) {
        const bf16 *pixels[TILE_DEPTH];
        size_t c = 0;
        find_pixels(at, position, pixels);
        prefetch_pixels(at, count, pixels);
#ifdef __AVX512BW__
        for (; c + 8 <= count; c += 8)
            turn_eight(pixels, c, plane, to + c * plane);
#endif
        for (; c < count; c++)
            for (size_t p = 0; p < TILE_DEPTH; p++)
                to[c * plane + p] = pixels[p] ? pixels[p][c] : 0;
    }
}

/* Stores up to 32 channels of two pixels in pairs, a row of a tile for each 16. */
ALWAYS void store_pairs(const bf16 *const pixels[2], size_t channel, size_t count,
                        char *low, char *high) {
#ifdef __AVX512BW__
    /* 64-bit parts of two vectors, as unpacking leaves the order of channels. */
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    const __mmask32 all = (__mmask32)((1ull << count) - 1);
    __m512i even = _mm512_maskz_loadu_epi16(pixels[0] ? all : 0, pixels[0] + channel);
    __m512i odd = _mm512_maskz_loadu_epi16(pixels[1] ? all : 0, pixels[1] + channel);
    __m512i a = _mm512_unpacklo_epi16(even, odd), b = _mm512_unpackhi_epi16(even, odd);
    _mm512_storeu_si512(low, _mm512_permutex2var_epi64(a, first, b));
    if (count > LANES)
        _mm512_storeu_si512(high, _mm512_permutex2var_epi64(a, second, b));
#else
    for (size_t i = 0; i < 2; i++)
        for (size_t c = 0; c < BLOCK_COLS; c++) {
            bf16 number = pixels[i] && c < count ? pixels[i][channel + c] : 0;
            char *to = c < LANES ? low : high;
            if (c < count || c < LANES)
                memcpy(to + (2 * (c % LANES) + i) * sizeof number, &number,
                       sizeof number);
        }
#endif
}

/* Copies `count` channels as tiles of pairs. Each vector of channels has `steps` tiles,
 * one after the other; vectors are `apart` bytes apart. */
static void copy_pairs(const placing *at, size_t count, size_t steps, size_t apart,
                       char *to) {
    for (size_t step = 0; step < steps; step++, to += TILE_BYTES) {
        const bf16 *pixels[TILE_DEPTH];
        find_pixels(at, step * TILE_DEPTH, pixels);
        prefetch_pixels(at, count, pixels);
        for (size_t c = 0; c < count; c += BLOCK_COLS) {
            char *tile = to + c / LANES * apart;
            const size_t some = least(count - c, BLOCK_COLS);
            for (size_t i = 0; i < TILE_ROWS; i++, tile += TILE_ROW_BYTES)
                store_pairs(pixels + 2 * i, c, some, tile, tile + apart);
        }
    }
}

#endif
