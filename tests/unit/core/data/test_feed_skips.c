/* Tests feeds that skip samples that cannot be read, and count how long they are waited
 * for. */
#include <time.h>

#include "base/status.h"
#include "numbered.h"
#include "support/scratch.h"
#include "support/test.h"

enum { SAMPLES = 17, BAD_FROM = 12, BAD = SAMPLES - BAD_FROM, BATCH = 5 };

/* Samples that stay bytes are read several at once. */
static dlc_feed_args skipping(struct dlc_source *source, int threads) {
    dlc_feed_args args = numbered_args(source, BATCH);
    args.threads = threads % 3;
    args.keep_bytes = threads >= 3;
    args.max_skipped = BAD;
    return args;
}

/* The first value of a sample. */
static float value_of(const dlc_batch *batch, int is_bytes, int32_t sample) {
    int32_t at = sample * NUMBERED_COUNT;
    return is_bytes ? (float)((const uint8_t *)batch->data)[at]
                    : ((const float *)batch->data)[at];
}

TEST_SETTINGS(.timeout = 30);

/* In training the next good sample takes the place of a bad one; the result does not
 * depend on threads, or on where a run begins. */
TEST_EACH(the_next_good_one, 6) {
    struct dlc_source whole = {.samples = SAMPLES};
    struct dlc_source source = {.samples = SAMPLES, .bad_from = BAD_FROM};
    dlc_feed_args sound = numbered_args(&whole, BATCH);
    dlc_feed_args args = skipping(&source, _i);
    dlc_feed *all = feeds_open(&sound), *feed = feeds_open(&args);
    int skipped = 0;
    ck_assert_int_eq(dlc_feed_seek(all, 3), DLC_OK);
    ck_assert_int_eq(dlc_feed_seek(feed, 3), DLC_OK);
    for (int i = 0; i < 20; i++) {
        dlc_batch want = feeds_next(all), got = feeds_next(feed);
        for (int32_t k = 0; k < BATCH; k++) {
            int bad = want.labels[k] >= BAD_FROM;
            ck_assert_int_eq(got.labels[k], bad ? 0 : want.labels[k]);
            ck_assert_float_eq(value_of(&got, args.keep_bytes, k),
                               (float)(got.labels[k] * 10 % 251));
            skipped += bad;
        }
    }
    ck_assert_int_gt(skipped, 0);
    dlc_feed_close(all);
    dlc_feed_close(feed);
}

/* In a test a bad sample counts for nothing. */
TEST_EACH(none_in_a_test, 6) {
    struct dlc_source source = {.samples = SAMPLES, .bad_from = BAD_FROM};
    dlc_feed_args args = skipping(&source, _i);
    args.test = 1;
    dlc_feed *feed = feeds_open(&args);
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < dlc_feed_batches(feed); i++) {
            dlc_batch batch = feeds_next(feed);
            for (int32_t k = 0; k < batch.samples; k++) {
                int32_t number = i * BATCH + k;
                ck_assert_int_eq(batch.labels[k],
                                 number < BAD_FROM ? number : DLC_LABEL_NONE);
            }
        }
    dlc_feed_close(feed);
}

static void fails(dlc_feed *feed, const char *detail) {
    dlc_batch batch;
    dlc_status status = DLC_OK;
    for (int i = 0; i < 40 && status == DLC_OK; i++)
        status = dlc_feed_next(feed, &batch);
    ck_assert_int_eq(status, DLC_ERR_DATA);
    ck_contains(dlc_detail(), detail);
    dlc_feed_close(feed);
}

TEST(one_too_many) {
    struct dlc_source source = {.samples = SAMPLES, .bad_from = BAD_FROM};
    dlc_feed_args args = skipping(&source, 0);
    args.max_skipped = BAD - 1;
    fails(feeds_open(&args), "4 samples were skipped before it, and max_skipped");
}

TEST(all_of_them) {
    struct dlc_source source = {.samples = SAMPLES, .bad_from = -1};
    dlc_feed_args args = skipping(&source, 0);
    args.max_skipped = SAMPLES;
    fails(feeds_open(&args), "not one of the samples can be read");
}

TEST(not_unless_asked) {
    struct dlc_source source = {.samples = SAMPLES, .bad_from = BAD_FROM};
    dlc_feed_args args = skipping(&source, 2);
    args.max_skipped = 0;
    fails(feeds_open(&args), "is bad");
}

/* Only the time that the caller is blocked counts. */
TEST(waiting) {
    struct dlc_source source = {.samples = SAMPLES};
    dlc_feed_args args = numbered_args(&source, BATCH);
    struct timespec pause = {0, 50000000};
    dlc_feed *feed = feeds_open(&args);
    ck_assert_double_eq(dlc_feed_waited(feed), 0);
    feeds_next(feed);
    double first = dlc_feed_waited(feed);
    nanosleep(&pause, NULL);
    feeds_next(feed);
    ck_assert_double_ge(first, 0);
    ck_assert_double_eq(dlc_feed_waited(feed), first); /* it was ready */
    dlc_feed_close(feed);
}
