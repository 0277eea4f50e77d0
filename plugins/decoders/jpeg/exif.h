/* The orientation that a camera writes into a JPEG file. */
#ifndef JPEG_EXIF_H
#define JPEG_EXIF_H

#include <stddef.h>

/* How the stored picture becomes the one that is looked at: rows and columns change
 * places, and the stored columns, or rows, run backwards. */
typedef struct orientation {
    int transposed, columns_backwards, rows_backwards;
} orientation;

/* Finds the orientation in the data of an APP1 marker; the stored one if there is none,
 * or if the data is damaged. */
orientation exif_orientation(const unsigned char *data, size_t bytes);

#endif
