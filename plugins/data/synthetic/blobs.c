/* Draws blobs, and tells where they are. */
#include "blobs.h"

#include <string.h>

#include "noise.h"

enum { SPOTS = 3 }; /* of a class */

/* The memory in which one sample is drawn. */
typedef struct canvas {
    float *values;       /* 0 .. 255 */
    float *across;       /* of a row */
    unsigned char *mask; /* NULL: not wanted */
} canvas;

/* Whether a sample shows a class that is not its label. */
static int shows_too(const dlc_source *source, int64_t sample, int32_t other) {
    uint64_t stream = sample_stream(sample) | UINT64_C(1) << 63;
    return unit(random_word(source->seed, stream, (uint64_t)other)) < 0.25f;
}

static int shows(const dlc_source *source, int64_t sample, int32_t label,
                 int32_t other) {
    return other == label || (source->has_labels && shows_too(source, sample, other));
}

int64_t blobs_most(const dlc_source *source) {
    return SPOTS * (source->has_labels ? (int64_t)source->classes : 1);
}

/* Intensity of a spot at i: 1 in its centre, falling on both sides. Uses no function of
 * libm, so that it is the same on every machine. */
static float bell(int64_t i, float centre, float width) {
    float distance = ((float)i - centre) / width;
    float inverse = 1 + distance * distance;
    return 1 / (inverse * inverse);
}

/* Marks where a spot has at least half of its strength. */
static void mark_spot(const dlc_source *source, int32_t label, float y, float wide,
                      const canvas *on) {
    int64_t height = source->shape.dims[1], width = source->shape.dims[2];
    for (int64_t i = 0; i < height; i++) {
        float weight = bell(i, y, wide);
        for (int64_t j = 0; j < width; j++)
            if (weight * on->across[j] > 0.5f)
                on->mask[i * width + j] = (unsigned char)(label + 1);
    }
}

/* Where the spots of a class are, before the sample's own shift. */
static float spot_place(const dlc_source *source, int32_t label, int spot, int axis) {
    uint64_t at = (uint64_t)spot * (uint64_t)(3 + source->shape.dims[0]);
    uint64_t word = random_word(source->seed, class_stream(label), at + (uint64_t)axis);
    return 0.2f + 0.6f * unit(word);
}

static float spot_width(const dlc_source *source, int32_t label, int spot) {
    int64_t height = source->shape.dims[1], width = source->shape.dims[2];
    uint64_t at = (uint64_t)spot * (uint64_t)(3 + source->shape.dims[0]);
    uint64_t word = random_word(source->seed, class_stream(label), at + 2);
    float side = (float)(height < width ? height : width);
    return (0.08f + 0.12f * unit(word)) * side + 0.5f;
}

/* Draws one spot of the class, in all channels. */
static void add_spot(const dlc_source *source, int32_t label, int spot, float down,
                     float right, const canvas *on) {
    float *values = on->values;
    uint64_t stream = class_stream(label);
    int64_t channels = source->shape.dims[0];
    int64_t height = source->shape.dims[1], width = source->shape.dims[2];
    uint64_t at = (uint64_t)spot * (uint64_t)(3 + channels);
    float y = spot_place(source, label, spot, 0) + down;
    float x = spot_place(source, label, spot, 1) + right;
    float wide = spot_width(source, label, spot);
    for (int64_t i = 0; i < width; i++)
        on->across[i] = bell(i, x * (float)width, wide);
    if (on->mask)
        mark_spot(source, label, y * (float)height, wide, on);
    for (int64_t c = 0; c < channels; c++) {
        uint64_t word = random_word(source->seed, stream, at + 3 + (uint64_t)c);
        float colour = 160 * unit(word) - 80;
        for (int64_t i = 0; i < height; i++) {
            float weight = colour * bell(i, y * (float)height, wide);
            for (int64_t j = 0; j < width; j++)
                values[j] += weight * on->across[j];
            values += width;
        }
    }
}

/* How far the spots of a sample are shifted. */
static float shift(const dlc_source *source, int64_t sample, uint64_t counter) {
    return 0.2f * unit(random_word(source->seed, sample_stream(sample), counter)) -
           0.1f;
}

/* The span in which a spot has at least half of its strength, of `size` pixels; its
 * center is in the middle of a pixel. */
static void span_spot(float center, float wide, int64_t size, float *begin,
                      float *end) {
    float half = 0.643594f * wide; /* sqrt(sqrt(2) - 1) of it */
    float first = center + 0.5f - half, last = center + 0.5f + half;
    *begin = first > 0 ? first : 0;
    *end = last < (float)size ? last : (float)size;
}

