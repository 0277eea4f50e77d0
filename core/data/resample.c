/* Resampling in two passes. For each row of the result the rows under the filter are
 * weighted and added, into a row of floats; then each pixel of the result is a weighted
 * sum of a few pixels of that row. So the second pass, the slower one, is made for the
 * rows of the result only. */
#include "data/resample.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CLONES __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define CLONES
#endif

/* Floats beyond a row that vectors may touch. */
enum { BEYOND = 16 };

/* ---- Filters ----------------------------------------------------------------- */

static double bilinear(double distance) {
    double x = fabs(distance);
    return x < 1 ? 1 - x : 0;
}

/* Keys' cubic convolution with a = -0.5. */
static double bicubic(double distance) {
    const double a = -0.5;
    double x = fabs(distance);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

static double area(double distance) {
    return distance > -0.5 && distance <= 0.5 ? 1 : 0;
}

static const dlc_filter filters[] = {
    {"bilinear", 1, bilinear},
    {"bicubic", 2, bicubic},
    {"area", 0.5, area},
    {"nearest", 0, NULL},
};

const dlc_filter *dlc_filter_find(const char *name) {
    size_t i = 0;
    while (i + 1 < sizeof filters / sizeof *filters &&
           strcmp(filters[i].name, name) != 0)
        i++;
    return &filters[i];
}

/* ---- Weights ----------------------------------------------------------------- */

/* The weights of one axis: pixel i of the result is made of count[i] pixels of the
 * input, from first[i] on. */
typedef struct weights {
    int64_t room; /* weights of a pixel, those beyond its count are 0 */
    int64_t most; /* the largest count */
    int32_t *first, *count;
    float *weight;
} weights;

static double filter_scale(const dlc_resample_axis *axis) {
    return fmax(1, (axis->end - axis->begin) / (double)axis->size);
}

static int64_t most_taps(const dlc_filter *filter, const dlc_resample_axis *axis) {
    return 2 * (int64_t)ceil(filter->support * filter_scale(axis)) + 1;
}

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

/* Sets the weights of `count` pixels from `low` on for a pixel with this center. */
static void weigh(const dlc_filter *filter, double center, double scale, int64_t low,
                  int64_t count, float *weight) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        double value = filter->weight(((double)(low + i) + 0.5 - center) / scale);
        weight[i] = (float)value;
        sum += value;
    }
    for (int64_t i = 0; i < count; i++)
        weight[i] = (float)((double)weight[i] / sum);
}

/* `extent` pixels of the input are there. */
static void make_weights(const dlc_filter *filter, const dlc_resample_axis *axis,
                         int64_t extent, weights *made) {
    double scale = (axis->end - axis->begin) / (double)axis->size;
    double wide = filter_scale(axis), support = filter->support * wide;
    int64_t least = clamp((int64_t)floor(axis->begin), 0, extent - 1);
    int64_t end = clamp((int64_t)ceil(axis->end), least + 1, extent);
    made->most = 1;
    for (int64_t i = 0; i < axis->count; i++) {
        double center = axis->begin + ((double)(axis->first + i) + 0.5) * scale;
        float *weight = made->weight + i * made->room;
        int64_t under = clamp((int64_t)floor(center), least, end - 1);
        int64_t low = clamp((int64_t)floor(center - support + 0.5), least, under);
        int64_t high = clamp((int64_t)floor(center + support + 0.5), under + 1, end);
        memset(weight, 0, (size_t)made->room * sizeof *weight);
        if (filter->weight) {
            weigh(filter, center, wide, low, high - low, weight);
        } else {
            low = under;
            high = under + 1;
            weight[0] = 1;
        }
        made->first[i] = (int32_t)low;
        made->count[i] = (int32_t)(high - low);
        if (high - low > made->most)
            made->most = high - low;
    }
}

/* ---- Memory ------------------------------------------------------------------ */

typedef struct resample_memory {
    weights x, y;
    float *row, *pixels; /* of the input and of the result */
    size_t bytes;
} resample_memory;

static void *take(char *memory, size_t *bytes, int64_t count, size_t size) {
    void *taken = memory ? memory + *bytes : NULL;
    *bytes += ((size_t)count * size + 63) / 64 * 64;
    return taken;
}

static void take_weights(char *memory, size_t *bytes, const dlc_filter *filter,
                         const dlc_resample_axis *axis, weights *made) {
    made->room = (most_taps(filter, axis) + 3) / 4 * 4;
    made->first = take(memory, bytes, axis->count, sizeof *made->first);
    made->count = take(memory, bytes, axis->count, sizeof *made->count);
    made->weight = take(memory, bytes, axis->count * made->room, sizeof *made->weight);
}

