/* The end of a list: whatever view of an image there is becomes planes, of bytes or of
 * normalized float32. Every value that a net reads passes through these loops. */
#include <string.h>

#include "base/status.h"
#include "data/clones.h"
#include "data/transform_kinds.h"

CLONES static void normalize_bytes(float *restrict to, const uint8_t *restrict from,
                                   int64_t n, float mean, float scale) {
    for (int64_t i = 0; i < n; i++)
        to[i] = ((float)from[i] - mean) * scale;
}

CLONES static void normalize_floats(float *restrict to, const float *restrict from,
                                    int64_t n, float mean, float scale) {
    for (int64_t i = 0; i < n; i++)
        to[i] = (from[i] - mean) * scale;
}

/* Copies eight bytes at a time, as a word with its bytes swapped. */
static void copy_reversed(uint8_t *restrict to, const uint8_t *restrict from,
                          int64_t n) {
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

CLONES static void split3(uint8_t *restrict to, int64_t plane,
                          const uint8_t *restrict from, int64_t n) {
    uint8_t *restrict first = to, *restrict second = to + plane,
                      *restrict third = to + 2 * plane;
    for (int64_t i = 0; i < n; i++) {
        first[i] = from[3 * i];
        second[i] = from[3 * i + 1];
        third[i] = from[3 * i + 2];
    }
}

/* Writes a row of bytes: n columns of each channel, whose planes lie `plane` apart.
 * `room` has as many bytes. */
static void write_bytes(const dlc_image *image, const uint8_t *from, int64_t n,
                        int64_t plane, uint8_t *room, uint8_t *to) {
    int64_t channels = image->channels, column = image->column;
    if (channels == 3 && image->channel == 1 && column == 3) {
        split3(to, plane, from, n);
        return;
    }
    if (channels == 3 && image->channel == 1 && column == -3) {
        split3(room, n, from - 3 * (n - 1), n);
        for (int64_t c = 0; c < 3; c++)
            copy_reversed(to + c * plane, room + c * n, n);
        return;
    }
    for (int64_t c = 0; c < channels; c++, to += plane, from += image->channel) {
        if (column == 1)
            memcpy(to, from, (size_t)n);
        else if (column == -1)
            copy_reversed(to, from - (n - 1), n);
        else
            for (int64_t i = 0; i < n; i++)
                to[i] = from[i * column];
    }
}

/* The same of bytes that become floats. `room` has twice as many bytes. */
static void write_normalized(const dlc_transform_work *work, const uint8_t *from,
                             int64_t n, int64_t plane, uint8_t *room, float *to) {
    const dlc_image *image = &work->image;
    int is_split = image->column == 1;
    if (!is_split)
        write_bytes(image, from, n, n, room + image->channels * n, room);
    for (int64_t c = 0; c < image->channels; c++)
        normalize_bytes(
            to + c * plane, is_split ? from + c * image->channel : room + c * n, n,
            dlc_transforms_mean(work->list, c), dlc_transforms_scale(work->list, c));
}

static void write_floats(const dlc_transform_work *work, const float *from, int64_t n,
                         int64_t plane, float *to) {
    const dlc_image *image = &work->image;
    for (int64_t c = 0; c < image->channels; c++, to += plane, from += image->channel) {
        float mean = dlc_transforms_mean(work->list, c);
        float scale = dlc_transforms_scale(work->list, c);
        if (image->column == 1)
            normalize_floats(to, from, n, mean, scale);
        else
            for (int64_t i = 0; i < n; i++)
                to[i] = (from[i * image->column] - mean) * scale;
    }
}

dlc_status dlc_work_write(const dlc_transform_work *work, dlc_dtype type, void *out) {
    const dlc_image *image = &work->image;
    int64_t rows = image->height, n = image->width, plane = rows * n;
    if (image->column == 1 &&
        image->row == n) { /* rows without gaps are one long row */
        n = plane;
        rows = 1;
    }
    uint8_t *room = NULL;
    if (image->column != 1) {
        room = dlc_work_memory(work, (size_t)(2 * n * image->channels));
        if (!room)
            return DLC_ERR_NOMEM;
    }
    for (int64_t row = 0; row < rows; row++) {
        const void *from = dlc_image_at(image, row, 0);
        if (type == DLC_U8)
            write_bytes(image, from, n, plane, room, (uint8_t *)out + row * n);
        else if (image->type == DLC_U8)
            write_normalized(work, from, n, plane, room, (float *)out + row * n);
        else
            write_floats(work, from, n, plane, (float *)out + row * n);
    }
    return DLC_OK;
}
