/* Tests feeds whose source fails or describes itself wrongly, invalid arguments, and
 * failing allocations. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "numbered.h"
#include "support/scratch.h"
#include "support/test.h"

TEST_SETTINGS(.timeout = 30);

/* Batches before the failed one are still returned; then every call returns its error.
 */
TEST_EACH(a_read_fails, 5) {
    struct dlc_source source = {.samples = 17, .fail_read = 3 * 5 + 1};
    dlc_feed_args args = numbered_args(&source, 5);
    dlc_batch batch;
    args.prefetch = 1 + _i;
    dlc_feed *feed = feeds_open(&args);
    for (int64_t i = 0; i < 3; i++)
        ck_assert_int_eq(feeds_next(feed).iteration, i);
    for (int i = 0; i < 3; i++) {
        dlc_fail(DLC_OK, "something else");
        ck_assert_int_eq(dlc_feed_next(feed, &batch), DLC_ERR_DATA);
        ck_contains(dlc_detail(), "read 16 failed");
    }
    ck_assert_int_eq(source.reads, 4 * 5); /* no batch after the failed one */
    dlc_feed_close(feed);
}

TEST(never_read_after_a_failure) {
    struct dlc_source source = {.samples = 17, .fail_read = 1};
    dlc_feed_args args = numbered_args(&source, 5);
    dlc_feed_close(feeds_open(&args));
}

TEST_EACH(labels_out_of_range, 2) {
    struct dlc_source source = {.samples = 17, .classes = 16};
    dlc_feed_args args = numbered_args(&source, 5);
    args.keep_bytes = _i;
    dlc_batch batch;
    dlc_status status = DLC_OK;
    dlc_feed *feed = feeds_open(&args);
    for (int i = 0; i < 4 && status == DLC_OK; i++)
        status = dlc_feed_next(feed, &batch);
    ck_assert_int_eq(status, DLC_ERR_DATA);
    ck_contains(dlc_detail(),
                "sample 16 has label 16, but the source has classes 0 to 15");
    dlc_feed_close(feed);
}

static const dlc_data_info nonsense[] = {
    {.samples = 0, .shape = {3, {2, 3, 4}}, .dtype = DLC_U8},
    {.samples = 1, .shape = {2, {2, 3}}, .dtype = DLC_U8},
    {.samples = 1, .shape = {3, {2, 0, 4}}, .dtype = DLC_U8},
    {.samples = 1, .shape = {3, {2, -1, 4}}, .dtype = DLC_U8},
    {.samples = 1, .shape = {3, {2, 3, 4}}, .dtype = DLC_F16},
    {.samples = 1, .shape = {3, {2, 3, 4}}, .dtype = DLC_U8, .classes = -1},
    {.samples = 1, .shape = {3, {1 << 30, 1 << 30, 1 << 30}}, .dtype = DLC_U8},
    {.samples = 1, .shape = {3, {1, 1 << 30, INT64_C(1) << 32}}, .dtype = DLC_U8},
};

TEST_EACH(an_invalid_source, COUNT(nonsense)) {
    dlc_data_info info = nonsense[_i];
    struct dlc_source source = {.info = &info};
    dlc_feed_args args = numbered_args(&source, 5);
    dlc_feed *feed = NULL;
    ck_assert_int_eq(dlc_feed_open(&args, &feed), DLC_ERR_INTERNAL);
    ck_assert_ptr_null(feed);
    ck_contains(dlc_detail(), "describes invalid samples");
}

static void refused(dlc_feed_args args) {
    dlc_feed *feed = NULL;
    ck_assert_int_eq(dlc_feed_open(&args, &feed), DLC_ERR_INTERNAL);
    ck_assert_ptr_null(feed);
    ck_contains(dlc_detail(), "invalid arguments");
}

TEST(wrong_arguments) {
    struct dlc_source source = {.samples = 17};
    dlc_feed_args good = numbered_args(&source, 5), args;
    args = good, args.count = 0, refused(args);
    args = good, args.prefetch = -1, refused(args);
    args = good, args.offset = 1, refused(args);
    args = good, args.offset = -1, refused(args);
    args = good, args.batch = 4, refused(args);
    good.test = 1;
    args = good, args.rank = 1, refused(args);
    args = good, args.rank = -1, refused(args);
    args = good, args.ranks = 0, refused(args);
}

TEST(settings_that_do_not_fit) {
    struct dlc_source source = {.samples = 17};
    dlc_feed_args args = numbered_args(&source, 5);
    dlc_feed *feed = NULL;
    args.transforms = listed_for_good("center_crop(5)");
    ck_assert_int_eq(dlc_feed_open(&args, &feed), DLC_ERR_CONFIG);
    ck_assert_ptr_null(feed);
}

TEST(no_memory) {
    dlc_status status = DLC_ERR_NOMEM;
    size_t n = 1;
    for (; status != DLC_OK; n++) {
        struct dlc_source source = {.samples = 17};
        dlc_feed_args args = numbered_args(&source, 5);
        dlc_feed *feed = NULL;
        ck_assert_uint_lt(n, 100);
        dlc_memory_fail_at(n);
        status = dlc_feed_open(&args, &feed);
        dlc_memory_fail_at(0);
        if (status != DLC_OK) {
            ck_assert_int_eq(status, DLC_ERR_NOMEM);
            ck_assert_ptr_null(feed);
        }
        dlc_feed_close(feed);
    }
    ck_assert_uint_gt(n, 5);
}
