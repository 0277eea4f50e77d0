/* Recordings of the asynchronous test device. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rig.h"

enum { RUNS = 100, BYTES = RIG_FLOATS * sizeof(float) };

static dlc_status twice(dlc_queue *queue, float *x) {
    return ops->scale(device, queue, RIG_FLOATS, 2, x);
}

static dlc_status add(dlc_queue *queue, const float *x, float *y) {
    return ops->add(device, queue, RIG_FLOATS, x, y);
}

/* `to` goes on after what `from` has to do now. */
static void join(dlc_queue *from, dlc_queue *to, dlc_event *event) {
    OK(ops->event_record(device, from, event));
    OK(ops->event_wait(device, to, event));
}

START_TEST(is_noted_and_not_done) {
    dlc_recording *r = NULL;
    rig_set(buffer[0], 1);
    OK(ops->record_begin(device, q1));
    OK(twice(q1, buffer[0]));
    OK(twice(q1, buffer[0]));
    OK(ops->record_end(device, q1, &r));
    OK(ops->queue_sync(device, q1));
    ck_assert(rig_value(buffer[0]) == 1);
    OK(ops->record_run(device, q1, r));
    OK(ops->queue_sync(device, q1));
    ck_assert(rig_value(buffer[0]) == 4);
    OK(ops->record_run(device, NULL, r)); /* done when it returns */
    ck_assert(rig_value(buffer[0]) == 16);
    ops->record_close(device, r);
    ops->record_close(device, NULL);
}
END_TEST

/* In order behind what the queue has to do, and before what comes next. */
START_TEST(runs_in_its_place) {
    dlc_recording *r = NULL;
    OK(ops->record_begin(device, q1));
    OK(twice(q1, buffer[0]));
    OK(ops->record_end(device, q1, &r));
    rig_set(buffer[1], 1);
    float want = 0;
    for (int i = 0; i < 20; i++) {
        OK(add(q1, buffer[1], buffer[0]));
        OK(ops->record_run(device, q1, r));
        OK(ops->scale(device, q1, RIG_FLOATS, 0.25f, buffer[0]));
        want = (want + 1) * 2 * 0.25f;
    }
    ops->record_close(device, r); /* while it runs */
    OK(ops->queue_sync(device, q1));
    ck_assert(rig_value(buffer[0]) == want);
}
END_TEST

/* Another queue takes part, and comes back. */
static dlc_recording *record_two(int second_join) {
    dlc_recording *r = NULL;
    OK(ops->record_begin(device, q1));
    OK(twice(q1, buffer[0]));
    join(q1, q2, e1);
    OK(add(q2, buffer[0], buffer[1])); /* both read it */
    OK(add(q1, buffer[0], buffer[2]));
    if (second_join)
        join(q2, q1, e2);
    OK(add(q1, buffer[1], buffer[2]));
    if (!second_join)
        join(q2, q1, e2);
    OK(ops->record_end(device, q1, &r));
    return r;
}

static int wrong_runs(dlc_recording *r) {
    int wrong = 0;
    for (int i = 0; i < RUNS; i++) {
        rig_set(buffer[0], 1);
        rig_set(buffer[1], 10);
        rig_set(buffer[2], 100);
        OK(ops->record_run(device, q2, r));
        OK(ops->queue_sync(device, q2));
        ck_assert(rig_value(buffer[1]) == 12);
        wrong += rig_value(buffer[2]) != 114;
    }
    return wrong;
}

START_TEST(two_queues_record) {
    dlc_recording *r = record_two(1);
    ck_assert_int_eq(wrong_runs(r), 0);
    ops->record_close(device, r);
}
END_TEST

/* What the recording does not tell to wait goes in any order. */
START_TEST(what_was_forgotten_is_seen) {
    dlc_recording *r = record_two(0);
    int wrong = wrong_runs(r);
    ck_assert(wrong > 0 && wrong < RUNS);
    ops->record_close(device, r);
}
END_TEST

/* Queues are their own again afterwards. */
START_TEST(queues_go_on) {
    dlc_recording *r = record_two(1);
    rig_set(buffer[3], 1);
    OK(twice(q2, buffer[3]));
    OK(ops->queue_sync(device, q2));
    ck_assert(rig_value(buffer[3]) == 2);
    int done;
    FAILS(ops->event_done(device, e1, &done), DLC_ERR_DEVICE, "part of a recording");
    FAILS(ops->event_sync(device, e1), DLC_ERR_DEVICE, "part of a recording");
    FAILS(ops->event_wait(device, q2, e1), DLC_ERR_DEVICE, "that ended");
    join(q1, q2, e1);
    OK(ops->event_sync(device, e1));
    ops->record_close(device, r);
}
END_TEST

