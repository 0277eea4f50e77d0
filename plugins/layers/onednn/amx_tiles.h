/* The tile registers of Intel's AMX for files that are compiled once for each way to
 * have them (CMakeLists.txt): by the instructions, or by an emulation in C that gives
 * the same bits, for tests on machines without AMX.
 *
 * A tile is 16 rows of 64 bytes. Tiles 0 to 3 hold float32 sums, 4 and 5 the rows of
 * the left factor, 6 and 7 pairs of rows of the right factor: C[m][n] += sum over k of
 * A[m][2k] * B[k][2n] + A[m][2k + 1] * B[k][2n + 1], k < 16 (Intel, Software
 * Developer's Manual, TDPBF16PS: pairs are added by fused multiply-adds in order of k,
 * even and odd numbers apart, subnormal numbers are zero).
 */
#ifndef ONEDNN_AMX_TILES_H
#define ONEDNN_AMX_TILES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "amx_plan.h"

#ifdef __AMX_BF16__

#include <immintrin.h>

/* Palette 1, by the layout of the instruction's operand. */
typedef struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_shapes;

/* Gives this thread its tiles; other code may use them again after tiles_end(). */
static inline void tiles_begin(void) {
    tile_shapes shapes = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        shapes.row_bytes[i] = TILE_ROW_BYTES;
        shapes.rows[i] = TILE_ROWS;
    }
    /* GCC's intrinsic does not say that the instruction reads the whole struct. */
    __asm__ volatile("ldtilecfg %0" ::"m"(shapes));
}

static inline void tiles_end(void) {
    _tile_release();
}

/* `tile` is a literal number; strides are in bytes. */
#define tile_zero(tile) _tile_zero(tile)
#define tile_load(tile, from, stride) _tile_loadd(tile, from, stride)
#define tile_store(tile, to, stride) _tile_stored(tile, to, stride)
#define tile_dot(sums, left, right) _tile_dpbf16ps(sums, left, right)

#else

#include <float.h>
#include <math.h>

static _Thread_local struct {
    _Alignas(64) char bytes[8][TILE_ROWS][TILE_ROW_BYTES];
} tile_file;

static inline void tiles_begin(void) {
    memset(&tile_file, 0, sizeof tile_file);
}

static inline void tiles_end(void) {}

static inline void tile_zero(int tile) {
    memset(tile_file.bytes[tile], 0, TILE_BYTES);
}

static inline void tile_load(int tile, const void *from, size_t stride) {
    for (size_t r = 0; r < TILE_ROWS; r++)
        memcpy(tile_file.bytes[tile][r], (const char *)from + r * stride,
               TILE_ROW_BYTES);
}

static inline void tile_store(int tile, void *to, size_t stride) {
    for (size_t r = 0; r < TILE_ROWS; r++)
        // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): it is not NULL
        memcpy((char *)to + r * stride, tile_file.bytes[tile][r], TILE_ROW_BYTES);
}

static inline float tile_flushed(float value) {
    return fabsf(value) < FLT_MIN ? copysignf(0, value) : value;
}

static inline float tile_number(int tile, size_t row, size_t i) {
    uint16_t upper;
    memcpy(&upper, tile_file.bytes[tile][row] + i * sizeof upper, sizeof upper);
    uint32_t bits = (uint32_t)upper << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return tile_flushed(value);
}

static inline void tile_dot(int sums, int left, int right) {
    for (size_t m = 0; m < TILE_ROWS; m++)
        for (size_t n = 0; n < TILE_COLS; n++) {
            float even = 0, odd = 0, sum;
            for (size_t k = 0; k < TILE_ROWS; k++) {
                even = tile_flushed(fmaf(tile_number(left, m, 2 * k),
                                         tile_number(right, k, 2 * n), even));
                odd = tile_flushed(fmaf(tile_number(left, m, 2 * k + 1),
                                        tile_number(right, k, 2 * n + 1), odd));
            }
            char *at = tile_file.bytes[sums][m] + n * sizeof sum;
            memcpy(&sum, at, sizeof sum);
            sum = tile_flushed(tile_flushed(sum) + tile_flushed(even + odd));
            memcpy(at, &sum, sizeof sum);
        }
}

#endif

#endif
