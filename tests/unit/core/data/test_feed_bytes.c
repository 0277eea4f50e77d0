/* Tests feeds that keep bytes: after the conversion by the device, batches are bitwise
 * identical to those that the feed converts itself. */
#include <string.h>

#include "base/status.h"
#include "numbered.h"
#include "support/test.h"

#define BATCH 6
#define MOST (BATCH * 2 * 7 * 8)

static const struct {
    const char *transforms;
    int test;
    int as_read; /* the source reads directly into the batch */
} ways[] = {
    {"", 0, 1},
    {"normalize(mean=(101.3, 3), scale=0.017)", 0, 1},
    {"normalize(mean=(101.3, 3), std=(2, 57.3))", 1, 1},
    {"mirror, normalize(101.3, scale=0.017)", 0, 0},
    {"center_crop(2), normalize((101.3, 3), scale=3)", 0, 0},
    {"random_crop(3, padding=2), mirror, normalize((101.3, 3), std=(3, 5))", 0, 0},
    {"random_crop(3, padding=2), mirror, normalize((101.3, 3), scale=3)", 1, 0},
};

static dlc_feed_args args_of(struct dlc_source *source, int way, int threads) {
    dlc_feed_args args = numbered_args(source, BATCH);
    args.transforms = listed_for_good(ways[way].transforms);
    args.test = ways[way].test;
    args.threads = threads;
    return args;
}

static size_t floats_of(const dlc_feed *feed, const dlc_batch *batch, float *to) {
    dlc_shape shape = dlc_feed_shape(feed);
    const dlc_transforms *list = dlc_feed_transforms(feed);
    const uint8_t *bytes = batch->data;
    int64_t plane = shape.dims[1] * shape.dims[2];
    size_t count = (size_t)BATCH * (size_t)dlc_shape_count(&shape);
    ck_assert_int_eq(dlc_feed_dtype(feed), DLC_U8);
    for (size_t i = 0; i < count; i++) {
        int64_t channel = (int64_t)i / plane % shape.dims[0];
        to[i] = ((float)bytes[i] - dlc_transforms_mean(list, channel)) *
                dlc_transforms_scale(list, channel);
    }
    return count;
}

TEST_SETTINGS(.timeout = 30);

TEST_EACH(become_the_same_floats, 2 * COUNT(ways)) {
    int way = _i / 2, threads = _i % 2 * 3;
    struct dlc_source source = {.samples = 17}, other = {.samples = 17};
    dlc_feed_args args = args_of(&source, way, threads);
    dlc_feed_args as_bytes = args_of(&other, way, threads);
    as_bytes.keep_bytes = 1;
    dlc_feed *feed = feeds_open(&args), *kept = feeds_open(&as_bytes);
    ck_assert_int_eq(dlc_feed_dtype(feed), DLC_F32);
    for (int i = 0; i < 20; i++) {
        float made[MOST];
        dlc_batch want = feeds_next(feed), got = feeds_next(kept);
        size_t count = floats_of(kept, &got, made);
        ck_assert_mem_eq(made, want.data, count * sizeof *made);
        ck_assert_mem_eq(got.labels, want.labels, BATCH * sizeof *got.labels);
        ck_assert_int_eq(got.samples, want.samples);
        ck_assert_int_eq(got.iteration, want.iteration);
    }
    dlc_feed_close(feed);
    dlc_feed_close(kept);
    ck_assert_int_eq(other.collision, 0);
}

/* Plain samples are read several at once, by any number of threads. */
TEST_EACH(are_read_in_runs, 4) {
    enum { MANY = 60, BATCHES = 5 };
    struct dlc_source source = {.samples = 17, .classes = 17};
    dlc_feed_args args = numbered_args(&source, MANY);
    args.keep_bytes = 1;
    args.threads = _i;
    dlc_feed *feed = feeds_open(&args);
    for (int i = 0; i < BATCHES; i++) {
        dlc_batch batch = feeds_next(feed);
        const uint8_t *bytes = batch.data;
        for (int k = 0; k < MANY; k++) {
            ck_assert_uint_eq(bytes[k * NUMBERED_COUNT], 10 * batch.labels[k] % 251);
            ck_assert_uint_eq(bytes[k * NUMBERED_COUNT + 23],
                              (10 * batch.labels[k] + 23) % 251);
        }
    }
    dlc_feed_close(feed);
    ck_assert_int_lt(source.reads, (BATCHES + args.prefetch) * MANY / 10);
    ck_assert_int_eq(source.collision, 0);
}

/* It has no effect on a source of floats. */
TEST(only_of_a_source_of_bytes) {
    dlc_data_info info = {.samples = 17, .shape = {3, {2, 3, 4}}, .dtype = DLC_F32};
    struct dlc_source source = {.info = &info};
    dlc_feed_args args = numbered_args(&source, BATCH);
    args.keep_bytes = 1;
    dlc_feed *feed = feeds_open(&args);
    ck_assert_int_eq(dlc_feed_dtype(feed), DLC_F32);
    feeds_next(feed);
    dlc_feed_close(feed);
}

/* A quarter of the memory of floats; and no separate buffer if the source reads
 * directly into the batch. */
TEST_EACH(take_less_memory, COUNT(ways)) {
    struct dlc_source source = {.samples = 17};
    dlc_feed_args args = args_of(&source, _i, 1);
    args.shuffle = 0;
    uint64_t floats = 0, batch_of_floats = 0, bytes = 0, batch = 0;
    ck_assert_int_eq(dlc_feed_bytes(&args, &floats, &batch_of_floats), DLC_OK);
    args.keep_bytes = 1;
    ck_assert_int_eq(dlc_feed_bytes(&args, &bytes, &batch), DLC_OK);
    uint64_t labels = BATCH * sizeof(int32_t), one = NUMBERED_COUNT;
    ck_assert_uint_eq((batch - labels) * sizeof(float), batch_of_floats - labels);
    ck_assert_uint_eq(floats, 3 * batch_of_floats + one);
    ck_assert_uint_eq(bytes, 3 * batch + (ways[_i].as_read ? 0 : one));
}

/* More batches are kept ready if they are small: the limit is in bytes. */
TEST(more_are_kept_ready) {
    dlc_data_info info = {
        .samples = 17, .shape = {3, {3, 1000, 1000}}, .dtype = DLC_U8};
    struct dlc_source source = {.info = &info};
    dlc_feed_args args = numbered_args(&source, 3);
    uint64_t bytes = 0, batch = 0;
    args.prefetch = 0;
    ck_assert_int_eq(dlc_feed_bytes(&args, &bytes, &batch), DLC_OK);
    ck_assert_uint_eq(bytes / batch, 1 + 1);
    args.keep_bytes = 1;
    ck_assert_int_eq(dlc_feed_bytes(&args, &bytes, &batch), DLC_OK);
    ck_assert_uint_eq(bytes / batch, 3 + 1);
}
