/* Tests what a rank remembers of the user's requests. */
#include <check.h>

#include "train/requests.h"

enum { BOTH = DLC_JOB_STOP | DLC_JOB_CHECKPOINT };

START_TEST(asked_until_agreed) {
    dlc_requests requests = {0};
    ck_assert_uint_eq(dlc_requests_ask(&requests, 0), 0);
    ck_assert_uint_eq(dlc_requests_ask(&requests, DLC_JOB_CHECKPOINT),
                      DLC_JOB_CHECKPOINT);
    ck_assert_uint_eq(dlc_requests_ask(&requests, DLC_JOB_STOP), DLC_JOB_STOP);
    ck_assert_uint_eq(requests.asked, BOTH);
    dlc_requests_agree(&requests, DLC_JOB_CHECKPOINT);
    ck_assert_uint_eq(requests.asked, DLC_JOB_STOP);
    dlc_requests_agree(&requests, DLC_JOB_STOP);
    ck_assert_uint_eq(requests.asked, 0);
}
END_TEST

/* A signal that arrives here an iteration after all ranks have agreed is the same one;
 * one that arrives later is another. */
START_TEST(a_late_signal) {
    dlc_requests requests = {0};
    dlc_requests_agree(&requests, DLC_JOB_CHECKPOINT);
    ck_assert_uint_eq(dlc_requests_ask(&requests, BOTH), DLC_JOB_STOP);
    ck_assert_uint_eq(requests.asked, DLC_JOB_STOP);
    ck_assert_uint_eq(dlc_requests_ask(&requests, DLC_JOB_CHECKPOINT),
                      DLC_JOB_CHECKPOINT);
}
END_TEST

/* Where the request came from, the next signal is another one: no rank loses it. */
START_TEST(a_second_signal) {
    dlc_requests requests = {0};
    (void)dlc_requests_ask(&requests, DLC_JOB_CHECKPOINT);
    dlc_requests_agree(&requests, DLC_JOB_CHECKPOINT);
    ck_assert_uint_eq(dlc_requests_ask(&requests, DLC_JOB_CHECKPOINT),
                      DLC_JOB_CHECKPOINT);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("train.requests");
    TCase *tcase = tcase_create("requests");
    tcase_add_test(tcase, asked_until_agreed);
    tcase_add_test(tcase, a_late_signal);
    tcase_add_test(tcase, a_second_signal);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
