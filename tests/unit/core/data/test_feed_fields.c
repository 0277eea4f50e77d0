/* Tests what feeds make of fields of each role (core/data/load_fields.c), masks that
 * follow their images, and samples that are mixed (core/data/mix.c). */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "feeds.h"
#include "fielded.h"
#include "listed.h"
#include "support/scratch.h"
#include "support/test.h"

enum { SAMPLES = 23, BATCH = 6, PIXELS = FIELDED_HEIGHT * FIELDED_WIDTH };

/* ---- Values ------------------------------------------------------------------ */

static void check_padded(const dlc_batch *batch, int32_t k, int64_t sample) {
    const float *number = batch->field[FIELDED_NUMBERS];
    const int32_t *token = batch->field[FIELDED_TOKENS];
    for (int64_t i = 0; i < FIELDED_MOST; i++) {
        int64_t at = k * FIELDED_MOST + i;
        if (i < fielded_count(sample)) {
            ck_assert_float_eq(number[at], (float)(sample * 10 + i));
            ck_assert_int_eq(token[at], (int32_t)(sample * 10 + i));
        } else { /* it does not count */
            ck_assert_float_nan(number[at]);
            ck_assert_int_eq(token[at], DLC_LABEL_NONE);
        }
    }
}

static void check_sample(const dlc_batch *batch, int32_t k, int64_t sample) {
    const float *image = batch->field[FIELDED_IMAGE];
    const int32_t *mask = batch->field[FIELDED_MASK];
    const float *classes = batch->field[FIELDED_CLASSES_OF];
    ck_assert_int_eq(batch->labels[k], (int32_t)(sample % FIELDED_CLASSES));
    for (int64_t i = 0; i < PIXELS; i++) {
        uint8_t pixel = fielded_pixel(sample, i / FIELDED_WIDTH, i % FIELDED_WIDTH);
        ck_assert_float_eq(image[k * PIXELS + i], pixel);
        ck_assert_int_eq(mask[k * PIXELS + i], pixel);
    }
    for (int64_t c = 0; c < FIELDED_CLASSES; c++)
        ck_assert_float_eq(classes[k * FIELDED_CLASSES + c], (float)(sample >> c & 1));
    check_padded(batch, k, sample);
}

/* In a test all fields of all samples come in order; what fills up the last batch does
 * not count in any label. */
TEST_EACH(each_role, 3) {
    struct dlc_source source = {.samples = SAMPLES};
    dlc_feed_args args = fielded_args(&source, BATCH);
    args.test = 1;
    args.threads = _i;
    dlc_feed *feed = feeds_open(&args);
    for (int64_t b = 0; b < dlc_feed_batches(feed); b++) {
        dlc_batch batch = feeds_next(feed);
        for (int32_t k = 0; k < batch.samples; k++)
            check_sample(&batch, k, b * BATCH + k);
        for (int32_t k = batch.samples; k < BATCH; k++) {
            const float *number = batch.field[FIELDED_NUMBERS];
            const int32_t *mask = batch.field[FIELDED_MASK];
            ck_assert_float_nan(number[k * FIELDED_MOST]);
            ck_assert_int_eq(mask[k * PIXELS], DLC_LABEL_NONE);
            ck_assert_int_eq(batch.labels[k], DLC_LABEL_NONE);
        }
    }
    dlc_feed_close(feed);
}

/* What the source does not know counts no more than what fills up a batch, as classes
 * and as their probabilities. */
TEST(unknown_classes) {
    struct dlc_source source = {.samples = SAMPLES, .unlabelled = 1};
    dlc_feed_args args = fielded_args(&source, BATCH);
    dlc_feed *feed = feeds_open(&args);
    dlc_batch batch = feeds_next(feed);
    const float *classes = batch.field[FIELDED_CLASSES_OF];
    ck_assert_int_eq(batch.labels[BATCH - 1], DLC_LABEL_NONE);
    for (int i = 0; i < BATCH * FIELDED_CLASSES; i++)
        ck_assert_float_nan(classes[i]);
    dlc_feed_close(feed);
    args.fields = (dlc_batch_fields){
        .count = 2, .source = {FIELDED_IMAGE, FIELDED_LABEL}, .labels = 2};
    args.mix.mixup = 1;
    feed = feeds_open(&args);
    batch = feeds_next(feed);
    for (int i = 0; i < BATCH * FIELDED_CLASSES; i++)
        ck_assert_float_nan(((const float *)batch.field[DLC_FIELD_LABEL])[i]);
    dlc_feed_close(feed);
}

/* A field that the samples do not have is empty, and one that is not read costs
 * nothing; `label` need not be a class. */
