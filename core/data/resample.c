/* Resampling in two passes. Each row of the input that is needed is resampled along its
 * columns once, into a ring of rows of floats; each row of the result is a weighted sum
 * of the last few of them. */
#include "data/transform_kinds.h"

#include <math.h>
#include <string.h>

#include "data/clones.h"

/* Floats that are added at a time; as many beyond a row may be touched. */
enum { BLOCK = 32 };

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

static int64_t clamp_index(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

/* Sets the weights of `count` pixels from `low` on for a pixel with this center. */
static void weigh_pixels(const dlc_filter *filter, double center, double scale,
                         int64_t low, int64_t count, float *weight) {
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
    int64_t least = clamp_index((int64_t)floor(axis->begin), 0, extent - 1);
    int64_t end = clamp_index((int64_t)ceil(axis->end), least + 1, extent);
    made->most = 1;
    for (int64_t i = 0; i < axis->count; i++) {
        double center = axis->begin + ((double)(axis->first + i) + 0.5) * scale;
        float *weight = made->weight + i * made->room;
        int64_t under = clamp_index((int64_t)floor(center), least, end - 1);
        int64_t low = clamp_index((int64_t)floor(center - support + 0.5), least, under);
        int64_t high = clamp_index((int64_t)floor(center + support + 0.5), under + 1,
                                   end);
        memset(weight, 0, (size_t)made->room * sizeof *weight);
        if (filter->weight) {
            weigh_pixels(filter, center, wide, low, high - low, weight);
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
    float *input;     /* a row of the input */
    float *ring;      /* rows resampled along x */
    int64_t row;      /* floats of such a row, whole blocks */
    const float **at; /* the rows under the filter */
    size_t bytes;
} resample_memory;

static void *take_rows_memory(char *memory, size_t *bytes, int64_t count, size_t size) {
    void *taken = memory ? memory + *bytes : NULL;
    *bytes += ((size_t)count * size + 63) / 64 * 64;
    return taken;
}

static void take_filter_weights(char *memory, size_t *bytes, const dlc_filter *filter,
                                const dlc_resample_axis *axis, weights *made) {
    made->room = most_taps(filter, axis);
    if (made->room < 2)
        made->room = 2; /* add_pixels4 adds two at least */
    made->first = take_rows_memory(memory, bytes, axis->count, sizeof *made->first);
    made->count = take_rows_memory(memory, bytes, axis->count, sizeof *made->count);
    made->weight = take_rows_memory(memory, bytes, axis->count * made->room,
                                    sizeof *made->weight);
}

/* Lays out the memory; `memory` NULL only adds it up. */
static resample_memory lay_out_memory(const dlc_filter *filter, const dlc_image *from,
                                      const dlc_resample_axis *x,
                                      const dlc_resample_axis *y, char *memory) {
    resample_memory made = {0};
    int64_t channels = from->channels;
    made.row = (x->count * channels + BLOCK) / BLOCK * BLOCK;
    take_filter_weights(memory, &made.bytes, filter, x, &made.x);
    take_filter_weights(memory, &made.bytes, filter, y, &made.y);
    made.input = take_rows_memory(memory, &made.bytes,
                                  (from->width + made.x.room) * channels + BLOCK,
                                  sizeof *made.input);
    made.ring = take_rows_memory(memory, &made.bytes, made.y.room * made.row,
                                 sizeof *made.ring);
    made.at = take_rows_memory(memory, &made.bytes, made.y.room, sizeof *made.at);
    return made;
}

size_t dlc_resample_bytes(const dlc_filter *filter, const dlc_image *from,
                          const dlc_resample_axis *x, const dlc_resample_axis *y) {
    return lay_out_memory(filter, from, x, y, NULL).bytes;
}

/* ---- Along x ----------------------------------------------------------------- */

typedef float vector4 __attribute__((vector_size(16), aligned(4), may_alias));

CLONES static void widen(float *restrict to, const uint8_t *restrict from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = (float)from[i];
}

CLONES static void limit_bytes(float *row, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        row[i] = row[i] < 0 ? 0 : row[i] > 255 ? 255 : row[i];
}

/* Pixels of up to four channels: four floats of the row at a time, of which those
 * beyond the pixel are overwritten by the next. The caller's `taps` is a constant. */
__attribute__((always_inline)) static inline void
add_taps(float *restrict to, const float *restrict row, const weights *x, int64_t n,
         int64_t channels, int64_t taps) {
    const float *weight = x->weight;
    for (int64_t i = 0; i < n; i++, weight += x->room, to += channels) {
        const float *from = row + x->first[i] * channels;
        vector4 sum = weight[0] * *(const vector4 *)from;
        for (int64_t k = 1; k < taps; k++)
            sum += weight[k] * *(const vector4 *)(from + k * channels);
        *(vector4 *)to = sum;
    }
}

CLONES static void add_pixels4(float *restrict to, const float *restrict row,
                               const weights *x, int64_t n, int64_t channels) {
    switch (x->most) {
    case 1:
    case 2:
        add_taps(to, row, x, n, channels, 2);
        break;
    case 3:
        add_taps(to, row, x, n, channels, 3);
        break;
    case 4:
        add_taps(to, row, x, n, channels, 4);
        break;
    case 5:
        add_taps(to, row, x, n, channels, 5);
        break;
    default:
        add_taps(to, row, x, n, channels, x->most);
    }
}

static void add_pixels(float *restrict to, const float *restrict row, const weights *x,
                       int64_t n, int64_t channels) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < channels; c++) {
            const float *from = row + x->first[i] * channels + c;
            float sum = 0;
            for (int64_t k = 0; k < x->count[i]; k++)
                sum += x->weight[i * x->room + k] * from[k * channels];
            to[i * channels + c] = sum;
        }
}

/* Resamples `seen` pixels of a row of the input into `n` pixels. A filter with negative
 * weights leaves the range of bytes; like Pillow, that is cut off after each pass. */
static void resample_row(const dlc_filter *filter, const resample_memory *m,
                         const uint8_t *from, int64_t seen, int64_t n, int64_t channels,
                         float *to) {
    widen(m->input, from, seen * channels);
    if (channels <= 4)
        add_pixels4(to, m->input, &m->x, n, channels);
    else
        add_pixels(to, m->input, &m->x, n, channels);
    if (filter->support > 1)
        limit_bytes(to, n * channels);
}

/* ---- Along y ----------------------------------------------------------------- */

typedef float vector8 __attribute__((vector_size(32), aligned(4), may_alias));

__attribute__((always_inline)) static inline void
add_block(float *restrict sums, const float *const *rows, const float *restrict weight,
          int64_t taps, int64_t at) {
    const float *from = rows[0] + at;
    vector8 a = weight[0] * *(const vector8 *)from;
    vector8 b = weight[0] * *(const vector8 *)(from + 8);
    vector8 c = weight[0] * *(const vector8 *)(from + 16);
    vector8 d = weight[0] * *(const vector8 *)(from + 24);
    for (int64_t k = 1; k < taps; k++) {
        from = rows[k] + at;
        a += weight[k] * *(const vector8 *)from;
        b += weight[k] * *(const vector8 *)(from + 8);
        c += weight[k] * *(const vector8 *)(from + 16);
        d += weight[k] * *(const vector8 *)(from + 24);
    }
    *(vector8 *)sums = a;
    *(vector8 *)(sums + 8) = b;
    *(vector8 *)(sums + 16) = c;
    *(vector8 *)(sums + 24) = d;
}

__attribute__((always_inline)) static inline void
round_block(uint8_t *restrict to, const float *restrict sums) {
    for (int i = 0; i < BLOCK; i++) {
        int32_t value = (int32_t)(sums[i] + 0.5f);
        value = value < 0 ? 0 : value;
        to[i] = (uint8_t)(value > 255 ? 255 : value);
    }
}

/* Adds rows with their weights, and rounds. */
CLONES static void add_rows(const float *const *rows, const float *weight, int64_t taps,
                            int64_t n, uint8_t *to) {
    float sums[BLOCK];
    uint8_t bytes[BLOCK];
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        add_block(sums, rows, weight, taps, i);
        round_block(to + i, sums);
    }
    if (i == n)
        return;
    add_block(sums, rows, weight, taps, i);
    round_block(bytes, sums);
    memcpy(to + i, bytes, (size_t)(n - i));
}

