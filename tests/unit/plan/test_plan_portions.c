/* The whole batch at once or by portions: what is hidden, what it costs, what is
 * chosen.
 */
#include <check.h>
#include <stdlib.h>

#include "plan/portions.h"

/* A batch of 10 a rank, 100 bytes a sample; 1 s of computing for it, no fixed part. */
static const dlc_plan_group group = {.samples = 10,
                                     .work = {0, 0.1},
                                     .cut_bytes = 100,
                                     .kept_bytes = 300,
                                     .parameter_bytes = 5000,
                                     .largest_bytes = 4000};

static dlc_plan_cluster ranks(int32_t nodes, double bandwidth) {
    return (dlc_plan_cluster){
        .nodes = nodes, .each = 1, .between = {.bandwidth = bandwidth}};
}

static dlc_plan_portions cost(const dlc_plan_group *what, const dlc_plan_cluster *c,
                              dlc_split_way way) {
    dlc_plan_portions portions;
    ck_assert_int_eq(dlc_plan_portions_of(what, c, way, &portions), DLC_OK);
    return portions;
}

/* Two ranks: each sends 1,000 bytes, at 2,000 a second. */
START_TEST(hides_all_but_the_first_and_last) {
    dlc_plan_cluster two = ranks(2, 2000);
    dlc_plan_portions whole = cost(&group, &two, DLC_SPLIT_WHOLE);
    ck_assert_int_eq(whole.count, 1);
    ck_assert_double_eq_tol(whole.seconds, 0.5 + 1 + 0.5, 1e-9);
    ck_assert_double_eq_tol(whole.exposed, 1, 1e-9);
    dlc_plan_portions sliced = cost(&group, &two, DLC_SPLIT_SLICED);
    ck_assert_int_eq(sliced.count, 2);
    ck_assert_double_eq_tol(sliced.exposed, 0.5, 1e-9);
    ck_assert_double_eq_tol(sliced.exchange, 1, 1e-9);
    /* One of two sends all of a portion, while the other sends nothing. */
    dlc_plan_portions rotating = cost(&group, &two, DLC_SPLIT_ROTATING);
    ck_assert_double_eq_tol(rotating.exchange, 2, 1e-9);
    ck_assert_double_eq_tol(rotating.exposed, 1, 1e-9);
}
END_TEST

START_TEST(pays_for_reading_and_adding_weights) {
    dlc_plan_cluster two = ranks(2, 1e12);
    dlc_plan_group heavy = group;
    heavy.work.fixed = 0.2; /* read once for all, by both ranks half of it */
    heavy.memory = 1e6;
    dlc_plan_portions whole = cost(&heavy, &two, DLC_SPLIT_WHOLE);
    dlc_plan_portions sliced = cost(&heavy, &two, DLC_SPLIT_SLICED);
    ck_assert_double_eq_tol(whole.seconds, 1.1, 1e-6);
    ck_assert_double_eq_tol(sliced.seconds, 1.2 + 3 * 5000 / 1e6, 1e-6);
}
END_TEST

START_TEST(keeps_a_part_of_the_batch) {
    dlc_plan_cluster four = ranks(4, 2000);
    double whole = cost(&group, &four, DLC_SPLIT_WHOLE).bytes;
    double rotating = cost(&group, &four, DLC_SPLIT_ROTATING).bytes;
    double sliced = cost(&group, &four, DLC_SPLIT_SLICED).bytes;
    ck_assert_double_eq_tol(whole, 40 * 500 + 3 * 10 * 100, 1e-9);
    ck_assert_double_eq_tol(rotating, 10 * 700 + 2 * 3 * 10 * 100 + 4000, 1e-9);
    ck_assert_double_eq_tol(sliced, 10 * 700 + 2 * 3 * 2.5 * 100 + 4000, 1e-9);
}
END_TEST

START_TEST(chooses_by_time_and_room) {
    const char *reason = NULL;
    dlc_plan_portions p[DLC_SPLIT_WAYS] = {{.count = 1, .seconds = 1, .bytes = 100},
                                           {.count = 2, .seconds = 0.97, .bytes = 60},
                                           {.count = 2, .seconds = 0.96, .bytes = 50}};
    ck_assert_int_eq(dlc_plan_split_way(p, 0, &reason), DLC_SPLIT_WHOLE);
    ck_assert_int_eq(dlc_plan_split_way(p, 99, &reason), DLC_SPLIT_SLICED);
    ck_assert_int_eq(dlc_plan_split_way(p, 40, &reason), DLC_SPLIT_SLICED);
    p[DLC_SPLIT_ROTATING].seconds = 0.9;
    ck_assert_int_eq(dlc_plan_split_way(p, 0, &reason), DLC_SPLIT_ROTATING);
    ck_assert_str_eq(reason, "it is the fastest");
    ck_assert_int_eq(dlc_plan_split_way(p, 55, &reason), DLC_SPLIT_SLICED);
    p[DLC_SPLIT_SLICED].count = p[DLC_SPLIT_ROTATING].count = 0;
    ck_assert_int_eq(dlc_plan_split_way(p, 1, &reason), DLC_SPLIT_WHOLE);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("plan_portions");
    TCase *cases = tcase_create("plan_portions");
    tcase_add_test(cases, hides_all_but_the_first_and_last);
    tcase_add_test(cases, pays_for_reading_and_adding_weights);
    tcase_add_test(cases, keeps_a_part_of_the_batch);
    tcase_add_test(cases, chooses_by_time_and_room);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
