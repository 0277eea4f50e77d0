/* Tests the ring of batches of a feed: batches come in order, stay valid while they are
 * held, and can be found by a seek. */
#include <string.h>
#include <time.h>

#include "numbered.h"
#include "support/test.h"

#define BATCH 6
#define ITERATIONS 30

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
}

static dlc_feed_args mirrored_args(struct dlc_source *source) {
    dlc_feed_args args = numbered_args(source, BATCH);
    args.transforms = listed_for_good("random_crop(2), mirror");
    return args;
}

/* The first iterations, read sequentially. */
static int32_t expected_labels[ITERATIONS][BATCH];
static float expected_data[ITERATIONS][BATCH * 8];

static void take_expected(void) {
    struct dlc_source source = {.samples = 17};
    dlc_feed_args args = mirrored_args(&source);
    dlc_feed *feed = feeds_open(&args);
    for (int i = 0; i < ITERATIONS; i++) {
        dlc_batch batch = feeds_next(feed);
        memcpy(expected_labels[i], batch.labels, sizeof expected_labels[i]);
        memcpy(expected_data[i], batch.data, sizeof expected_data[i]);
    }
    dlc_feed_close(feed);
}

static void check_batch(const dlc_batch *batch, int64_t iteration) {
    ck_assert_int_eq(batch->iteration, iteration);
    ck_assert_mem_eq(batch->labels, expected_labels[iteration],
                     sizeof expected_labels[0]);
    ck_assert_mem_eq(batch->data, expected_data[iteration], sizeof expected_data[0]);
}

TEST_SETTINGS(.timeout = 30);

/* Seeks randomly, both while batches are ready and while one is being made; one thread
 * and several give the same. */
TEST_EACH(seek_is_sequential, 3) {
    struct dlc_source source = {.samples = 17};
    dlc_feed_args args = mirrored_args(&source);
    args.prefetch = 1 + _i;
    args.threads = 3 * _i;
    take_expected();
    dlc_feed *feed = feeds_open(&args);
    unsigned state = 1;
    for (int round = 0; round < 300; round++) {
        state = state * 1103515245u + 12345u;
        int64_t target = (state >> 16) % (ITERATIONS - 3);
        ck_assert_int_eq(dlc_feed_seek(feed, target), DLC_OK);
        if (round % 50 == 0)
            nap();
        for (int64_t i = 0; i < (state >> 8) % 4; i++) {
            dlc_batch batch = feeds_next(feed);
            check_batch(&batch, target + i);
        }
    }
    dlc_feed_close(feed);
    ck_assert_int_eq(source.collision, 0);
}

TEST(seek_to_where_it_is) {
    struct dlc_source source = {.samples = 17};
    dlc_feed_args args = numbered_args(&source, BATCH);
    dlc_feed *feed = feeds_open(&args);
    for (int i = 0; i < 10; i++) {
        ck_assert_int_eq(dlc_feed_seek(feed, i), DLC_OK);
        feeds_next(feed);
    }
    dlc_feed_close(feed);
    ck_assert_int_le(source.reads,
                     (10 + args.prefetch) * BATCH); /* no batch was made twice */
}

TEST(far_away) {
    struct dlc_source source = {.samples = 17};
    dlc_feed_args args = numbered_args(&source, BATCH);
    dlc_feed *feed = feeds_open(&args);
    const int64_t far = INT64_C(1) << 50;
    ck_assert_int_eq(dlc_feed_seek(feed, far), DLC_OK);
    ck_assert_int_eq(feeds_next(feed).iteration, far);
    ck_assert_int_eq(feeds_next(feed).iteration, far + 1);
    ck_assert_int_eq(dlc_feed_seek(feed, -1), DLC_ERR_INTERNAL);
    ck_assert_int_eq(dlc_feed_seek(feed, INT64_MAX), DLC_ERR_INTERNAL);
    ck_assert_int_eq(feeds_next(feed).iteration, far + 2);
    dlc_feed_close(feed);
}

/* No more is read than fits; a batch that is held does not change while others are
 * made. */
