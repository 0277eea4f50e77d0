/* Tests when a checkpoint is due: by iteration, by time, and after the best test. */
#include <math.h>

#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/run_folder.h"
#include "support/test.h"

static dlc_run_folder folder;
static dlc_session session;

static dlc_checkpointer make(int keeps_best) {
    folder = (dlc_run_folder){.state = dlc_run_state_new()};
    session = (dlc_session){.run_folder = &folder, .iteration = 5};
    return (dlc_checkpointer){
        .session = &session, .keeps_best = keeps_best, .written = -1};
}

TEST(by_iteration) {
    dlc_checkpointer checkpointer = make(0);
    ck_assert_int_eq(dlc_checkpointer_is_due(&checkpointer), 0);
    checkpointer.interval = 3;
    ck_assert_int_eq(dlc_checkpointer_is_due(&checkpointer), 0);
    session.iteration = 6;
    ck_assert_int_eq(dlc_checkpointer_is_due(&checkpointer), 1);
}

/* The last rank asks, once, when the time has passed. */
TEST(by_time) {
    dlc_checkpointer checkpointer = make(0);
    checkpointer.tried = dlc_now_ns() - 2000000000;
    ck_assert_int_eq(dlc_checkpointer_must_ask(&checkpointer), 0);
    checkpointer.seconds = 3600;
    ck_assert_int_eq(dlc_checkpointer_must_ask(&checkpointer), 0);
    checkpointer.seconds = 1;
    session.ranks = 2;
    ck_assert_int_eq(dlc_checkpointer_must_ask(&checkpointer), 0);
    session.rank = 1;
    ck_assert_int_eq(dlc_checkpointer_must_ask(&checkpointer), 1);
    ck_assert_int_eq(dlc_checkpointer_must_ask(&checkpointer), 0);
}

static int is_best(dlc_checkpointer *checkpointer, double loss, double accuracy) {
    const dlc_evaluation evaluation = {.loss = loss, .accuracy = accuracy};
    dlc_checkpointer_note_test(checkpointer, &evaluation);
    ck_assert_int_eq(checkpointer->improved, dlc_checkpointer_is_due(checkpointer));
    return checkpointer->improved;
}

TEST(after_the_best_test) {
    dlc_checkpointer checkpointer = make(1);
    const double unknown = (double)NAN;
    ck_assert_int_eq(is_best(&checkpointer, unknown, unknown), 0);
    ck_assert_int_eq(is_best(&checkpointer, 2, unknown), 1);
    folder.state.best_loss = 2;
    ck_assert_int_eq(is_best(&checkpointer, 3, unknown), 0);
    ck_assert_int_eq(is_best(&checkpointer, 2, unknown), 0);
    ck_assert_int_eq(is_best(&checkpointer, 1, unknown), 1);
    /* The accuracy decides where it is known, whatever the loss. */
    ck_assert_int_eq(is_best(&checkpointer, 3, 0.5), 1);
    folder.state.best_accuracy = 0.5;
    ck_assert_int_eq(is_best(&checkpointer, 1, 0.25), 0);
    ck_assert_int_eq(is_best(&checkpointer, 1, 0.5), 0); /* the first of two stays */
    ck_assert_int_eq(is_best(&checkpointer, 3, 0.75), 1);
    ck_assert_double_eq(folder.state.accuracy, 0.75);
    ck_assert_double_eq(folder.state.test_loss, 3);
    ck_assert_int_eq(folder.state.tested, 5);
}

TEST(unasked_the_best_is_not_kept) {
    dlc_checkpointer checkpointer = make(0);
    ck_assert_int_eq(is_best(&checkpointer, 1, 0.5), 0);
}

TEST(without_a_folder_nothing_is_written) {
    dlc_checkpointer checkpointer = make(1);
    session.run_folder = NULL;
    ck_assert_int_eq(is_best(&checkpointer, 1, 0.5), 0);
    ck_assert_int_eq(dlc_checkpointer_write(&checkpointer, 1), DLC_OK);
    ck_assert_int_eq(checkpointer.written, -1);
}
