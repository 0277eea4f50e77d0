/* Tests when deferred updates of buckets run, and that each bucket is averaged after
 * its update. */
#include <string.h>

#include "session/updates.h"
#include "support/test.h"

enum { BUCKETS = 3, COUNT = 10, WORDS = 2, ITERATION = 7 };

/* The last elements, the control words, are not averaged. */
static const size_t begin[BUCKETS + 1] = {0, 3, 8, COUNT + WORDS};

static float weights[COUNT + WORDS], average[COUNT];
static int updated[BUCKETS], order[BUCKETS], count;

/* ---- A model that adds 1 to the weights, and a device that averages them --------- */

static dlc_status update(dlc_consistency *model, int64_t iteration, int32_t bucket) {
    (void)model;
    ck_assert_int_eq(iteration, ITERATION);
    order[count++] = bucket;
    updated[bucket]++;
    for (size_t i = begin[bucket]; i < begin[bucket + 1]; i++)
        weights[i]++;
    return DLC_OK;
}

static dlc_status scale(dlc_device *device, dlc_queue *queue, size_t n, float by,
                        float *x) {
    (void)device;
    (void)queue;
    for (size_t i = 0; i < n; i++)
        x[i] *= by;
    return DLC_OK;
}

static dlc_status axpy(dlc_device *device, dlc_queue *queue, size_t n, float a,
                       const float *x, float *y) {
    (void)device;
    (void)queue;
    for (size_t i = 0; i < n; i++)
        y[i] += a * x[i];
    return DLC_OK;
}

static const dlc_consistency_ops model_ops = {.size = sizeof model_ops,
                                              .update = update};
static const dlc_device_ops device_ops = {
    .size = sizeof device_ops, .scale = scale, .axpy = axpy};
static const dlc_ema ema = {.ops = &device_ops,
                            .decay = 0.5,
                            .count = COUNT,
                            .weights = weights,
                            .average = average};

static dlc_updates open_updates(void) {
    dlc_updates updates = {0};
    memset(weights, 0, sizeof weights);
    memset(average, 0, sizeof average);
    memset(updated, 0, sizeof updated);
    count = 0;
    ck_assert_int_eq(dlc_updates_open(&model_ops, NULL, begin, BUCKETS, &ema, &updates),
                     DLC_OK);
    return updates;
}

/* ---- Tests ------------------------------------------------------------------- */

static void expect(int first, int second, int third) {
    const int expected[BUCKETS] = {first, second, third};
    for (int b = 0; b < BUCKETS; b++) {
        ck_assert_int_eq(updated[b], expected[b]);
        for (size_t i = begin[b]; i < begin[b + 1] && i < COUNT; i++)
            ck_assert_float_eq(average[i], updated[b] ? 0.5f : 0);
    }
}

TEST(only_what_is_needed_is_updated) {
    dlc_updates updates = open_updates();
    ck_assert_int_eq(dlc_updates_need(&updates, 0, COUNT), DLC_OK);
    expect(0, 0, 0); /* nothing is pending yet */
    dlc_updates_defer(&updates, ITERATION);
    ck_assert_int_eq(dlc_updates_need(&updates, 3, 3), DLC_OK);
    expect(0, 0, 0);
    ck_assert_int_eq(dlc_updates_need(&updates, 4, 8), DLC_OK);
    expect(0, 1, 0); /* not those that it only touches */
    ck_assert_int_eq(dlc_updates_need(&updates, 2, 4), DLC_OK);
    expect(1, 1, 0); /* the second is not updated again */
    ck_assert_int_eq(dlc_updates_finish(&updates), DLC_OK);
    expect(1, 1, 1);
    ck_assert_int_eq(dlc_updates_finish(&updates), DLC_OK);
    expect(1, 1, 1);
    dlc_updates_close(&updates);
}

TEST(the_last_bucket_is_first) {
    dlc_updates updates = open_updates();
    dlc_updates_defer(&updates, ITERATION);
    ck_assert_int_eq(dlc_updates_finish(&updates), DLC_OK);
    for (int i = 0; i < BUCKETS; i++)
        ck_assert_int_eq(order[i], BUCKETS - 1 - i);
    dlc_updates_close(&updates);
}

TEST(a_zeroed_one_has_none) {
    dlc_updates updates = {0};
    ck_assert_int_eq(dlc_updates_finish(&updates), DLC_OK);
    dlc_updates_close(&updates);
}
