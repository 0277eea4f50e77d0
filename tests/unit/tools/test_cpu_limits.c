/* Tests the measurement of a CPU's limits: every limit that it has is found, and no
 * more than that. */
#include <check.h>
#include <stdlib.h>

#include "cpu_limits.h"

static const double seconds = 1e-3;
enum { BYTES = 8 << 20 };

START_TEST(limits_are_found) {
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
END_TEST

/* Too little memory for a piece of each thread; no threads count as one. */
START_TEST(little_is_given) {
    dlc_cpu_limits limits;
    dlc_cpu_limits_measure(0, 1000, 0, &limits);
    ck_assert_double_gt(limits.float32, 0);
    ck_assert_double_eq(limits.read, 0);
    ck_assert_double_eq(limits.copy, 0);
}
END_TEST

START_TEST(the_fastest_way_counts) {
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
END_TEST

int main(void) {
    Suite *suite = suite_create("cpu_limits");
    TCase *cases = tcase_create("cpu_limits");
    tcase_add_test(cases, limits_are_found);
    tcase_add_test(cases, little_is_given);
    tcase_add_test(cases, the_fastest_way_counts);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
