/* Tests boxes around objects on their way from a source to a batch
 * (core/data/load_fields.c): images of different sizes, different numbers of
 * boxes, ranks, threads, and boxes that are wrong. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "data/feed.h"
#include "feeds.h"
#include "listed.h"
#include "support/scratch.h"
#include "support/test.h"

enum { SAMPLES = 21, BATCH = 6, SIDE = 24, MOST = 4, CLASSES = 3 };
enum { IMAGE, BOXES, FIELDS };

/* A source of images of different sizes, with 0 to MOST boxes. */
struct dlc_source {
    uint32_t flags;       /* of the boxes */
    uint32_t image_flags; /* without: all are as large as the largest */
    int32_t classes, columns;
    int without_image; /* numbers instead */
    int32_t wrong; /* the value of the last row of sample 4 that is wrong; -1: none */
    float value;
    int outside; /* the other side of that box is as far beyond it */
    dlc_field field[FIELDS];
};

static void describe_fields(dlc_source *source) {
    source->field[IMAGE] = (dlc_field){
        .size = sizeof(dlc_field),
        .role = source->without_image ? DLC_ROLE_VECTOR : DLC_ROLE_IMAGE,
        .flags = source->image_flags,
        .dtype = source->without_image ? DLC_F32 : DLC_U8,
        .name = "image",
        .shape = {3, {1, SIDE, SIDE}}};
    source->field[BOXES] = (dlc_field){.size = sizeof(dlc_field),
                                       .role = DLC_ROLE_BOXES,
                                       .flags = source->flags,
                                       .dtype = DLC_F32,
                                       .name = "boxes",
                                       .classes = source->classes,
                                       .shape = {2, {MOST, source->columns}}};
}

/* Once, since two feeds may have the source. */
static dlc_status describe(dlc_source *source, dlc_data_info *info) {
    if (!source->field[IMAGE].size)
        describe_fields(source);
    *info = (dlc_data_info){.size = sizeof *info,
                            .samples = SAMPLES,
                            .fields = source->field,
                            .field_count = FIELDS};
    return DLC_OK;
}

static int64_t height_of(const dlc_source *source, int64_t sample) {
    return source->image_flags ? SIDE - sample % 7 : SIDE;
}

static int64_t width_of(const dlc_source *source, int64_t sample) {
    return source->image_flags ? SIDE - sample % 5 : SIDE;
}

static int64_t count_of(int64_t sample) {
    return sample % (MOST + 1);
}

/* Box k of a sample. */
static void make_box(const dlc_source *source, int64_t sample, int64_t k, float *box) {
    box[DLC_BOX_CLASS] = (float)((sample + k) % CLASSES);
    box[DLC_BOX_X0] = (float)k;
    box[DLC_BOX_Y0] = (float)(k + 1) / 2;
    box[DLC_BOX_X1] = (float)width_of(source, sample) - (float)(sample % 3);
    box[DLC_BOX_Y1] = (float)height_of(source, sample);
}

static int32_t opposite(int32_t side) {
    return side < DLC_BOX_X1 ? side + 2 : side - 2;
}

static void make_rows(const dlc_source *source, int64_t sample, int64_t rows,
                      float *box) {
    for (int64_t k = 0; k < rows; k++) {
        memset(box + k * DLC_BOX_VALUES, 0, DLC_BOX_VALUES * sizeof *box);
        box[k * DLC_BOX_VALUES] = -1;
        if (k < count_of(sample))
            make_box(source, sample, k, box + k * DLC_BOX_VALUES);
    }
    if (sample == 4 && source->wrong >= 0)
        box[(count_of(sample) - 1) * DLC_BOX_VALUES + source->wrong] = source->value;
    if (sample == 4 && source->outside)
        box[(count_of(sample) - 1) * DLC_BOX_VALUES + opposite(source->wrong)] =
            source->value + (source->wrong < DLC_BOX_X1 ? 1 : -1);
}

