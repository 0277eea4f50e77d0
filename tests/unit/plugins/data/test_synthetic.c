/* Tests the data source "synthetic": samples are reproducible and in range, and their
 * patterns can be learned. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "data/samples.h"
#include "source.h"
#include "support/plugins.h"
#include "support/test.h"

#define PIXELS (3 * 8 * 9)
#define CLASSES 4
#define SAMPLES 400

static opened open_with(uint64_t seed, const char *one, const char *two) {
    opened o;
    const char *sets[] = {"shape=3,8,9", "classes=4", "samples=400", one, two, NULL};
    if (!one)
        sets[3] = two;
    ck_assert_int_eq(source_open("synthetic", seed, sets, &o), DLC_OK);
    ck_assert_int_eq(o.info.samples, SAMPLES);
    ck_assert_int_eq(o.info.classes, CLASSES);
    ck_assert_int_eq(o.info.shape.rank, 3);
    ck_assert_int_eq(dlc_shape_count(&o.info.shape), PIXELS);
    ck_assert_int_eq(o.info.shape.dims[1], 8);
    return o;
}

/* Reads image and class of n samples. */
static void read_some(opened *o, int32_t n, const int64_t *index, void *data,
                      int32_t *labels) {
    dlc_samples samples;
    dlc_read_sample read = {0};
    ck_assert_int_eq(dlc_samples_describe(o->ops, o->source, &samples), DLC_OK);
    char *to = data;
    for (int32_t i = 0; i < n; i++) {
        ck_assert_int_eq(dlc_samples_read(&samples, index[i], 0, NULL, &read), DLC_OK);
        labels[i] = read.label;
        memcpy(to, read.value[0].data, read.value[0].bytes);
        to += read.value[0].bytes;
    }
    dlc_read_sample_free(&read);
}

static void read_all(opened *o, void *data, int32_t *labels) {
    int64_t index[SAMPLES];
    for (int i = 0; i < SAMPLES; i++)
        index[i] = i;
    read_some(o, SAMPLES, index, data, labels);
}

static unsigned char all[SAMPLES][PIXELS], other[SAMPLES][PIXELS];
static int32_t all_labels[SAMPLES], other_labels[SAMPLES];

TEST_SETTINGS(.timeout = 30, .setup_once = plugins_open);

TEST_EACH(repeatable, 2) {
    const char *kind = _i ? "kind=noise" : "kind=blobs";
    opened a = open_with(5, kind, NULL), b = open_with(5, kind, NULL);
    opened c = open_with(6, kind, NULL);
    read_all(&a, all, all_labels);
    for (int i = SAMPLES - 1; i >= 0; i--) { /* any order, one at a time */
        int64_t index = i;
        read_some(&b, 1, &index, other[i], &other_labels[i]);
    }
    ck_assert_mem_eq(all, other, sizeof all);
    ck_assert_mem_eq(all_labels, other_labels, sizeof all_labels);
    read_all(&c, other, other_labels);
    for (int i = 0; i < SAMPLES; i++)
        ck_assert_int_ne(memcmp(all[i], other[i], PIXELS), 0);
    source_close(&a);
    source_close(&b);
    source_close(&c);
}

TEST(first) {
    opened a = open_with(5, NULL, NULL), b = open_with(5, "first=100", NULL);
    read_all(&a, all, all_labels);
    read_all(&b, other, other_labels);
    ck_assert_mem_eq(all[100], other[0], sizeof all - 100 * PIXELS);
    ck_assert_mem_eq(all_labels + 100, other_labels, sizeof all_labels / 4 * 3);
    source_close(&a);
    source_close(&b);
}

TEST(labels_and_range) {
    opened o = open_with(1, "kind=noise", NULL);
    int count[CLASSES] = {0};
    int seen[256] = {0};
    read_all(&o, all, all_labels);
    for (int i = 0; i < SAMPLES; i++) {
        ck_assert_int_ge(all_labels[i], 0);
        ck_assert_int_lt(all_labels[i], CLASSES);
        count[all_labels[i]]++;
        for (int k = 0; k < PIXELS; k++)
            seen[all[i][k]] = 1;
    }
    for (int c = 0; c < CLASSES; c++)
        ck_assert_int_gt(count[c], SAMPLES / CLASSES / 2);
    for (int v = 0; v < 256; v++)
        ck_assert_int_eq(seen[v], 1);
    source_close(&o);
}

static uint64_t mix(uint64_t word) {
    word += UINT64_C(0x9e3779b97f4a7c15);
    word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
    return word ^ word >> 31;
}

/* The noise equals its definition byte by byte, whichever instruction set generates it;
 * the sizes end in the middle of a word or vector. */
