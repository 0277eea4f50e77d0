/* Affine maps of images of bytes: each pixel of the result is taken from the place that
 * the map gives. Called by the transforms that rotate, shear and translate. */
#ifndef DLC_DATA_AFFINE_H
#define DLC_DATA_AFFINE_H

#include "data/transform.h"

/* The place (x, y) in the input, relative to its center, of a pixel of the result
 * relative to its center: (a x + b y + c, d x + e y + f). */
typedef struct dlc_affine {
    double a, b, c, d, e, f;
} dlc_affine;

dlc_affine dlc_affine_rotate(double degrees); /* counterclockwise */

/* Maps `from` to `to`, which is as large and of the same channels; both interleaved.
 * What lies outside becomes 0. Between pixels: the mean of the four around, or the
 * nearest. */
void dlc_affine_map(const dlc_affine *affine, int bilinear, const dlc_image *from,
                    const dlc_image *to);

#endif
