/* Changes colors plane by plane, in loops that are vectorised. */
#include "data/color.h"

#include <math.h>

#include "data/clones.h"

/* What of each channel makes gray, as in torchvision. */
#define RED 0.2989f
#define GREEN 0.587f
#define BLUE 0.114f

static float limit(float value) {
    return value < 0 ? 0 : value > 1 ? 1 : value;
}

static float gray_of(float red, float green, float blue) {
    return RED * red + GREEN * green + BLUE * blue;
}

CLONES static void blend(float *plane, int64_t n, float factor, float add) {
    for (int64_t i = 0; i < n; i++)
        plane[i] = limit(factor * plane[i] + add);
}

void dlc_color_brightness(const dlc_color *color, float factor) {
    for (int32_t c = 0; c < color->channels; c++)
        blend(color->plane[c], color->count, factor, 0);
}

/* The sum in eight parts, so that it can be vectorised and still has one order. */
CLONES static double sum_gray(const float *red, const float *green, const float *blue,
                              int64_t n) {
    enum { PARTS = 8 };
    double sum[PARTS] = {0}, total = 0;
    int64_t i = 0;
    for (; i + PARTS <= n; i += PARTS)
        for (int j = 0; j < PARTS; j++)
            sum[j] += (double)gray_of(red[i + j], green[i + j], blue[i + j]);
    for (; i < n; i++)
        total += (double)gray_of(red[i], green[i], blue[i]);
    for (int j = 0; j < PARTS; j++)
        total += sum[j];
    return total;
}

static double sum_plane(const float *plane, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)plane[i];
    return sum;
}

void dlc_color_contrast(const dlc_color *color, float factor) {
    float *const *plane = color->plane;
    int64_t n = color->count;
    double sum = color->channels == 3 ? sum_gray(plane[0], plane[1], plane[2], n)
                                      : sum_plane(plane[0], n);
    float add = (1 - factor) * (float)(sum / (double)n);
    for (int32_t c = 0; c < color->channels; c++)
        blend(plane[c], n, factor, add);
}

CLONES static void saturate(float *restrict red, float *restrict green,
                            float *restrict blue, int64_t n, float factor) {
    for (int64_t i = 0; i < n; i++) {
        float add = (1 - factor) * gray_of(red[i], green[i], blue[i]);
        red[i] = limit(factor * red[i] + add);
        green[i] = limit(factor * green[i] + add);
        blue[i] = limit(factor * blue[i] + add);
    }
}

void dlc_color_saturation(const dlc_color *color, float factor) {
    float *const *plane = color->plane;
    if (color->channels == 3)
        saturate(plane[0], plane[1], plane[2], color->count, factor);
}

/* The value of a channel of the color with this hue, in sixths of the wheel; the
 * channel is largest where hue - offset is 4.5 to 1.5. */
static float channel_of(float hue, float value, float chroma) {
    float k = hue - 6 * floorf(hue / 6);
    float low = k < 4 - k ? k : 4 - k;
    low = low > 1 ? 1 : low < 0 ? 0 : low;
    return value - chroma * low;
}

CLONES static void turn(float *restrict red, float *restrict green,
                        float *restrict blue, int64_t n, float sixths) {
    for (int64_t i = 0; i < n; i++) {
        float r = red[i], g = green[i], b = blue[i];
        float most = r > g ? r : g, least = r < g ? r : g;
        most = b > most ? b : most;
        least = b < least ? b : least;
        float chroma = most - least;
        float divisor = chroma > 0 ? chroma : 1; /* gray has no hue */
        float of_red = (g - b) / divisor, of_green = 2 + (b - r) / divisor,
              of_blue = 4 + (r - g) / divisor;
        float hue = most == r ? of_red : most == g ? of_green : of_blue;
        red[i] = channel_of(hue + sixths + 5, most, chroma);
        green[i] = channel_of(hue + sixths + 3, most, chroma);
        blue[i] = channel_of(hue + sixths + 1, most, chroma);
    }
}

void dlc_color_hue(const dlc_color *color, float turns) {
    float *const *plane = color->plane;
    if (color->channels == 3)
        turn(plane[0], plane[1], plane[2], color->count, 6 * turns);
}

void dlc_color_shift(const dlc_color *color, const float shift[3]) {
    for (int32_t c = 0; c < color->channels; c++)
        blend(color->plane[c], color->count, 1, shift[c]);
}

/* ---- Bytes ------------------------------------------------------------------- */

CLONES static void load3(float *restrict red, float *restrict green,
                         float *restrict blue, const uint8_t *restrict from,
                         int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        red[i] = (float)from[3 * i] * (1.0f / 255);
        green[i] = (float)from[3 * i + 1] * (1.0f / 255);
        blue[i] = (float)from[3 * i + 2] * (1.0f / 255);
    }
}

/* As load3, from right to left. */
CLONES static void load3_reversed(float *restrict red, float *restrict green,
                                  float *restrict blue, const uint8_t *restrict from,
                                  int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        red[n - 1 - i] = (float)from[3 * i] * (1.0f / 255);
        green[n - 1 - i] = (float)from[3 * i + 1] * (1.0f / 255);
        blue[n - 1 - i] = (float)from[3 * i + 2] * (1.0f / 255);
    }
}

void dlc_color_load(const dlc_color *color, const uint8_t *from, int64_t column,
                    int64_t channel, int64_t at, int64_t n) {
    float *const *plane = color->plane;
    int is_interleaved = color->channels == 3 && channel == 1;
    if (is_interleaved && column == 3) {
        load3(plane[0] + at, plane[1] + at, plane[2] + at, from, n);
        return;
    }
    if (is_interleaved && column == -3) {
        load3_reversed(plane[0] + at, plane[1] + at, plane[2] + at, from - 3 * (n - 1),
                       n);
        return;
    }
    for (int32_t c = 0; c < color->channels; c++)
        for (int64_t i = 0; i < n; i++)
            plane[c][at + i] = (float)from[i * column + c * channel] * (1.0f / 255);
}

static uint8_t byte_of(float value) {
    return (uint8_t)(int32_t)(value * 255 + 0.5f);
}

CLONES static void store3(const float *restrict red, const float *restrict green,
                          const float *restrict blue, int64_t n, uint8_t *restrict to) {
    for (int64_t i = 0; i < n; i++) {
        to[3 * i] = byte_of(red[i]);
        to[3 * i + 1] = byte_of(green[i]);
        to[3 * i + 2] = byte_of(blue[i]);
    }
}

void dlc_color_store(const dlc_color *color, int64_t at, int64_t n, uint8_t *to) {
    float *const *plane = color->plane;
    if (color->channels == 3)
        store3(plane[0] + at, plane[1] + at, plane[2] + at, n, to);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = byte_of(plane[0][at + i]);
}
