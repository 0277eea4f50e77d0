/* Captured graphs of the device "async". */
#include <math.h>
#include <string.h>

#include "fixture.h"
#include "support/test.h"
#include "support/updates.h"

enum { RUNS = 100, BYTES = FIXTURE_FLOATS * sizeof(float) };

static dlc_status twice(dlc_queue *queue, float *x) {
    return ops->scale(device, queue, FIXTURE_FLOATS, 2, x);
}

static dlc_status add(dlc_queue *queue, const float *x, float *y) {
    return ops->add(device, queue, FIXTURE_FLOATS, x, y);
}

/* `to` waits for the present work of `from`. */
static void join(dlc_queue *from, dlc_queue *to, dlc_event *event) {
    OK(ops->queues->event_record(device, from, event));
    OK(ops->queues->event_wait(device, to, event));
}

TEST_SETTINGS(.timeout = 60, .setup = fixture_setup, .teardown = fixture_teardown);

TEST(captures_without_running) {
    dlc_captured_graph *r = NULL;
    fixture_set(buffer[0], 1);
    OK(ops->queues->capture_begin(device, q1));
    OK(twice(q1, buffer[0]));
    OK(twice(q1, buffer[0]));
    OK(ops->queues->capture_end(device, q1, &r));
    OK(ops->queues->queue_sync(device, q1));
    ck_assert(fixture_value(buffer[0]) == 1);
    OK(ops->queues->graph_launch(device, q1, r));
    OK(ops->queues->queue_sync(device, q1));
    ck_assert(fixture_value(buffer[0]) == 4);
    OK(ops->queues->graph_launch(device, NULL, r)); /* done when it returns */
    ck_assert(fixture_value(buffer[0]) == 16);
    ops->queues->graph_close(device, r);
    ops->queues->graph_close(device, NULL);
}

/* After the queue's earlier work, and before what is queued next. */
TEST(runs_in_queue_order) {
    dlc_captured_graph *r = NULL;
    OK(ops->queues->capture_begin(device, q1));
    OK(twice(q1, buffer[0]));
    OK(ops->queues->capture_end(device, q1, &r));
    fixture_set(buffer[1], 1);
    float want = 0;
    for (int i = 0; i < 20; i++) {
        OK(add(q1, buffer[1], buffer[0]));
        OK(ops->queues->graph_launch(device, q1, r));
        OK(ops->scale(device, q1, FIXTURE_FLOATS, 0.25f, buffer[0]));
        want = (want + 1) * 2 * 0.25f;
    }
    ops->queues->graph_close(device, r); /* while it runs */
    OK(ops->queues->queue_sync(device, q1));
    ck_assert(fixture_value(buffer[0]) == want);
}

/* Another queue takes part, and is joined again. */
static dlc_captured_graph *capture_two(int second_join) {
    dlc_captured_graph *r = NULL;
    OK(ops->queues->capture_begin(device, q1));
    OK(twice(q1, buffer[0]));
    join(q1, q2, e1);
    OK(add(q2, buffer[0], buffer[1])); /* both read it */
    OK(add(q1, buffer[0], buffer[2]));
    if (second_join)
        join(q2, q1, e2);
    OK(add(q1, buffer[1], buffer[2]));
    if (!second_join)
        join(q2, q1, e2);
    OK(ops->queues->capture_end(device, q1, &r));
    return r;
}

static int count_wrong(dlc_captured_graph *r) {
    int wrong = 0;
    for (int i = 0; i < RUNS; i++) {
        fixture_set(buffer[0], 1);
        fixture_set(buffer[1], 10);
        fixture_set(buffer[2], 100);
        OK(ops->queues->graph_launch(device, q2, r));
        OK(ops->queues->queue_sync(device, q2));
        ck_assert(fixture_value(buffer[1]) == 12);
        wrong += fixture_value(buffer[2]) != 114;
    }
    return wrong;
}

TEST(two_queues_are_captured) {
    dlc_captured_graph *r = capture_two(1);
    ck_assert_int_eq(count_wrong(r), 0);
    ops->queues->graph_close(device, r);
}

/* Without a dependency steps run in any order. */
TEST(missing_dependencies_are_seen) {
    dlc_captured_graph *r = capture_two(0);
    int wrong = count_wrong(r);
    ck_assert(wrong > 0 && wrong < RUNS);
    ops->queues->graph_close(device, r);
}

/* Queues are usable afterwards. */
TEST(queues_go_on) {
    dlc_captured_graph *r = capture_two(1);
    fixture_set(buffer[3], 1);
    OK(twice(q2, buffer[3]));
    OK(ops->queues->queue_sync(device, q2));
    ck_assert(fixture_value(buffer[3]) == 2);
    int done;
    FAILS(ops->queues->event_done(device, e1, &done), DLC_ERR_DEVICE,
          "part of a captured graph");
    FAILS(ops->queues->event_sync(device, e1), DLC_ERR_DEVICE,
          "part of a captured graph");
    FAILS(ops->queues->event_wait(device, q2, e1), DLC_ERR_DEVICE, "that ended");
    join(q1, q2, e1);
    OK(ops->queues->event_sync(device, e1));
    ops->queues->graph_close(device, r);
}