void dlc_resample(const dlc_filter *filter, const dlc_image *from,
                  const dlc_resample_axis *x, const dlc_resample_axis *y, void *memory,
                  const dlc_image *to) {
    resample_memory m = lay_out_memory(filter, from, x, y, memory);
    int64_t channels = from->channels, last = x->count - 1, next = 0;
    make_weights(filter, x, from->width, &m.x);
    make_weights(filter, y, from->height, &m.y);
    int64_t left = m.x.first[0];
    int64_t seen = m.x.first[last] + m.x.count[last] - left;
    for (int64_t i = 0; i <= last; i++)
        m.x.first[i] -= (int32_t)left;
    /* Weights of 0 read a little beyond. */
    memset(m.input + seen * channels, 0,
           (size_t)(m.x.room * channels + BLOCK) * sizeof *m.input);
    const uint8_t *source = (const uint8_t *)from->pixels + left * channels;
    for (int64_t row = 0; row < y->count; row++) {
        int64_t first = m.y.first[row], count = m.y.count[row];
        for (next = next > first ? next : first; next < first + count; next++)
            resample_row(filter, &m, source + next * from->row, seen, x->count,
                         channels, m.ring + next % m.y.room * m.row);
        for (int64_t k = 0; k < count; k++)
            m.at[k] = m.ring + (first + k) % m.y.room * m.row;
        add_rows(m.at, m.y.weight + row * m.y.room, count, x->count * channels,
                 (uint8_t *)to->pixels + row * to->row);
    }
}
