/* Augments samples row by row; runs on the threads of a feed. */
#include "data/augment.h"

#include <string.h>

#include "base/random.h"

/* The random stream that crops and mirroring are drawn from ("augm"). */
#define STREAM_AUGMENT UINT64_C(0x6175676d00000000)

const char *dlc_augment_misfit(const dlc_augment *augment, const dlc_shape *in) {
    int64_t border = 2 * (int64_t)augment->pad;
    if (augment->means > 1 && (int64_t)augment->means != in->dims[0])
        return "mean";
    if (augment->crop > in->dims[1] + border || augment->crop > in->dims[2] + border)
        return "crop";
    return NULL;
}

dlc_status dlc_augment_shape(const dlc_augment *augment, const dlc_shape *in,
                             dlc_shape *out) {
    int64_t height = in->dims[1] + 2 * (int64_t)augment->pad;
    int64_t width = in->dims[2] + 2 * (int64_t)augment->pad;
    const char *misfit = dlc_augment_misfit(augment, in);
    if (misfit && misfit[0] == 'm')
        return dlc_fail(DLC_ERR_CONFIG,
                        "mean has %zu values, but the samples have %lld channels: give "
                        "one value, or one per channel",
                        augment->means, (long long)in->dims[0]);
    if (misfit)
        return dlc_fail(DLC_ERR_CONFIG,
                        "crop is %d, but the samples are only %lld x %lld (padding "
                        "included): make crop smaller or pad larger",
                        augment->crop, (long long)height, (long long)width);
    *out = (dlc_shape){3, {in->dims[0], height, width}};
    if (augment->crop)
        out->dims[1] = out->dims[2] = augment->crop;
    return DLC_OK;
}

dlc_cut dlc_augment_middle(const dlc_shape *in, const dlc_shape *out,
                           const dlc_augment *augment) {
    int64_t border = 2 * (int64_t)augment->pad;
    return (dlc_cut){.top = (in->dims[1] + border - out->dims[1]) / 2,
                     .left = (in->dims[2] + border - out->dims[2]) / 2};
}

/* A number in 0 .. room, uniform but for an error of room / 2^32. */
static int64_t draw(uint32_t word, int64_t room) {
    return (int64_t)((uint64_t)word * (uint64_t)(room + 1) >> 32);
}

dlc_cut dlc_augment_draw(const dlc_shape *in, const dlc_shape *out,
                         const dlc_augment *augment, uint64_t seed, uint64_t position) {
    uint32_t words[4];
    dlc_random_block(seed, STREAM_AUGMENT, position, words);
    int64_t border = 2 * (int64_t)augment->pad;
    return (dlc_cut){.top = draw(words[0], in->dims[1] + border - out->dims[1]),
                     .left = draw(words[1], in->dims[2] + border - out->dims[2]),
                     .mirror = augment->mirror && (words[2] & 1)};
}

static void convert_u8(float *restrict to, const uint8_t *restrict from, size_t n,
                       float mean, float scale) {
    for (size_t i = 0; i < n; i++)
        to[i] = ((float)from[i] - mean) * scale;
}

static void convert_f32(float *restrict to, const float *restrict from, size_t n,
                        float mean, float scale) {
    for (size_t i = 0; i < n; i++)
        to[i] = (from[i] - mean) * scale;
}

/* Converts n elements of `from`, starting with element `begin`. Not inlined: its loops
 * are large. */
__attribute__((noinline)) static void convert(dlc_dtype type, float *to,
                                              const void *from, int64_t begin,
                                              int64_t n, float mean, float scale) {
    if (type == DLC_U8)
        convert_u8(to, (const uint8_t *)from + begin, (size_t)n, mean, scale);
    else
        convert_f32(to, (const float *)from + begin, (size_t)n, mean, scale);
}

static void fill(float *to, int64_t n, float value) {
    for (int64_t i = 0; i < n; i++)
        to[i] = value;
}

static void reverse(float *row, int64_t n) {
    for (int64_t i = 0, j = n - 1; i < j; i++, j--) {
        float first = row[i];
        row[i] = row[j];
        row[j] = first;
    }
}

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

