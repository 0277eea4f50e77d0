/* Queues and events of the device "async": work is asynchronous, and waiting for it
 * works. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "support/test.h"
#include "support/updates.h"

enum { ROUNDS = 300, BYTES = FIXTURE_FLOATS * sizeof(float) };

TEST_SETTINGS(.timeout = 60, .setup = fixture_setup, .teardown = fixture_teardown);

TEST(memory_is_out_of_reach) {
    for (int i = 0; i < FIXTURE_BUFFERS; i++)
        ck_assert((uintptr_t)buffer[i] >> 62 == 1);
    ck_assert((uintptr_t)host_floats >> 62 == 0);
    ck_assert(fixture_value(buffer[0]) == 0);
    fixture_set(buffer[0], 3);
    ck_assert(fixture_value(buffer[0]) == 3);
    OK(ops->fill(device, NULL, buffer[0], 0, BYTES));
    ck_assert(fixture_value(buffer[0]) == 0);
}

TEST(kernels_take_device_memory_only) {
    float on_host[8] = {0};
    const float *sources[2] = {buffer[0], on_host};
    double sums[1];
    dlc_update update = test_subtraction(), other = test_update(TEST_MOMENTUM);
    update.values_at = (const dlc_rule_values *)(const void *)on_host;
    FAILS(ops->scale(device, q1, 8, 2, on_host), DLC_ERR_DEVICE,
          "not memory of device");
    FAILS(ops->add(device, q1, 8, on_host, buffer[0]), DLC_ERR_DEVICE, "add");
    FAILS(ops->add(device, NULL, 8, buffer[0], on_host), DLC_ERR_DEVICE, "add");
    FAILS(ops->sum(device, q1, 8, sources, 2, buffer[0]), DLC_ERR_DEVICE, "sum");
    FAILS(ops->square_sums(device, q1, 8, on_host, (double *)(void *)buffer[0]),
          DLC_ERR_DEVICE, "square_sums");
    FAILS(ops->total(device, q1, 1, (double *)(void *)buffer[0], sums), DLC_ERR_DEVICE,
          "total");
    FAILS(ops->update(device, q1, 8, &update, buffer[0], NULL, buffer[2]),
          DLC_ERR_DEVICE, "update");
    FAILS(
        ops->update(device, q1, 8, &other, buffer[0], (float *[]){on_host}, buffer[2]),
        DLC_ERR_DEVICE, "update");
    OK(ops->queues->queue_sync(device, q1));
}

#ifndef __SANITIZE_THREAD__ /* races on purpose */
/* Host memory is read when the copy runs, and not when it is queued. */
TEST(copies_read_when_they_run) {
    int late = 0;
    for (int i = 0; i < ROUNDS; i++) {
        float value = 1;
        OK(ops->copy(device, q1, buffer[0], &value, sizeof value));
        *(volatile float *)&value = 0;
        OK(ops->queues->queue_sync(device, q1));
        OK(ops->copy(device, NULL, &value, buffer[0], sizeof value));
        late += value == 0;
    }
    ck_assert_int_gt(late, 0);
}
#endif

/* Arrays of addresses are read during the call. */
TEST(arguments_are_read_at_once) {
    fixture_set(buffer[0], 1);
    fixture_set(buffer[1], 2);
    for (int i = 0; i < ROUNDS; i++) {
        const float *sources[2] = {buffer[0], buffer[1]};
        float *dsts[2] = {buffer[2], buffer[3]};
        float *slots[1] = {buffer[1]};
        dlc_update update = test_update(TEST_MOMENTUM);
        update.values.learning_rate = 0;
        update.values.own[0] = 0;
        OK(ops->fill(device, q1, buffer[2], 0, BYTES));
        OK(ops->sum_to(device, q1, FIXTURE_FLOATS, sources, 2, dsts, 2));
        OK(ops->update(device, q1, FIXTURE_FLOATS, &update, buffer[0], slots,
                       buffer[2]));
        memset(sources, 0, sizeof sources);
        memset(dsts, 0, sizeof dsts);
        memset(slots, 0, sizeof slots);
        update.values.learning_rate = NAN;
        OK(ops->sum(device, q1, FIXTURE_FLOATS, (const float *[]){buffer[2], buffer[3]},
                    2, buffer[3]));
        OK(ops->queues->queue_sync(device, q1));
        ck_assert(fixture_value(buffer[3]) == 6);
        fixture_set(buffer[1], 2);
    }
}

