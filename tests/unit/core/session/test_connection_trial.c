/* Tests what is kept of transports that were tried (core/session/connection_trial.c).
 */
#include <check.h>

#include "base/memory.h"
#include "session/connection_trial.h"

/* Ranks choose again only after something new was found. */
START_TEST(findings_are_new_once) {
    const dlc_comm_args how = {.rank = 1};
    dlc_connection_trial trial = {.how = &how};
    dlc_transport_finding what = {"any", {DLC_SCOPE_RANKS, DLC_DOMAIN_JOB}, 9, "", 0};
    int again = 0;
    ck_assert_int_eq(dlc_connection_trial_add(&trial, &what, &again), DLC_OK);
    ck_assert_int_eq(again, 1);
    for (int slower = 0; slower < 2; slower++) {
        what.slowdown = 9 + slower;
        again = 0;
        ck_assert_int_eq(dlc_connection_trial_add(&trial, &what, &again), DLC_OK);
        ck_assert_int_eq(again, 0);
        ck_assert_double_eq(trial.finding->slowdown, 9);
    }
    what.slowdown = 0;
    ck_assert_int_eq(dlc_connection_trial_add(&trial, &what, &again), DLC_OK);
    ck_assert_int_eq(again, 1);
    ck_assert_double_eq(trial.finding->slowdown, 0);
    for (int slow = 0; slow < 2; slow++) {
        what.slowdown = slow;
        again = 0;
        ck_assert_int_eq(dlc_connection_trial_add(&trial, &what, &again), DLC_OK);
        ck_assert_int_eq(again, 0);
        ck_assert_double_eq(trial.finding->slowdown, 0);
    }
    what.scope.within = DLC_DOMAIN_MACHINE;
    ck_assert_int_eq(dlc_connection_trial_add(&trial, &what, &again), DLC_OK);
    ck_assert_int_eq(again, 1);
    ck_assert_uint_eq(trial.findings, 2);
    dlc_free(trial.finding);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("connection trial");
    TCase *tests = tcase_create("connection trial");
    tcase_add_test(tests, findings_are_new_once);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
