/* Tests what is kept of transports that were tried (core/session/connection_trial.c).
 */

#include "base/memory.h"
#include "session/connection_trial.h"
#include "support/test.h"

/* Ranks choose again only after something new was found. */
TEST(findings_are_new_once) {
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