/* Orders the work of two queues by an event; without it, the order varies. */
static int count_wrong(int wait) {
    int wrong = 0;
    for (int i = 0; i < ROUNDS; i++) {
        OK(ops->fill(device, NULL, buffer[0], 0, BYTES));
        OK(ops->fill(device, q1, buffer[0], i % 100 + 1, 16));
        OK(ops->queues->event_record(device, q1, e1));
        if (wait)
            OK(ops->queues->event_wait(device, q2, e1));
        OK(ops->copy(device, q2, buffer[1], buffer[0], 16));
        OK(ops->queues->event_record(device, q2, e2));
        OK(ops->queues->event_sync(device, e2));
        unsigned char first;
        OK(ops->copy(device, NULL, &first, buffer[1], 1));
        wrong += first != i % 100 + 1;
        OK(ops->queues->queue_sync(device, q1));
    }
    return wrong;
}

TEST(events_put_queues_in_order) {
    ck_assert_int_eq(count_wrong(1), 0);
}

#ifndef __SANITIZE_THREAD__
TEST(what_is_not_waited_for_is_seen) {
    ck_assert_int_gt(count_wrong(0), 0);
}
#endif

TEST(events_become_done) {
    int done = 0, early = 0;
    OK(ops->queues->event_done(device, e1, &done));
    ck_assert_int_eq(done, 1); /* never recorded */
    OK(ops->queues->event_sync(device, e1));
    OK(ops->queues->event_wait(device, q1, e1));
    for (int i = 0; i < ROUNDS; i++) {
        OK(ops->scale(device, q1, FIXTURE_FLOATS, 1, buffer[0]));
        OK(ops->queues->event_record(device, q1, e1));
        OK(ops->queues->event_done(device, e1, &done));
        early += !done;
        OK(ops->queues->event_sync(device, e1));
        OK(ops->queues->event_done(device, e1, &done));
        ck_assert_int_eq(done, 1);
    }
    ck_assert_int_gt(early, 0);
    OK(ops->queues->event_record(device, NULL, e1));
    OK(ops->queues->event_done(device, e1, &done));
    ck_assert_int_eq(done, 1);
}

/* A wait refers to the last event_record before it, and not to a later one. */
TEST(events_are_recorded_again) {
    for (int i = 0; i < ROUNDS; i++) {
        OK(ops->fill(device, NULL, buffer[0], 0, BYTES));
        for (int k = 0; k < 4; k++)
            OK(ops->scale(device, q1, FIXTURE_FLOATS, 1, buffer[3]));
        OK(ops->fill(device, q1, buffer[0], 7, 1));
        OK(ops->queues->event_record(device, q1, e1));
        OK(ops->queues->event_wait(device, q2, e1));
        OK(ops->queues->event_record(device, NULL, e1)); /* done at once */
        OK(ops->copy(device, q2, buffer[1], buffer[0], 1));
        OK(ops->queues->queue_sync(device, q2));
        unsigned char first;
        OK(ops->copy(device, NULL, &first, buffer[1], 1));
        ck_assert_int_eq(first, 7);
    }
}

TEST(an_event_may_go_while_waited_for) {
    for (int i = 0; i < 50; i++) {
        dlc_event *event;
        OK(ops->queues->event_open(device, &event));
        OK(ops->scale(device, q1, FIXTURE_FLOATS, 1, buffer[0]));
        OK(ops->queues->event_record(device, q1, event));
        OK(ops->queues->event_wait(device, q2, event));
        ops->queues->event_close(device, event);
    }
    OK(ops->queues->queue_sync(device, q2));
}

/* Failing work: the queue reports it at the next sync, and events complete
 * nevertheless. */