TEST(some_fields) {
    struct dlc_source source = {.samples = SAMPLES};
    dlc_feed_args args = fielded_args(&source, BATCH);
    args.test = 1;
    args.fields = (dlc_batch_fields){.count = 3,
                                     .source = {FIELDED_IMAGE, FIELDED_NUMBERS, -1},
                                     .labels = 6,
                                     .unread = 1};
    dlc_feed *feed = feeds_open(&args);
    dlc_batch batch = feeds_next(feed);
    const float *number = batch.field[DLC_FIELD_LABEL];
    const int32_t *none = batch.field[2];
    for (int32_t k = 0; k < BATCH; k++) {
        ck_assert_float_eq(number[k * FIELDED_MOST], (float)(k * 10));
        ck_assert_int_eq(none[k], DLC_LABEL_NONE);
        ck_assert_int_eq(batch.labels[k], DLC_LABEL_NONE);
    }
    dlc_feed_close(feed);
}

/* ---- Masks ------------------------------------------------------------------- */

/* The image has the pixels of the mask, so after any transforms that move pixels, and
 * take the nearest one, it still has. */
TEST_EACH(masks_follow, 5) {
    static const char *const lists[] = {
        "random_crop(height=5, width=7, padding=2), mirror",
        "rotate(40, nearest), mirror",
        "resize(height=9, width=12, interpolation=nearest)",
        "random_resized_crop(5, interpolation=nearest), mirror",
        "mirror, center_crop(4), rotate(90, nearest), resize(height=8, width=3, "
        "interpolation=nearest)"};
    struct dlc_source source = {.samples = SAMPLES};
    dlc_feed_args args = fielded_args(&source, BATCH);
    args.transforms = listed_for_good(lists[_i]);
    dlc_feed *feed = feeds_open(&args);
    int64_t pixels = dlc_shape_count(&dlc_feed_field(feed, FIELDED_MASK)->shape);
    int64_t seen = 0;
    ck_assert_int_eq(pixels,
                     dlc_shape_count(&dlc_feed_field(feed, FIELDED_IMAGE)->shape));
    for (int b = 0; b < 10; b++) {
        dlc_batch batch = feeds_next(feed);
        const float *image = batch.field[FIELDED_IMAGE];
        const int32_t *mask = batch.field[FIELDED_MASK];
        for (int64_t i = 0; i < BATCH * pixels; i++) {
            ck_assert_int_eq(mask[i], (int32_t)image[i]);
            seen |= 1 << mask[i];
        }
    }
    ck_assert_int_eq(seen, (1 << FIELDED_CLASSES) - 1);
    dlc_feed_close(feed);
}

/* What changes pixels leaves masks alone, and classes are never averaged. */
TEST(masks_stay_classes) {
    struct dlc_source source = {.samples = SAMPLES};
    dlc_feed_args args = fielded_args(&source, BATCH);
    args.transforms = listed_for_good(
        "rand_augment(3, 20), rotate(20), resize(11), color_jitter(0.5), "
        "random_erasing(1), normalize(mean=3, std=2)");
    dlc_feed *feed = feeds_open(&args);
    int64_t pixels = dlc_shape_count(&dlc_feed_field(feed, FIELDED_MASK)->shape);
    for (int b = 0; b < 10; b++) {
        dlc_batch batch = feeds_next(feed);
        const int32_t *mask = batch.field[FIELDED_MASK];
        for (int64_t i = 0; i < BATCH * pixels; i++)
            ck_assert(mask[i] >= 0 && mask[i] < FIELDED_CLASSES);
    }
    dlc_feed_close(feed);
}

TEST(another_size) {
    struct dlc_source source = {.samples = SAMPLES, .broken_mask = 1};
    dlc_feed_args args = fielded_args(&source, BATCH);
    dlc_feed *feed = NULL;
    dlc_batch batch;
    ck_assert_int_eq(dlc_feed_open(&args, &feed), DLC_ERR_CONFIG);
    ck_contains(dlc_detail(), "different sizes");
    args.transforms = listed_for_good("center_crop(4)");
    feed = feeds_open(&args);
    ck_assert_int_eq(dlc_feed_next(feed, &batch), DLC_ERR_DATA);
    ck_contains(dlc_detail(), "field mask is 5 x 8, but its image is 6 x 8");
    dlc_feed_close(feed);
}

/* ---- Mixing ------------------------------------------------------------------ */

enum { MIXED_FIELDS = 3 };

/* Image, class and classes; a mask instead of the last for cutmix. */
static dlc_feed_args mixed_args(struct dlc_source *source, int32_t batch,
                                dlc_mix_settings mix) {
    dlc_feed_args args = fielded_args(source, batch);
    args.fields = (dlc_batch_fields){
        .count = MIXED_FIELDS,
        .source = {FIELDED_IMAGE, FIELDED_LABEL,
                   mix.mixup > 0 ? FIELDED_CLASSES_OF : FIELDED_MASK},
        .labels = 6};
    args.mix = mix;
    return args;
}

static const dlc_mix_settings ways[] = {{0.4, 0}, {0, 1}, {1, 0.3}};
enum { WAYS = sizeof ways / sizeof *ways };

static void check_same(dlc_feed *alone, const dlc_batch *all, const dlc_batch *part,
                       int64_t at, int64_t count) {
    for (int32_t f = 0; f < MIXED_FIELDS; f++) {
        size_t each = dlc_feed_field(alone, f)->bytes;
        ck_assert_mem_eq((const char *)all->field[f] + (size_t)at * each,
                         part->field[f], (size_t)count * each);
    }
}

