/* Tests the measurement of a CPU's limits: every limit that it has is found, and no
 * more than that. */

#include "cpu_limits.h"
#include "support/test.h"

static const double seconds = 1e-3;
enum { BYTES = 8 << 20 };

TEST(limits_are_found) {
    for (int threads = 1; threads <= 2; threads++) {
        dlc_cpu_limits limits;
        dlc_cpu_limits_measure(threads, BYTES, seconds, &limits);
        ck_assert_double_gt(limits.float32, 0);
        ck_assert_double_ge(limits.bf16, 0);
        ck_assert_double_ge(limits.bf16_tile, 0);
        ck_assert_double_gt(limits.read, 0);
        ck_assert_double_gt(limits.copy, 0);
    }
}

/* Too little memory for a piece of each thread; no threads count as one. */
TEST(little_is_given) {
    dlc_cpu_limits limits;
    dlc_cpu_limits_measure(0, 1000, 0, &limits);
    ck_assert_double_gt(limits.float32, 0);
    ck_assert_double_eq(limits.read, 0);
    ck_assert_double_eq(limits.copy, 0);
}

TEST(the_fastest_way_counts) {
    dlc_cpu_limits limits = {.float32 = 3, .bf16 = 2, .read = 5, .copy = 7};
    ck_assert_double_eq(dlc_cpu_limits_bf16(&limits), 3);
    ck_assert_double_eq(dlc_cpu_limits_memory(&limits), 7);
    limits.bf16 = 6;
    limits.read = 8;
    ck_assert_double_eq(dlc_cpu_limits_bf16(&limits), 6);
    ck_assert_double_eq(dlc_cpu_limits_memory(&limits), 8);
    limits.bf16_tile = 50;
    ck_assert_double_eq(dlc_cpu_limits_bf16(&limits), 50);
}
