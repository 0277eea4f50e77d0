/* The orientation that a camera writes into a file, as EXIF. */
#ifndef DECODERS_EXIF_H
#define DECODERS_EXIF_H

#include <stddef.h>

#include <dlcore/decoder.h>

/* How the stored picture becomes the one that is looked at: rows and columns change
 * places, and the stored columns, or rows, run backwards. */
typedef struct orientation {
    int transposed, columns_backwards, rows_backwards;
} orientation;

/* Finds the orientation in EXIF data, with "Exif" before them, as in JPEG files, or
 * without; the stored one if there is none, or if the data are damaged. */
orientation exif_orientation(const unsigned char *data, size_t bytes);

/* A region of the stored picture, and where its pixels go. */
typedef struct target {
    int32_t x, y, width, height;
    int32_t channels;            /* of the pixels that are wanted */
    unsigned char *first;        /* where the first stored pixel goes */
    ptrdiff_t to_right, to_down; /* to the place of the next in its row, and column */
} target;

/* Turns the region of the picture that is looked at into one of the stored picture,
 * which has `width` x `height` pixels. */
target target_find(orientation way, int32_t width, int32_t height,
                   const dlc_decode_args *args, unsigned char *pixels);

/* 1 if the region is in the stored picture. */
static inline int target_is_within(const target *t, int32_t width, int32_t height) {
    return t->x >= 0 && t->y >= 0 && t->width <= width - t->x &&
           t->height <= height - t->y;
}

/* Puts row `y` of the stored region, given its first pixel, which has 1 or 3 channels.
 */
void target_put_row(const target *t, int32_t y, const unsigned char *from,
                    int32_t channels);

#endif