/* Lays out the memory; `memory` NULL only adds it up. */
static resample_memory lay_out(const dlc_filter *filter, const dlc_image *from,
                               const dlc_resample_axis *x, const dlc_resample_axis *y,
                               char *memory) {
    resample_memory made = {0};
    int64_t channels = from->channels;
    take_weights(memory, &made.bytes, filter, x, &made.x);
    take_weights(memory, &made.bytes, filter, y, &made.y);
    made.row = take(memory, &made.bytes,
                    (from->width + made.x.room) * channels + BEYOND, sizeof *made.row);
    made.pixels = take(memory, &made.bytes, x->count * channels + BEYOND,
                       sizeof *made.pixels);
    return made;
}

size_t dlc_resample_bytes(const dlc_filter *filter, const dlc_image *from,
                          const dlc_resample_axis *x, const dlc_resample_axis *y) {
    return lay_out(filter, from, x, y, NULL).bytes;
}

/* ---- Passes ------------------------------------------------------------------ */

/* row[i] = sum of weight[k] * from[k * step + i], over `taps` rows. */
CLONES static void add_rows(float *restrict row, const uint8_t *restrict from,
                            int64_t step, const float *restrict weight, int64_t taps,
                            int64_t n) {
    enum { BLOCK = 64 };
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        float sum[BLOCK] = {0};
        for (int64_t k = 0; k < taps; k++)
            for (int j = 0; j < BLOCK; j++)
                sum[j] += weight[k] * (float)from[k * step + i + j];
        memcpy(row + i, sum, sizeof sum);
    }
    for (; i < n; i++) {
        float sum = 0;
        for (int64_t k = 0; k < taps; k++)
            sum += weight[k] * (float)from[k * step + i];
        row[i] = sum;
    }
}

typedef float vector4 __attribute__((vector_size(16), aligned(4), may_alias));

/* Pixels of up to four channels: four floats of the row at a time, of which those
 * beyond the pixel are overwritten by the next. */
CLONES static void add_pixels4(float *restrict pixels, const float *restrict row,
                               const weights *x, int64_t n, int64_t channels) {
    for (int64_t i = 0; i < n; i++) {
        const float *from = row + x->first[i] * channels;
        const float *weight = x->weight + i * x->room;
        vector4 sum = {0};
        for (int64_t k = 0; k < x->most; k++)
            sum += weight[k] * *(const vector4 *)(from + k * channels);
        *(vector4 *)(pixels + i * channels) = sum;
    }
}

static void add_pixels(float *restrict pixels, const float *restrict row,
                       const weights *x, int64_t n, int64_t channels) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < channels; c++) {
            const float *from = row + x->first[i] * channels + c;
            float sum = 0;
            for (int64_t k = 0; k < x->count[i]; k++)
                sum += x->weight[i * x->room + k] * from[k * channels];
            pixels[i * channels + c] = sum;
        }
}

CLONES static void round_pixels(uint8_t *restrict to, const float *restrict pixels,
                                int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float value = pixels[i] + 0.5f;
        value = value < 0 ? 0 : value > 255 ? 255 : value;
        to[i] = (uint8_t)(int32_t)value;
    }
}

void dlc_resample(const dlc_filter *filter, const dlc_image *from,
                  const dlc_resample_axis *x, const dlc_resample_axis *y, void *memory,
                  const dlc_image *to) {
    resample_memory m = lay_out(filter, from, x, y, memory);
    int64_t channels = from->channels, last = x->count - 1;
    make_weights(filter, x, from->width, &m.x);
    make_weights(filter, y, from->height, &m.y);
    int64_t left = m.x.first[0];
    int64_t seen = m.x.first[last] + m.x.count[last] - left;
    for (int64_t i = 0; i <= last; i++)
        m.x.first[i] -= (int32_t)left;
    /* Weights of 0 read a little beyond. */
    memset(m.row + seen * channels, 0,
           (size_t)(m.x.room * channels + BEYOND) * sizeof *m.row);
    for (int64_t row = 0; row < y->count; row++) {
        const uint8_t *source = (const uint8_t *)from->pixels +
                                m.y.first[row] * from->row + left * channels;
        add_rows(m.row, source, from->row, m.y.weight + row * m.y.room, m.y.count[row],
                 seen * channels);
        if (channels <= 4)
            add_pixels4(m.pixels, m.row, &m.x, x->count, channels);
        else
            add_pixels(m.pixels, m.row, &m.x, x->count, channels);
        round_pixels((uint8_t *)to->pixels + row * to->row, m.pixels,
                     x->count * channels);
    }
}