/* Memory that work points to is read at each run. */
START_TEST(reads_anew_each_run) {
    dlc_recording *r = NULL;
    float *rate = buffer[3];
    dlc_momentum how = {
        .size = sizeof how, .rate = 1, .grad_scale = 1, .rate_at = rate};
    rig_set(buffer[0], 1); /* gradient */
    rig_set(buffer[1], 0); /* velocity */
    rig_set(buffer[2], 0); /* weight */
    OK(ops->record_begin(device, q1));
    OK(ops->momentum(device, q1, RIG_FLOATS, &how, buffer[0], buffer[1], buffer[2]));
    OK(ops->record_end(device, q1, &r));
    float want = 0;
    for (int i = 1; i <= 5; i++) {
        rig_set(rate, (float)i);
        OK(ops->record_run(device, q1, r));
        OK(ops->queue_sync(device, q1));
        want -= (float)i;
        ck_assert(rig_value(buffer[2]) == want);
    }
    ops->record_close(device, r);
}
END_TEST

/* ---- What must not be -------------------------------------------------------- */

static dlc_status call_sync(void) {
    return ops->queue_sync(device, q2);
}

static dlc_status call_event_sync(void) {
    return ops->event_sync(device, e2);
}

static dlc_status call_norm2(void) {
    double norm;
    return ops->norm2(device, q1, RIG_FLOATS, buffer[0], &norm);
}

static dlc_status call_without_queue(void) {
    return ops->fill(device, NULL, buffer[0], 0, BYTES);
}

static dlc_status call_alloc(void) {
    dlc_memory memory = {.size = sizeof memory};
    return ops->alloc(device, 64, 0, &memory);
}

static dlc_status wait_from_outside(void) {
    OK(ops->event_record(device, q2, e2)); /* not in it: done at once */
    return ops->event_wait(device, q1, e2);
}

static const struct {
    dlc_status (*call)(void);
    const char *words;
} blocking[] = {
    {call_sync, "queue_sync"}, {call_event_sync, "event_sync"},
    {call_norm2, "norm2"},     {call_without_queue, "without a queue"},
    {call_alloc, "alloc"},     {wait_from_outside, "from outside"},
};

START_TEST(spoiled_by_what_blocks) {
    dlc_recording *r = NULL;
    OK(ops->record_begin(device, q1));
    OK(twice(q1, buffer[0]));
    FAILS(blocking[_i].call(), DLC_ERR_DEVICE, blocking[_i].words);
    OK(twice(q1, buffer[0]));
    FAILS(ops->record_end(device, q1, &r), DLC_ERR_DEVICE, blocking[_i].words);
    ck_assert_ptr_null(r);
    /* Nothing is left of it. */
    rig_set(buffer[0], 1);
    OK(ops->record_begin(device, q1));
    OK(twice(q1, buffer[0]));
    OK(ops->record_end(device, q1, &r));
    OK(ops->record_run(device, q1, r));
    OK(ops->queue_sync(device, q1));
    ck_assert(rig_value(buffer[0]) == 2);
    ops->record_close(device, r);
}
END_TEST

START_TEST(a_queue_that_does_not_come_back) {
    dlc_recording *r = NULL;
    OK(ops->record_begin(device, q1));
    join(q1, q2, e1);
    OK(twice(q2, buffer[0]));
    join(q2, q1, e2);
    OK(twice(q2, buffer[0])); /* after it came back */
    FAILS(ops->record_end(device, q1, &r), DLC_ERR_DEVICE, "did not come back");
}
END_TEST

START_TEST(given_up) {
    OK(ops->record_begin(device, q1));
    OK(twice(q1, buffer[0]));
    (void)call_sync();
    OK(ops->record_end(device, q1, NULL));
    OK(ops->queue_sync(device, q1));
    FAILS(ops->record_end(device, q1, NULL), DLC_ERR_DEVICE, "no recording");
}
END_TEST

START_TEST(one_at_a_time) {
    dlc_recording *r = NULL;
    OK(ops->record_begin(device, q1));
    FAILS(ops->record_begin(device, q2), DLC_ERR_DEVICE, "already");
    OK(twice(q1, buffer[0]));
    FAILS(ops->record_end(device, q2, &r), DLC_ERR_DEVICE, "no recording");
    OK(ops->record_end(device, q1, &r));
    OK(ops->record_run(device, q1, r));
    OK(ops->record_run(device, q2, r)); /* after the other run */
    OK(ops->queue_sync(device, q1));
    OK(ops->queue_sync(device, q2));
    ops->record_close(device, r);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("later: recordings");
    TCase *tests = tcase_create("recordings");
    tcase_add_checked_fixture(tests, rig_setup, rig_teardown);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, is_noted_and_not_done);
    tcase_add_test(tests, runs_in_its_place);
    tcase_add_test(tests, two_queues_record);
    tcase_add_test(tests, what_was_forgotten_is_seen);
    tcase_add_test(tests, queues_go_on);
    tcase_add_test(tests, reads_anew_each_run);
    tcase_add_loop_test(tests, spoiled_by_what_blocks, 0,
                        sizeof blocking / sizeof *blocking);
    tcase_add_test(tests, a_queue_that_does_not_come_back);
    tcase_add_test(tests, given_up);
    tcase_add_test(tests, one_at_a_time);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