TEST_EACH(held_and_bounded, 3) {
    struct dlc_source source = {.samples = 17};
    dlc_feed_args args = mirrored_args(&source);
    args.prefetch = 1 + _i;
    take_expected();
    dlc_feed *feed = feeds_open(&args);
    for (int64_t i = 0; i < 20; i++) {
        dlc_batch batch = feeds_next(feed);
        if (i % 5 == 0)
            nap();
        ck_assert_int_le(source.reads, (i + 1 + args.prefetch) * args.count);
        check_batch(&batch, i);
    }
    ck_assert_int_eq(dlc_feed_seek(feed, 3), DLC_OK); /* the held batch stays valid */
    dlc_batch batch = feeds_next(feed);
    check_batch(&batch, 3);
    ck_assert_int_eq(dlc_feed_seek(feed, 25), DLC_OK);
    nap();
    check_batch(&batch, 3);
    dlc_feed_close(feed);
}

/* A pass that was interrupted can begin again; the next pass begins automatically. */
TEST(passes_of_a_test) {
    struct dlc_source source = {.samples = 10};
    dlc_feed_args args = numbered_args(&source, 4);
    args.test = 1;
    dlc_feed *feed = feeds_open(&args);
    ck_assert_int_eq(dlc_feed_batches(feed), 3);
    ck_assert_int_eq(feeds_next(feed).labels[0], 0);
    ck_assert_int_eq(feeds_next(feed).labels[0], 4);
    ck_assert_int_eq(dlc_feed_seek(feed, 0), DLC_OK);
    for (int pass = 0; pass < 3; pass++) {
        ck_assert_int_eq(feeds_next(feed).labels[0], 0);
        ck_assert_int_eq(feeds_next(feed).labels[0], 4);
        dlc_batch last = feeds_next(feed);
        ck_assert_int_eq(last.samples, 2);
        ck_assert_int_eq(last.labels[1], 9);
        ck_assert_int_eq(dlc_feed_seek(feed, 0), DLC_OK); /* is there already */
    }
    ck_assert_int_eq(dlc_feed_seek(feed, 3), DLC_ERR_INTERNAL);
    dlc_feed_close(feed);
    ck_assert_int_le(source.reads, (2 + args.prefetch + 1 + 9 + args.prefetch) * 4);
}

TEST(no_samples_for_this_rank) {
    struct dlc_source source = {.samples = 1};
    dlc_feed_args args = numbered_args(&source, 4);
    dlc_batch batch;
    args.test = 1;
    args.ranks = 2; /* rank 0 of 2 has samples [0, 0) */
    dlc_feed *feed = feeds_open(&args);
    ck_assert_int_eq(dlc_feed_batches(feed), 0);
    ck_assert_int_eq(dlc_feed_seek(feed, 0), DLC_OK);
    ck_assert_int_eq(dlc_feed_next(feed, &batch), DLC_ERR_INTERNAL);
    dlc_feed_close(feed);
    ck_assert_int_eq(source.reads, 0);
}

/* Nobody waits for batches that a seek drops, or for those of a feed that is closed. */
TEST_EACH(dropped_at_once, 2) {
    enum { MANY = 4000, LOADED = MANY / 4 };
    struct dlc_source source = {.samples = 17, .slow = 1};
    dlc_feed_args args = numbered_args(&source, MANY);
    args.threads = 2 * _i;
    dlc_feed *feed = feeds_open(&args);
    nap();
    ck_assert_int_eq(dlc_feed_seek(feed, 7), DLC_OK);
    nap();
    dlc_feed_close(feed);
    ck_assert_int_lt(source.reads, LOADED);
}

TEST(opened_and_closed) {
    for (int i = 0; i < 200; i++) {
        struct dlc_source source = {.samples = 17};
        dlc_feed_args args = numbered_args(&source, BATCH);
        dlc_feed *feed = feeds_open(&args);
        for (int k = 0; k < i % 3; k++)
            feeds_next(feed);
        dlc_feed_close(feed);
    }
    dlc_feed_close(NULL);
}