/* Memory that work points to is read at each launch. */
TEST(reads_memory_at_each_launch) {
    dlc_captured_graph *r = NULL;
    dlc_update update = test_subtraction();
    dlc_rule_values values = update.values;
    update.values_at = (const dlc_rule_values *)(const void *)buffer[3];
    fixture_set(buffer[0], 1); /* gradient */
    fixture_set(buffer[2], 0); /* weight */
    OK(ops->queues->capture_begin(device, q1));
    OK(ops->update(device, q1, FIXTURE_FLOATS, &update, buffer[0], NULL, buffer[2]));
    OK(ops->queues->capture_end(device, q1, &r));
    float want = 0;
    for (int i = 1; i <= 5; i++) {
        values.learning_rate = (float)i;
        OK(ops->copy(device, NULL, buffer[3], &values, sizeof values));
        OK(ops->queues->graph_launch(device, q1, r));
        OK(ops->queues->queue_sync(device, q1));
        want -= (float)i;
        ck_assert(fixture_value(buffer[2]) == want);
    }
    ops->queues->graph_close(device, r);
}

/* ---- Errors -------------------------------------------------------------- */

static dlc_status call_sync(void) {
    return ops->queues->queue_sync(device, q2);
}

static dlc_status call_event_sync(void) {
    return ops->queues->event_sync(device, e2);
}

static dlc_status call_without_queue(void) {
    return ops->fill(device, NULL, buffer[0], 0, BYTES);
}

static dlc_status call_alloc(void) {
    dlc_memory memory = {.size = sizeof memory};
    return ops->alloc(device, 64, 0, &memory);
}

static dlc_status wait_from_outside(void) {
    OK(ops->queues->event_record(device, q2,
                                 e2)); /* outside of the capture: done at once */
    return ops->queues->event_wait(device, q1, e2);
}

static const struct {
    dlc_status (*call)(void);
    const char *words;
} blocking[] = {
    {call_sync, "queue_sync"},
    {call_event_sync, "event_sync"},
    {call_without_queue, "without a queue"},
    {call_alloc, "alloc"},
    {wait_from_outside, "from outside"},
};

TEST_EACH(blocking_calls_invalidate_it, COUNT(blocking)) {
    dlc_captured_graph *r = NULL;
    OK(ops->queues->capture_begin(device, q1));
    OK(twice(q1, buffer[0]));
    FAILS(blocking[_i].call(), DLC_ERR_DEVICE, blocking[_i].words);
    OK(twice(q1, buffer[0]));
    FAILS(ops->queues->capture_end(device, q1, &r), DLC_ERR_DEVICE, blocking[_i].words);
    ck_assert_ptr_null(r);
    /* Nothing of it has run. */
    fixture_set(buffer[0], 1);
    OK(ops->queues->capture_begin(device, q1));
    OK(twice(q1, buffer[0]));
    OK(ops->queues->capture_end(device, q1, &r));
    OK(ops->queues->graph_launch(device, q1, r));
    OK(ops->queues->queue_sync(device, q1));
    ck_assert(fixture_value(buffer[0]) == 2);
    ops->queues->graph_close(device, r);
}

TEST(a_queue_that_is_not_joined) {
    dlc_captured_graph *r = NULL;
    OK(ops->queues->capture_begin(device, q1));
    join(q1, q2, e1);
    OK(twice(q2, buffer[0]));
    join(q2, q1, e2);
    OK(twice(q2, buffer[0])); /* after it was joined */
    FAILS(ops->queues->capture_end(device, q1, &r), DLC_ERR_DEVICE, "was not joined");
}

TEST(discarded) {
    OK(ops->queues->capture_begin(device, q1));
    OK(twice(q1, buffer[0]));
    (void)call_sync();
    OK(ops->queues->capture_end(device, q1, NULL));
    OK(ops->queues->queue_sync(device, q1));
    FAILS(ops->queues->capture_end(device, q1, NULL), DLC_ERR_DEVICE, "no capture");
}

TEST(one_at_a_time) {
    dlc_captured_graph *r = NULL;
    OK(ops->queues->capture_begin(device, q1));
    FAILS(ops->queues->capture_begin(device, q2), DLC_ERR_DEVICE, "another capture");
    OK(twice(q1, buffer[0]));
    FAILS(ops->queues->capture_end(device, q2, &r), DLC_ERR_DEVICE, "no capture");
    OK(ops->queues->capture_end(device, q1, &r));
    OK(ops->queues->graph_launch(device, q1, r));
    OK(ops->queues->graph_launch(device, q2, r)); /* after the other launch */
    OK(ops->queues->queue_sync(device, q1));
    OK(ops->queues->queue_sync(device, q2));
    ops->queues->graph_close(device, r);
}
