/* Tests what a rank remembers of the user's requests. */

#include "support/test.h"
#include "train/requests.h"

enum { BOTH = DLC_JOB_STOP | DLC_JOB_CHECKPOINT };

TEST(asked_until_agreed) {
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

/* A signal that arrives here an iteration after all ranks have agreed is the same one;
 * one that arrives later is another. */
TEST(a_late_signal) {
    dlc_requests requests = {0};
    dlc_requests_agree(&requests, DLC_JOB_CHECKPOINT);
    ck_assert_uint_eq(dlc_requests_ask(&requests, BOTH), DLC_JOB_STOP);
    ck_assert_uint_eq(requests.asked, DLC_JOB_STOP);
    ck_assert_uint_eq(dlc_requests_ask(&requests, DLC_JOB_CHECKPOINT),
                      DLC_JOB_CHECKPOINT);
}

/* Where the request came from, the next signal is another one: no rank loses it. */
TEST(a_second_signal) {
    dlc_requests requests = {0};
    (void)dlc_requests_ask(&requests, DLC_JOB_CHECKPOINT);
    dlc_requests_agree(&requests, DLC_JOB_CHECKPOINT);
    ck_assert_uint_eq(dlc_requests_ask(&requests, DLC_JOB_CHECKPOINT),
                      DLC_JOB_CHECKPOINT);
}