/* The box around what mark_spot marks. */
static void make_box(const dlc_source *source, int64_t sample, int32_t label, int spot,
                     float *box) {
    int64_t height = source->shape.dims[1], width = source->shape.dims[2];
    float wide = spot_width(source, label, spot);
    float y = spot_place(source, label, spot, 0) + shift(source, sample, AT_DOWN);
    float x = spot_place(source, label, spot, 1) + shift(source, sample, AT_RIGHT);
    box[DLC_BOX_CLASS] = (float)label;
    span_spot(x * (float)width, wide, width, &box[DLC_BOX_X0], &box[DLC_BOX_X1]);
    span_spot(y * (float)height, wide, height, &box[DLC_BOX_Y0], &box[DLC_BOX_Y1]);
}

/* Rows that no spot is left for are not used. */
static void make_boxes(const dlc_source *source, int64_t sample, int32_t label,
                       float *box) {
    float *end = box + blobs_most(source) * DLC_BOX_VALUES;
    for (int32_t other = 0; other < source->classes; other++)
        for (int spot = 0; spot < SPOTS && shows(source, sample, label, other);
             spot++) {
            make_box(source, sample, other, spot, box);
            box += DLC_BOX_VALUES;
        }
    for (; box < end; box += DLC_BOX_VALUES) {
        memset(box, 0, DLC_BOX_VALUES * sizeof *box);
        box[DLC_BOX_CLASS] = -1;
    }
}

static void make_values(const dlc_source *source, int64_t sample, int32_t label,
                        const canvas *on) {
    float down = shift(source, sample, AT_DOWN),
          right = shift(source, sample, AT_RIGHT);
    make_noise_floats(source, sample, 96, 64.0f / 255, on->values);
    int32_t first = source->has_labels ? 0 : label;
    int32_t end = source->has_labels ? source->classes : label + 1;
    for (int32_t other = first; other < end; other++)
        for (int spot = 0; spot < SPOTS && shows(source, sample, label, other); spot++)
            add_spot(source, other, spot, down, right, on);
}

static float clamp(float value) {
    return value < 0 ? 0 : value > 255 ? 255 : value;
}

static void store(const dlc_source *source, const float *values, void *data) {
    int64_t count = dlc_shape_count(&source->shape);
    if (source->dtype == DLC_U8) {
        unsigned char *bytes = data;
        for (int64_t i = 0; i < count; i++)
            bytes[i] = (unsigned char)(clamp(values[i]) + 0.5f);
    } else {
        float *floats = data;
        for (int64_t i = 0; i < count; i++)
            floats[i] = clamp(values[i]) * (1.0f / 255);
    }
}

/* Memory for drawing; paper->values is to be freed. */
static dlc_status take_paper(const dlc_source *source, canvas *paper) {
    size_t count = (size_t)dlc_shape_count(&source->shape);
    paper->values = host->alloc((count + (size_t)source->shape.dims[2]) *
                                sizeof *paper->values);
    if (!paper->values)
        return DLC_ERR_NOMEM;
    paper->across = paper->values + count;
    return DLC_OK;
}

static void make_fields(const dlc_source *source, int64_t sample, int32_t label,
                        const wanted_fields *wanted, canvas *paper) {
    const int64_t *dims = source->shape.dims;
    paper->mask = wanted->mask;
    if (wanted->mask)
        memset(wanted->mask, 0, (size_t)(dims[1] * dims[2]));
    if (wanted->image || wanted->mask)
        make_values(source, sample, label, paper);
    if (wanted->image)
        store(source, paper->values, wanted->image);
    if (wanted->center) {
        wanted->center[0] = spot_place(source, label, 0, 0) +
                            shift(source, sample, AT_DOWN);
        wanted->center[1] = spot_place(source, label, 0, 1) +
                            shift(source, sample, AT_RIGHT);
    }
    if (wanted->boxes)
        make_boxes(source, sample, label, wanted->boxes);
    for (int32_t other = 0; wanted->labels && other < source->classes; other++)
        wanted->labels[other] = (unsigned char)shows(source, sample, label, other);
}

dlc_status blobs_make(const dlc_source *source, int64_t sample, int32_t label,
                      const wanted_fields *wanted) {
    canvas paper = {0};
    dlc_status status = take_paper(source, &paper);
    if (status == DLC_OK)
        make_fields(source, sample, label, wanted, &paper);
    host->free(paper.values);
    return status;
}
