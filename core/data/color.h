/* Arithmetic on the colors of an image, in float32 between 0 and 1, one plane per
 * channel: the definitions of torchvision. Called by the transforms that change colors.
 */
#ifndef DLC_DATA_COLOR_H
#define DLC_DATA_COLOR_H

#include <stdint.h>

typedef struct dlc_color {
    float *plane[3]; /* red, green, blue; a gray image has the first only */
    int32_t channels;
    int64_t count; /* of pixels */
} dlc_color;

/* Each replaces x by factor * x + (1 - factor) * y, cut off at 0 and 1. y is black, the
 * mean gray of the image, or the gray of the pixel. Gray images have no saturation. */
void dlc_color_brightness(const dlc_color *color, float factor);
void dlc_color_contrast(const dlc_color *color, float factor);
void dlc_color_saturation(const dlc_color *color, float factor);
/* Turns the hue by `turns` of the color wheel. */
void dlc_color_hue(const dlc_color *color, float turns);
/* Adds `shift` to the values of each channel. */
void dlc_color_shift(const dlc_color *color, const float shift[3]);

/* Pixels of bytes, whose channels lie `channel` bytes apart and columns `column`,
 * become n floats of each plane from `at` on; and back, rounded, interleaved. */
void dlc_color_load(const dlc_color *color, const uint8_t *from, int64_t column,
                    int64_t channel, int64_t at, int64_t n);
void dlc_color_store(const dlc_color *color, int64_t at, int64_t n, uint8_t *to);

#endif