/* Ranks that split a batch of an odd number get what one rank gets, bitwise identical,
 * also where a pair is split between ranks, batches or epochs. */
TEST_EACH(mixed_ranks, WAYS) {
    static const int64_t first[] = {0, 2, 5, 7};
    struct dlc_source source = {.samples = SAMPLES};
    dlc_feed_args args = mixed_args(&source, 7, ways[_i]);
    dlc_feed *alone = feeds_open(&args), *rank[3];
    for (int r = 0; r < 3; r++) {
        dlc_feed_args own = args;
        own.offset = first[r];
        own.count = (int32_t)(first[r + 1] - first[r]);
        own.threads = r;
        rank[r] = feeds_open(&own);
        ck_assert_int_eq(dlc_feed_seek(rank[r], 2), DLC_OK);
    }
    ck_assert_int_eq(dlc_feed_seek(alone, 2), DLC_OK);
    for (int i = 0; i < 12; i++) {
        dlc_batch all = feeds_next(alone);
        for (int r = 0; r < 3; r++) {
            dlc_batch part = feeds_next(rank[r]);
            check_same(alone, &all, &part, first[r], first[r + 1] - first[r]);
        }
    }
    for (int r = 0; r < 3; r++)
        dlc_feed_close(rank[r]);
    dlc_feed_close(alone);
}

/* The share of itself that a sample keeps, by the probability of its class. */
static float share_of(const float *probability, const float *other) {
    float sum = 0, share = -1;
    for (int c = 0; c < FIELDED_CLASSES; c++) {
        sum += probability[c];
        if (probability[c] > 0 && probability[c] < 1)
            share = probability[c];
        ck_assert_float_eq_tol(probability[c] + other[c],
                               roundf(probability[c] + other[c]), 1e-6f);
    }
    ck_assert_float_eq_tol(sum, 1, 1e-6f);
    return share;
}

/* Pixels of both add up to those of both before, and probabilities to 1. */
TEST_EACH(mixed_pairs, WAYS) {
    struct dlc_source source = {.samples = SAMPLES};
    dlc_feed_args args = mixed_args(&source, BATCH, ways[_i]), plain = args;
    plain.mix = (dlc_mix_settings){0, 0};
    dlc_feed *feed = feeds_open(&args), *before = feeds_open(&plain);
    float least = 1, most = 0;
    for (int b = 0; b < 50; b++) {
        dlc_batch got = feeds_next(feed), was = feeds_next(before);
        const float *image = got.field[0], *old = was.field[0];
        const float *probability = got.field[1];
        for (int32_t k = 0; k < BATCH; k += 2) {
            const float *one = probability + k * FIELDED_CLASSES;
            float share = share_of(one, one + FIELDED_CLASSES);
            if (share >= 0) {
                least = fminf(least, share);
                most = fmaxf(most, share);
            }
            for (int i = 0; i < PIXELS; i++)
                ck_assert_float_eq_tol(
                    image[k * PIXELS + i] + image[(k + 1) * PIXELS + i],
                    old[k * PIXELS + i] + old[(k + 1) * PIXELS + i], 1e-5f);
            ck_assert_int_eq(got.labels[k], DLC_LABEL_NONE);
        }
    }
    ck_assert_float_lt(least, 0.2f);
    ck_assert_float_gt(most, 0.8f);
    dlc_feed_close(feed);
    dlc_feed_close(before);
}

/* Masks go with the boxes of their images. */
TEST(cut_masks) {
    struct dlc_source source = {.samples = SAMPLES};
    dlc_feed_args args = mixed_args(&source, BATCH, ways[1]);
    dlc_feed *feed = feeds_open(&args);
    for (int b = 0; b < 20; b++) {
        dlc_batch batch = feeds_next(feed);
        const float *image = batch.field[0];
        const int32_t *mask = batch.field[2];
        for (int64_t i = 0; i < BATCH * PIXELS; i++)
            ck_assert_int_eq(mask[i], (int32_t)image[i]);
    }
    dlc_feed_close(feed);
}

TEST(not_mixed) {
    struct dlc_source source = {.samples = SAMPLES};
    dlc_feed_args args = mixed_args(&source, BATCH, ways[0]);
    dlc_feed *feed = NULL;
    args.fields.source[2] = FIELDED_MASK;
    ck_assert_int_eq(dlc_feed_open(&args, &feed), DLC_ERR_CONFIG);
    ck_contains(dlc_detail(), "mixup: field mask is a mask, which cannot be mixed");
    args.fields.source[2] = FIELDED_TOKENS;
    args.mix = ways[1];
    ck_assert_int_eq(dlc_feed_open(&args, &feed), DLC_ERR_CONFIG);
    ck_contains(dlc_detail(), "cutmix: field tokens is tokens");
    args.fields = (dlc_batch_fields){.count = 2,
                                     .source = {FIELDED_NUMBERS, FIELDED_LABEL}};
    ck_assert_int_eq(dlc_feed_open(&args, &feed), DLC_ERR_CONFIG);
    ck_contains(dlc_detail(), "parts of images");
}