static dlc_status read_sample(dlc_source *source, dlc_sample *sample) {
    int64_t i = sample->index;
    dlc_shape image = {3, {1, height_of(source, i), width_of(source, i)}};
    dlc_shape boxes = {2, {source->flags ? count_of(i) : MOST, DLC_BOX_VALUES}};
    size_t each = source->without_image ? sizeof(float) : 1;
    if (sample->wanted >> IMAGE & 1) {
        size_t bytes = (size_t)dlc_shape_count(&image) * each;
        void *to = sample->memory(sample, IMAGE, bytes);
        if (!to)
            return DLC_ERR_NOMEM;
        memset(to, (int)i, bytes);
        sample->value[IMAGE].shape = image;
    }
    if (sample->wanted >> BOXES & 1) {
        size_t bytes = (size_t)dlc_shape_count(&boxes) * sizeof(float);
        float *to = sample->memory(sample, BOXES, bytes);
        if (!to)
            return DLC_ERR_NOMEM;
        make_rows(source, i, boxes.dims[0], to);
        sample->value[BOXES].shape = boxes;
    }
    return DLC_OK;
}

static void name(dlc_source *source, int64_t index, char *text, size_t room) {
    (void)source;
    (void)snprintf(text, room, "boxes.npz: row %d", (int)index);
}

static const dlc_data_ops ops = {.size = sizeof(dlc_data_ops),
                                 .describe = describe,
                                 .read_sample = read_sample,
                                 .name = name};

static dlc_source source_of(int i) {
    return (dlc_source){.flags = i & 1 ? DLC_FIELD_BOUNDED : 0,
                        .image_flags = i & 2 ? DLC_FIELD_BOUNDED : 0,
                        .classes = i & 1 ? CLASSES : 0,
                        .columns = DLC_BOX_VALUES,
                        .wrong = -1};
}

static dlc_feed_args args_of(dlc_source *source, const char *transforms) {
    return (dlc_feed_args){.ops = &ops,
                           .source = source,
                           .concurrent = 1,
                           .transforms = listed_for_good(transforms),
                           .seed = 11,
                           .shuffle = 1,
                           .prefetch = 2,
                           .count = BATCH,
                           .batch = BATCH,
                           .ranks = 1,
                           .fields = {.count = FIELDS, .source = {IMAGE, BOXES}}};
}

/* ---- Values ------------------------------------------------------------------ */

static void check_rows(const dlc_source *source, int64_t sample, const float *row) {
    for (int64_t k = 0; k < MOST; k++, row += DLC_BOX_VALUES) {
        float expected[DLC_BOX_VALUES] = {-1};
        if (k < count_of(sample))
            make_box(source, sample, k, expected);
        ck_assert_mem_eq(row, expected, sizeof expected);
    }
}

/* The boxes of each sample, and then rows that are not used. In the samples that fill
 * up the last batch no class is a class, though no loss reads them. */
TEST_EACH(each_sample, 4) {
    dlc_source source = source_of(_i);
    dlc_feed_args args = args_of(&source, "resize(24)");
    args.test = 1;
    args.threads = _i;
    args.transforms = listed_for_good(_i & 2 ? "resize(height=48, width=48)" : "");
    dlc_feed *feed = feeds_open(&args);
    for (int64_t b = 0; b < dlc_feed_batches(feed); b++) {
        dlc_batch batch = feeds_next(feed);
        const float *rows = batch.field[BOXES];
        for (int32_t k = 0; k < BATCH; k++, rows += MOST * DLC_BOX_VALUES) {
            if (k >= batch.samples)
                ck_assert_float_nan(rows[DLC_BOX_CLASS]);
            else if (!(_i & 2))
                check_rows(&source, b * BATCH + k, rows);
            else if (count_of(b * BATCH + k)) /* all of them end at the bottom */
                ck_assert_float_eq(rows[DLC_BOX_Y1], 48);
        }
    }
    dlc_feed_close(feed);
}

static const char moves[] =
    "rotate(20), random_resized_crop(16, scale=(0.3, 1)), mirror, random_crop(12)";