float dlc_augment_mean(const dlc_augment *augment, int64_t channel) {
    return augment->means ? (float)augment->mean[augment->means > 1 ? channel : 0] : 0;
}

int dlc_augment_is_whole(const dlc_augment *augment, const dlc_shape *in,
                         const dlc_shape *out) {
    return !augment->pad && dlc_shape_equal(in, out);
}

/* The source of one output row: columns first .. last - 1 are elements of the sample's
 * plane from `begin` on; the columns on either side are border. */
typedef struct view {
    int64_t begin, first, last;
} view;

static view view_row(const dlc_cut *cut, int64_t pad, const dlc_shape *in,
                     int64_t width, int64_t y) {
    int64_t in_height = in->dims[1], in_width = in->dims[2];
    int64_t row = y + cut->top - pad, shift = cut->left - pad;
    if (row < 0 || row >= in_height)
        return (view){.first = width, .last = width};
    int64_t first = clamp(-shift, 0, width);
    int64_t last = clamp(in_width - shift, first, width);
    return (view){.begin = first < last ? row * in_width + first + shift : 0,
                  .first = first,
                  .last = last};
}

void dlc_augment_apply(const dlc_augment *augment, const dlc_cut *cut, dlc_dtype type,
                       const dlc_shape *in, const void *from, const dlc_shape *out,
                       float *to) {
    size_t in_plane = (size_t)(in->dims[1] * in->dims[2]) * dlc_dtype_bytes(type);
    int64_t height = out->dims[1], width = out->dims[2];
    int whole = !cut->mirror && dlc_augment_is_whole(augment, in, out);
    for (int64_t c = 0; c < in->dims[0]; c++) {
        float mean = dlc_augment_mean(augment, c), scale = augment->scale;
        float border = (0.0f - mean) * scale;
        const char *plane = (const char *)from + (size_t)c * in_plane;
        if (whole) {
            convert(type, to, plane, 0, height * width, mean, scale);
            to += height * width;
            continue;
        }
        for (int64_t y = 0; y < height; y++, to += width) {
            view seen = view_row(cut, augment->pad, in, width, y);
            fill(to, seen.first, border);
            convert(type, to + seen.first, plane, seen.begin, seen.last - seen.first,
                    mean, scale);
            fill(to + seen.last, width - seen.last, border);
            if (cut->mirror)
                reverse(to, width);
        }
    }
}

/* Copies eight bytes at a time, as a word with its bytes swapped. */
static void copy_reversed(uint8_t *restrict to, const uint8_t *restrict from,
                          size_t n) {
    const uint8_t *end = from + n;
    for (; n >= 8; n -= 8, to += 8) {
        uint64_t word;
        end -= 8;
        memcpy(&word, end, 8);
        word = __builtin_bswap64(word);
        memcpy(to, &word, 8);
    }
    while (n-- > 0)
        *to++ = *--end;
}

static void cut_row(const view *seen, int mirror, const uint8_t *plane, int64_t width,
                    uint8_t *to) {
    int64_t left = mirror ? width - seen->last : seen->first;
    int64_t shown = seen->last - seen->first;
    const uint8_t *from = plane + seen->begin;
    memset(to, 0, (size_t)left);
    if (mirror)
        copy_reversed(to + left, from, (size_t)shown);
    else
        memcpy(to + left, from, (size_t)shown);
    memset(to + left + shown, 0, (size_t)(width - left - shown));
}

void dlc_augment_cut(const dlc_augment *augment, const dlc_cut *cut,
                     const dlc_shape *in, const uint8_t *from, const dlc_shape *out,
                     uint8_t *to) {
    int64_t in_plane = in->dims[1] * in->dims[2];
    int64_t height = out->dims[1], width = out->dims[2];
    if (!cut->mirror && dlc_augment_is_whole(augment, in, out)) {
        memcpy(to, from, (size_t)dlc_shape_count(in));
        return;
    }
    for (int64_t c = 0; c < in->dims[0]; c++) {
        for (int64_t y = 0; y < height; y++, to += width) {
            view seen = view_row(cut, augment->pad, in, width, y);
            cut_row(&seen, cut->mirror, from + c * in_plane, width, to);
        }
    }
}