TEST(noise_is_the_same_everywhere) {
    static const int sizes[] = {1, 7, 8, 9, 15, 31, 63, 64, 65, 127, 129, 200, 1003};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        char shape[32];
        unsigned char bytes[2 * 1003 + 1];
        const char *const sets[] = {shape, "classes=4", "samples=9", "kind=noise",
                                    NULL};
        const int64_t index[] = {7, 0};
        int32_t labels[2];
        opened o;
        snprintf(shape, sizeof shape, "shape=1,1,%d", sizes[s]);
        ck_assert_int_eq(source_open("synthetic", 5, sets, &o), DLC_OK);
        memset(bytes, 77, sizeof bytes);
        read_some(&o, 2, index, bytes, labels);
        for (int i = 0; i < 2 * sizes[s]; i++) {
            uint64_t k = (uint64_t)(i % sizes[s]);
            uint64_t stream = mix(mix(5) ^ (uint64_t)index[i / sizes[s]] << 1);
            uint64_t word = mix(stream + 3 + k / 8);
            ck_assert_uint_eq(bytes[i], word >> 8 * (k % 8) & 255);
        }
        ck_assert_uint_eq(bytes[2 * sizes[s]], 77);
        source_close(&o);
    }
}

TEST(float_elements) {
    static float floats[SAMPLES][PIXELS];
    opened a = open_with(5, NULL, NULL), b = open_with(5, "element=float32", NULL);
    ck_assert_int_eq(a.info.dtype, DLC_U8);
    ck_assert_int_eq(b.info.dtype, DLC_F32);
    read_all(&a, all, all_labels);
    read_all(&b, floats, other_labels);
    ck_assert_mem_eq(all_labels, other_labels, sizeof all_labels);
    float most = 0;
    for (int i = 0; i < SAMPLES; i++) {
        for (int k = 0; k < PIXELS; k++)
            most = fmaxf(most, fabsf(floats[i][k] * 255 - (float)all[i][k]));
    }
    ck_assert_float_le(most, 0.5001f);
    source_close(&a);
    source_close(&b);
}

/* The nearest class mean of the first half classifies the second half. */
TEST(blobs_can_be_learned) {
    static double mean[CLASSES][PIXELS];
    int count[CLASSES] = {0}, right = 0;
    opened o = open_with(3, NULL, NULL);
    read_all(&o, all, all_labels);
    for (int i = 0; i < SAMPLES / 2; i++)
        count[all_labels[i]]++;
    for (int i = 0; i < SAMPLES / 2; i++) {
        for (int k = 0; k < PIXELS; k++)
            mean[all_labels[i]][k] += all[i][k] / (double)count[all_labels[i]];
    }
    for (int i = SAMPLES / 2; i < SAMPLES; i++) {
        int best = 0;
        double least = INFINITY;
        for (int c = 0; c < CLASSES; c++) {
            double distance = 0;
            for (int k = 0; k < PIXELS; k++)
                distance += (all[i][k] - mean[c][k]) * (all[i][k] - mean[c][k]);
            if (distance < least) {
                least = distance;
                best = c;
            }
        }
        right += best == all_labels[i];
    }
    ck_assert_int_gt(right, SAMPLES / 2 * 9 / 10);
    source_close(&o);
}

/* Masks tell what is where, the center is that of a blob, and samples show several
 * classes, of which one is the label. */
TEST(fields_of_blobs) {
    const char *const sets[] = {"shape=3,8,9", "classes=4",  "samples=400", "mask=yes",
                                "center=yes",  "labels=yes", NULL};
    dlc_samples samples;
    dlc_read_sample read = {0};
    opened o;
    int seen = 0, shown = 0;
    ck_assert_int_eq(source_open("synthetic", 5, sets, &o), DLC_OK);
    ck_assert_int_eq(dlc_samples_describe(o.ops, o.source, &samples), DLC_OK);
    int32_t mask = dlc_samples_find(&samples, "mask");
    int32_t center = dlc_samples_find(&samples, "center");
    int32_t labels = dlc_samples_find(&samples, "labels");
    ck_assert_int_eq(dlc_samples_field(&samples, mask)->classes, CLASSES + 1);
    for (int64_t i = 0; i < SAMPLES; i++) {
        ck_assert_int_eq(dlc_samples_read_fields(&samples, i, 31, NULL, &read), DLC_OK);
        const unsigned char *pixel = read.value[mask].data;
        const unsigned char *shows = read.value[labels].data;
        const float *at = read.value[center].data;
        ck_assert_uint_eq(shows[read.label], 1);
        for (int c = 0; c < CLASSES; c++)
            shown += shows[c];
        for (int k = 0; k < 72; k++) {
            ck_assert(pixel[k] == 0 || shows[pixel[k] - 1]);
            seen |= 1 << pixel[k];
        }
        for (int k = 0; k < 2; k++)
            ck_assert(at[k] > 0.1f && at[k] < 0.9f);
    }
    ck_assert_int_eq(seen, (1 << (CLASSES + 1)) - 1);
    ck_assert(shown > SAMPLES * 3 / 2 && shown < SAMPLES * 2);
    dlc_read_sample_free(&read);
    source_close(&o);
}