/* Three ranks, with 0 to 2 threads, have the boxes that one has. */
TEST(ranks_and_threads) {
    static const int64_t first[] = {0, 2, 3, BATCH};
    const size_t each = MOST * DLC_BOX_VALUES * sizeof(float);
    dlc_source source = source_of(3);
    dlc_feed_args args = args_of(&source, moves);
    args.min_visibility = 0.3;
    dlc_feed *alone = feeds_open(&args), *rank[3];
    int used = 0;
    for (int r = 0; r < 3; r++) {
        dlc_feed_args own = args;
        own.offset = first[r];
        own.count = (int32_t)(first[r + 1] - first[r]);
        own.threads = r;
        rank[r] = feeds_open(&own);
    }
    for (int i = 0; i < 12; i++) {
        dlc_batch all = feeds_next(alone);
        const char *boxes = all.field[BOXES];
        for (int r = 0; r < 3; r++) {
            dlc_batch part = feeds_next(rank[r]);
            ck_assert_mem_eq(boxes + (size_t)first[r] * each, part.field[BOXES],
                             (size_t)(first[r + 1] - first[r]) * each);
        }
        for (int k = 0; k < BATCH; k++)
            used += ((const float *)all.field[BOXES])[k * MOST * DLC_BOX_VALUES] >= 0;
    }
    ck_assert_int_gt(used, 10);
    for (int r = 0; r < 3; r++)
        dlc_feed_close(rank[r]);
    dlc_feed_close(alone);
}

/* A stage of a pipeline that does not read the images has the same boxes. */
TEST_EACH(without_reading_images, 4) {
    dlc_source source = source_of(_i);
    dlc_feed_args args = args_of(&source, moves), labels = args;
    labels.fields.unread = 1u << IMAGE;
    dlc_feed *whole = feeds_open(&args), *stage = feeds_open(&labels);
    for (int i = 0; i < 12; i++) {
        dlc_batch one = feeds_next(whole), other = feeds_next(stage);
        ck_assert_mem_eq(one.field[BOXES], other.field[BOXES],
                         BATCH * MOST * DLC_BOX_VALUES * sizeof(float));
    }
    dlc_feed_close(whole);
    dlc_feed_close(stage);
}

/* Less must be left of a box where more is asked for. */
TEST(min_visibility) {
    dlc_source source = source_of(0);
    int used[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        dlc_feed_args args = args_of(&source, "random_crop(8)");
        args.min_visibility = i ? 0.5 : 0;
        dlc_feed *feed = feeds_open(&args);
        for (int b = 0; b < 12; b++) {
            const float *row = feeds_next(feed).field[BOXES];
            for (int k = 0; k < BATCH * MOST; k++)
                used[i] += row[k * DLC_BOX_VALUES] >= 0;
        }
        dlc_feed_close(feed);
    }
    ck_assert_int_gt(used[0], 0);
    ck_assert_int_eq(used[1], 0); /* a crop has at most 64 of 400 pixels */
}

/* ---- Mistakes ---------------------------------------------------------------- */

static const struct {
    int32_t value;
    float wrong;
    const char *detail;
} mistakes[] = {
    {DLC_BOX_CLASS, 3, "the class 3 is no whole number from 0 to 2"},
    {DLC_BOX_CLASS, 0.5f, "the class 0.5 is no whole number"},
    {DLC_BOX_CLASS, -2, "the class -2 is no whole number"},
    {DLC_BOX_CLASS, NAN, "the class nan is no whole number"},
    {DLC_BOX_X0, NAN, "its numbers have to be finite"},
    {DLC_BOX_Y1, NAN, "its numbers have to be finite"},
    {DLC_BOX_X1, INFINITY, "its numbers have to be finite"},
    {DLC_BOX_Y0, -INFINITY, "its numbers have to be finite"},
    {DLC_BOX_X1, 3, "the box x 3 to 3, y 2 to 20, of an image of 20 x 20 pixels"},
    {DLC_BOX_Y0, 23, "x1 has to be greater than x0, and y1 than y0"},
    {DLC_BOX_X0, 19.5f, "x1 has to be greater than x0"},
    {DLC_BOX_X1, -1, "x1 has to be greater than x0"},
};
enum { MISTAKES = sizeof mistakes / sizeof *mistakes };