TEST(errors_come_at_sync) {
    fixture_set(buffer[0], 5);
    OK(ops->convert(device, q1, 4, DLC_BF16, buffer[0], DLC_F64, buffer[1]));
    OK(ops->fill(device, q1, buffer[0], 0, BYTES));
    OK(ops->queues->event_record(device, q1, e1));
    OK(ops->queues->event_sync(device, e1));
    FAILS(ops->queues->queue_sync(device, q1), DLC_ERR_UNSUPPORTED, "on a queue");
    ck_assert(fixture_value(buffer[0]) == 5);
    OK(ops->queues->queue_sync(device, q2));
}

/* Sums and totals are work on the queue. */
TEST(squares_are_queued) {
    const size_t pieces = (FIXTURE_FLOATS + DLC_SQUARE_PIECE - 1) / DLC_SQUARE_PIECE;
    double *sums = (double *)(void *)buffer[1], *total = (double *)(void *)buffer[2];
    ck_assert_uint_le(pieces * sizeof *sums, BYTES);
    for (int i = 1; i < 50; i++) {
        double square = 0;
        float value = (float)i;
        for (int k = 0; k < FIXTURE_FLOATS; k++)
            host_floats[k] = value;
        OK(ops->copy(device, q1, buffer[0], host_floats, BYTES));
        OK(ops->square_sums(device, q1, FIXTURE_FLOATS, buffer[0], sums));
        OK(ops->total(device, q1, pieces, sums, total));
        OK(ops->queues->queue_sync(device, q1));
        OK(ops->copy(device, NULL, &square, total, sizeof square));
        ck_assert(square == (double)FIXTURE_FLOATS * i * i);
    }
}

TEST(closing_does_all_work_first) {
    dlc_queue *queue;
    OK(ops->queues->queue_open(device, &queue));
    fixture_set(buffer[0], 1);
    for (int i = 0; i < 10; i++)
        OK(ops->scale(device, queue, FIXTURE_FLOATS, 2, buffer[0]));
    ops->queues->queue_close(device, queue);
    ck_assert(fixture_value(buffer[0]) == 1024);
}

TEST(memory_is_shared) {
    dlc_memory mine = {.size = sizeof mine}, theirs = {.size = sizeof theirs};
    dlc_ipc_handle share = {.size = sizeof share};
    OK(ops->alloc(device, BYTES, DLC_MEM_SHARED, &mine));
    OK(ops->ipc_export(device, &mine, &share));
    OK(ops->ipc_import(device, &share, &theirs));
    ck_assert_ptr_ne(mine.base, theirs.base);
    fixture_set(mine.base, 4);
    OK(ops->add(device, q1, FIXTURE_FLOATS, mine.base, theirs.base));
    OK(ops->queues->queue_sync(device, q1));
    ck_assert(fixture_value(mine.base) == 8);
    ops->free(device, &theirs);
    ops->free(device, &mine);
}

/* A thread with a queue of its own. */
static void *work_alone(void *context) {
    float *mine = context;
    dlc_queue *queue;
    dlc_event *event;
    OK(ops->queues->queue_open(device, &queue));
    OK(ops->queues->event_open(device, &event));
    for (int i = 0; i < ROUNDS; i++) {
        OK(ops->add(device, queue, FIXTURE_FLOATS, mine, mine));
        OK(ops->scale(device, queue, FIXTURE_FLOATS, 0.5f, mine));
        OK(ops->queues->event_record(device, queue, event));
        OK(ops->queues->event_sync(device, event));
    }
    ops->queues->event_close(device, event);
    ops->queues->queue_close(device, queue);
    return NULL;
}

TEST(threads_work_side_by_side) {
    pthread_t thread[FIXTURE_BUFFERS];
    for (int i = 0; i < FIXTURE_BUFFERS; i++) {
        fixture_set(buffer[i], (float)i + 1);
        ck_assert_int_eq(pthread_create(&thread[i], NULL, work_alone, buffer[i]), 0);
    }
    for (int i = 0; i < FIXTURE_BUFFERS; i++) {
        ck_assert_int_eq(pthread_join(thread[i], NULL), 0);
        ck_assert(fixture_value(buffer[i]) == (float)i + 1);
    }
}
