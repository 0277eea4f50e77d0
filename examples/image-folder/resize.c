/* Resizes images with a triangle filter: each output pixel is a weighted mean of the
 * input pixels around its position. If the image shrinks, the filter is as wide as an
 * output pixel (Turkowski 1990, "Filters for Common Resampling Tasks"). It is applied
 * to the rows and then to the columns. */
#include <math.h>

#include "images.h"

/* The filter of one output pixel: the input pixels that it covers. */
typedef struct triangle {
    int32_t first, last;
    float centre, support;
} triangle;

static triangle triangle_of(int32_t pixel, int32_t to, int32_t from) {
    float scale = (float)from / (float)to;
    float centre = ((float)pixel + 0.5f) * scale, support = scale > 1 ? scale : 1;
    int32_t first = (int32_t)floorf(centre - support);
    int32_t last = (int32_t)ceilf(centre + support);
    return (triangle){.first = first > 0 ? first : 0,
                      .last = last < from ? last : from - 1,
                      .centre = centre - 0.5f,
                      .support = support};
}

static float weight_of(const triangle *t, int32_t i) {
    float distance = fabsf((float)i - t->centre) / t->support;
    return distance < 1 ? 1 - distance : 0;
}

/* Resizes rows: in->height x in->width pixels -> in->height x width pixels. */
static void along_rows(const picture *in, int32_t width, float *out) {
    int32_t channels = in->channels;
    for (int32_t x = 0; x < width; x++) {
        triangle t = triangle_of(x, width, in->width);
        for (int32_t y = 0; y < in->height; y++) {
            const unsigned char *row = in->pixels.bytes +
                                       (size_t)y * (size_t)in->width * (size_t)channels;
            for (int32_t c = 0; c < channels; c++) {
                float sum = 0, weights = 0;
                for (int32_t i = t.first; i <= t.last; i++) {
                    float weight = weight_of(&t, i);
                    sum += weight * (float)row[i * channels + c];
                    weights += weight;
                }
                out[((size_t)y * (size_t)width + (size_t)x) * (size_t)channels +
                    (size_t)c] = sum / weights;
            }
        }
    }
}

/* Resizes columns: in_height x width x channels -> channels x height x width. */
static void along_columns(const float *in, int32_t in_height, int32_t channels,
                          int32_t height, int32_t width, unsigned char *out) {
    size_t row = (size_t)width * (size_t)channels;
    for (int32_t c = 0; c < channels; c++)
        for (int32_t y = 0; y < height; y++) {
            triangle t = triangle_of(y, height, in_height);
            for (int32_t x = 0; x < width; x++) {
                const float *column = in + (size_t)x * (size_t)channels + (size_t)c;
                float sum = 0, weights = 0;
                for (int32_t i = t.first; i <= t.last; i++) {
                    float weight = weight_of(&t, i);
                    sum += weight * column[(size_t)i * row];
                    weights += weight;
                }
                *out++ = (unsigned char)(sum / weights + 0.5f);
            }
        }
}

dlc_status picture_resize(const picture *in, int32_t height, int32_t width,
                          buffer *work, unsigned char *out) {
    size_t floats = (size_t)in->height * (size_t)width * (size_t)in->channels;
    dlc_status rc = buffer_need(work, floats * sizeof(float));
    if (rc != DLC_OK)
        return rc;
    float *rows = (float *)(void *)work->bytes; /* host->alloc aligns to 64 bytes */
    along_rows(in, width, rows);
    along_columns(rows, in->height, in->channels, height, width, out);
    return DLC_OK;
}