/* The message has the file, the sample and the row. */
TEST_EACH(wrong_boxes, MISTAKES) {
    dlc_source source = source_of(3);
    source.wrong = mistakes[_i].value;
    source.value = mistakes[_i].wrong;
    dlc_feed_args args = args_of(&source, "center_crop(8)");
    args.test = 1;
    dlc_feed *feed = feeds_open(&args);
    dlc_batch batch;
    ck_assert_int_eq(dlc_feed_next(feed, &batch), DLC_ERR_DATA);
    ck_contains(dlc_detail(), "boxes.npz: row 4: field boxes, row 3: ");
    ck_contains(dlc_detail(), mistakes[_i].detail);
    dlc_feed_close(feed);
}

/* A box that reaches beyond the image, on any side, is the part in it, of which all is
 * visible; one that only touches it is outside. */
TEST_EACH(beyond_the_image, 2) {
    static const struct {
        int32_t value;
        float by, outside, end;
    } sides[] = {{DLC_BOX_X0, -7, SIDE, 0},
                 {DLC_BOX_Y0, -0.5f, SIDE, 0},
                 {DLC_BOX_X1, 90, 0, SIDE},
                 {DLC_BOX_Y1, 24.5f, 0, SIDE}};
    dlc_source source = source_of(_i);
    for (size_t i = 0; i < sizeof sides / sizeof *sides; i++) {
        float expected[DLC_BOX_VALUES];
        make_box(&source, 4, 3, expected);
        expected[sides[i].value] = sides[i].end;
        source.wrong = sides[i].value;
        source.value = sides[i].by;
        dlc_feed_args args = args_of(&source, "");
        args.test = 1;
        args.min_visibility = 1;
        dlc_feed *feed = feeds_open(&args);
        const float *rows = feeds_next(feed).field[BOXES];
        ck_assert_mem_eq(rows + (4 * MOST + 3) * DLC_BOX_VALUES, expected,
                         sizeof expected);
        dlc_feed_close(feed);
        source.outside = 1;
        source.value = sides[i].outside;
        dlc_batch batch;
        feed = feeds_open(&args);
        ck_assert_int_eq(dlc_feed_next(feed, &batch), DLC_ERR_DATA);
        ck_contains(dlc_detail(), "it is outside the image");
        dlc_feed_close(feed);
        source.outside = 0;
    }
}

/* Which classes there are may not be known. */
TEST(any_class) {
    dlc_source source = source_of(2);
    source.wrong = DLC_BOX_CLASS;
    source.value = 70000;
    dlc_feed_args args = args_of(&source, "center_crop(8)");
    args.test = 1;
    dlc_feed *feed = feeds_open(&args);
    const float *rows = feeds_next(feed).field[BOXES];
    ck_assert_float_eq(rows[(4 * MOST + 3) * DLC_BOX_VALUES], 70000);
    dlc_feed_close(feed);
    source.value = INFINITY;
    dlc_batch batch;
    feed = feeds_open(&args);
    ck_assert_int_eq(dlc_feed_next(feed, &batch), DLC_ERR_DATA);
    dlc_feed_close(feed);
}

TEST(refused) {
    dlc_source source = source_of(0);
    dlc_feed_args args = args_of(&source, "");
    dlc_feed *feed = NULL;
    args.mix = (dlc_mix_settings){.mixup = 0.2};
    ck_assert_int_eq(dlc_feed_open(&args, &feed), DLC_ERR_CONFIG);
    ck_contains(dlc_detail(), "mixup: field boxes is boxes, which cannot be mixed");
    args.mix = (dlc_mix_settings){.cutmix = 1};
    ck_assert_int_eq(dlc_feed_open(&args, &feed), DLC_ERR_CONFIG);
    ck_contains(dlc_detail(), "cutmix: field boxes is boxes, which cannot be mixed");
    args.mix = (dlc_mix_settings){0};
    source = source_of(0);
    source.without_image = 1;
    ck_assert_int_eq(dlc_feed_open(&args, &feed), DLC_ERR_CONFIG);
    ck_contains(dlc_detail(),
                "field boxes has boxes of an image, but the samples have");
    source = source_of(0);
    source.columns = DLC_BOX_VALUES - 1;
    ck_assert_int_eq(dlc_feed_open(&args, &feed), DLC_ERR_PLUGIN);
    ck_contains(dlc_detail(), "field boxes has an invalid type or");
}