enum { HIGH = 40, WIDE = 52 };

/* Grows `span` (x0, y0, x1, y1) by a box. */
static void grow(float span[4], float x0, float y0, float x1, float y1) {
    span[0] = x0 < span[0] ? x0 : span[0];
    span[1] = y0 < span[1] ? y0 : span[1];
    span[2] = x1 > span[2] ? x1 : span[2];
    span[3] = y1 > span[3] ? y1 : span[3];
}

/* Boxes of a class are around all that its mask marks, and no larger. */
TEST(boxes_of_blobs) {
    const char *const sets[] = {"shape=1,40,52", "classes=4", "samples=60",
                                "mask=yes",      "boxes=yes", NULL};
    dlc_samples samples;
    dlc_read_sample read = {0};
    opened o;
    ck_assert_int_eq(source_open("synthetic", 5, sets, &o), DLC_OK);
    ck_assert_int_eq(dlc_samples_describe(o.ops, o.source, &samples), DLC_OK);
    int32_t mask = dlc_samples_find(&samples, "mask");
    int32_t boxes = dlc_samples_find(&samples, "boxes");
    ck_assert_int_eq(dlc_samples_field(&samples, boxes)->classes, CLASSES);
    ck_assert_int_eq(dlc_samples_field(&samples, boxes)->shape.dims[0], 3);
    for (int64_t i = 0; i < 60; i++) {
        float marked[4] = {WIDE, HIGH, 0, 0}, boxed[4] = {WIDE, HIGH, 0, 0};
        uint32_t wanted = 2u | 1u << mask | 1u << boxes;
        ck_assert_int_eq(dlc_samples_read_fields(&samples, i, wanted, NULL, &read),
                         DLC_OK);
        const unsigned char *pixel = read.value[mask].data;
        const float *row = read.value[boxes].data;
        for (int k = 0; k < HIGH * WIDE; k++)
            if (pixel[k])
                grow(marked, (float)(k % WIDE), (float)(k / WIDE),
                     (float)(k % WIDE + 1), (float)(k / WIDE + 1));
        for (int k = 0; k < 3; k++, row += DLC_BOX_VALUES) {
            ck_assert_float_eq(row[DLC_BOX_CLASS], (float)read.label);
            grow(boxed, row[DLC_BOX_X0], row[DLC_BOX_Y0], row[DLC_BOX_X1],
                 row[DLC_BOX_Y1]);
        }
        for (int k = 0; k < 4; k++)
            ck_assert_float_eq_tol(marked[k], boxed[k], 1);
    }
    dlc_read_sample_free(&read);
    source_close(&o);
}

/* With several classes in a sample, the rest of the rows is not used. */
TEST(boxes_of_several_classes) {
    const char *const sets[] = {"shape=1,40,52", "classes=4", "samples=60",
                                "labels=yes",    "boxes=yes", NULL};
    opened o;
    ck_assert_int_eq(source_open("synthetic", 5, sets, &o), DLC_OK);
    for (int64_t i = 0; i < 60; i++) {
        dlc_value value;
        unsigned char shown[CLASSES];
        int count = 0;
        ck_assert_int_eq(source_read(&o, i, "labels", &value), DLC_OK);
        memcpy(shown, value.data, sizeof shown);
        ck_assert_int_eq(source_read(&o, i, "boxes", &value), DLC_OK);
        ck_assert_uint_eq(value.bytes, 3 * CLASSES * DLC_BOX_VALUES * sizeof(float));
        const float *row = value.data;
        for (int c = 0; c < CLASSES; c++)
            for (int k = 0; k < 3 && shown[c]; k++)
                ck_assert_float_eq(row[count++ * DLC_BOX_VALUES], (float)c);
        for (; count < 3 * CLASSES; count++)
            ck_assert_float_eq(row[count * DLC_BOX_VALUES], -1);
    }
    source_close(&o);
}

TEST(wrong_shapes) {
    const char *const two[] = {"shape=3,8", NULL};
    const char *const four[] = {"shape=3,8,9,1", NULL};
    const char *const noise[] = {"kind=noise", "center=yes", NULL};
    const char *const large[] = {"shape=65536,65536,65536", NULL};
    source_refused("synthetic", two, DLC_ERR_CONFIG, "shape has 2 numbers");
    source_refused("synthetic", four, DLC_ERR_CONFIG, "shape has 4 numbers");
    source_refused("synthetic", noise, DLC_ERR_CONFIG, "they need kind = blobs");
    source_refused("synthetic", large, DLC_ERR_CONFIG, "281474976710656 values is too");
}

TEST(no_memory) {
    const char *const sets[] = {"shape=1,4,4", NULL};
    source_starved("synthetic", sets);
}
