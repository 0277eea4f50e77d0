/* The nccl transport: what its collectives and messages do. */
#include <stdio.h>
#include <unistd.h>

#include "nccl_fixture.h"
#include "support/test.h"

static const size_t counts[] = {0, 1, 2, 3, 5, 12, 1000, 1001, 8191, FIXTURE_FLOATS};
#define FOR_COUNTS(count) \
    for (size_t i_ = 0, count; \
         i_ < sizeof counts / sizeof *counts && ((count = counts[i_]), 1); i_++)

static float values[FIXTURE_FLOATS], got[FIXTURE_FLOATS];

static float value(int rank, size_t i) {
    return (float)(rank * 10 + (int)(i % 100));
}

static float total(const nccl_fixture *r, size_t i) {
    float sum = 0;
    for (int k = 0; k < r->rank->ranks; k++)
        sum += value(k, i);
    return sum;
}

static void start(const nccl_fixture *r, size_t count) {
    for (size_t i = 0; i < count; i++)
        values[i] = value(r->rank->rank, i);
    fixture_put(r, values, count);
}

static size_t slice(const nccl_fixture *r, size_t count, int rank) {
    return count * (size_t)rank / (size_t)r->rank->ranks;
}

/* Elements [begin, end) are reduced. */
static void check_sums(const nccl_fixture *r, size_t begin, size_t end) {
    fixture_get(r, got, end);
    for (size_t i = begin; i < end; i++)
        RANK_CHECK(r->rank, got[i] == total(r, i));
}

/* The right slice in the right place of everybody. */
static void check_gathered(const nccl_fixture *r, size_t count) {
    fixture_get(r, got, count);
    for (int k = 0; k < r->rank->ranks; k++)
        for (size_t i = slice(r, count, k); i < slice(r, count, k + 1); i++)
            RANK_CHECK(r->rank, got[i] == value(k, i));
}

/* ---- What blocks ------------------------------------------------------------- */

static void sums_and_slices(test_rank *rank, void *context) {
    (void)context;
    nccl_fixture r;
    fixture_open(&r, rank);
    int me = rank->rank;
    FOR_COUNTS(count) {
        start(&r, count);
        RANK_OK(rank, r.ops->all_reduce(r.endpoint, r.buffer, count));
        check_sums(&r, 0, count);
        start(&r, count);
        RANK_OK(rank, r.ops->reduce_scatter(r.endpoint, r.buffer, count));
        check_sums(&r, slice(&r, count, me), slice(&r, count, me + 1));
        start(&r, count);
        RANK_OK(rank, r.ops->all_gather(r.endpoint, r.buffer, count));
        check_gathered(&r, count);
        for (int root = 0; root < rank->ranks; root++) {
            start(&r, count);
            RANK_OK(rank, r.ops->broadcast(r.endpoint, root, r.buffer, 4 * count));
            fixture_get(&r, got, count);
            for (size_t i = 0; i < count; i++)
                RANK_CHECK(rank, got[i] == value(root, i));
        }
    }
    /* NCCL's own wherever the slices are equal. */
    int equal = 0;
    FOR_COUNTS(count) {
        equal += count > 0 && count % (size_t)rank->ranks == 0;
    }
    RANK_CHECK(rank, atomic_load(&board->reduce_scatters[me]) == equal);
    RANK_CHECK(rank, atomic_load(&board->all_gathers[me]) == equal);
    RANK_CHECK(rank, atomic_load(&board->reduces[me]) > 0 || equal == 9);
    fixture_close(&r);
    RANK_CHECK(rank, atomic_load(&board->aborted[me]) == 0);
    RANK_CHECK(rank, atomic_load(&board->destroyed[me]) == 1);
}

TEST_SETTINGS(.timeout = 120);

TEST_RANGE(collectives, 2, FAKE_RANKS + 1) {
    fixture_run(_i, sums_and_slices);
}

static void with_patience(test_rank *rank, void *context) {
    if (rank->rank == 0)
        atomic_store(&board->polls, 7);
    ranks_barrier(rank);
    sums_and_slices(rank, context);
}

/* NCCL answers "in progress" to everything. */
TEST_RANGE(collectives_in_progress, 2, FAKE_RANKS + 1) {
    fixture_run(_i, with_patience);
}

/* ---- On a queue -------------------------------------------------------------- */

static void by_queue(test_rank *rank, void *context) {
    (void)context;
    nccl_fixture r;
    dlc_queue *queue;
    fixture_open(&r, rank);
    RANK_OK(rank, r.device_ops->queues->queue_open(r.device, &queue));
    FOR_COUNTS(count) {
        start(&r, count);
        RANK_OK(rank,
                r.ops->queues->reduce_scatter(r.endpoint, queue, r.buffer, count));
        RANK_OK(rank, r.ops->queues->all_gather(r.endpoint, queue, r.buffer, count));
        RANK_OK(rank, r.ops->queues->poll(r.endpoint));
        RANK_OK(rank, r.device_ops->queues->queue_sync(r.device, queue));
        check_sums(&r, 0, count);
        start(&r, count);
        RANK_OK(rank, r.ops->queues->all_reduce(r.endpoint, queue, r.buffer, count));
        RANK_OK(rank, r.device_ops->scale(r.device, queue, count, 1, r.buffer));
        RANK_OK(rank, r.device_ops->queues->queue_sync(r.device, queue));
        check_sums(&r, 0, count);
    }
    r.device_ops->queues->queue_close(r.device, queue);
    fixture_close(&r);
}

TEST_RANGE(work_for_a_queue, 2, FAKE_RANKS + 1) {
    fixture_run(_i, by_queue);
}

/* The next call comes at once: only a settled communicator takes it. */
static void by_queue_with_patience(test_rank *rank, void *context) {
    if (rank->rank == 0)
        atomic_store(&board->polls, 7);
    ranks_barrier(rank);
    by_queue(rank, context);
}

TEST(work_for_a_queue_in_progress) {
    fixture_run(3, by_queue_with_patience);
}

static void recorded(test_rank *rank, void *context) {
    (void)context;
    nccl_fixture r;
    dlc_queue *queue;
    dlc_captured_graph *captured = NULL;
    fixture_open(&r, rank);
    RANK_OK(rank, r.device_ops->queues->queue_open(r.device, &queue));
    RANK_OK(rank, r.device_ops->queues->capture_begin(r.device, queue));
    RANK_OK(rank, r.ops->queues->reduce_scatter(r.endpoint, queue, r.buffer, 1001));
    RANK_OK(rank, r.ops->queues->all_gather(r.endpoint, queue, r.buffer, 1001));
    RANK_OK(rank, r.device_ops->queues->capture_end(r.device, queue, &captured));
    for (int i = 0; i < 5; i++) {
        start(&r, 1001);
        RANK_OK(rank, r.device_ops->queues->graph_launch(r.device, queue, captured));
        RANK_OK(rank, r.device_ops->queues->queue_sync(r.device, queue));
        check_sums(&r, 0, 1001);
    }
    r.device_ops->queues->graph_close(r.device, captured);
    r.device_ops->queues->queue_close(r.device, queue);
    fixture_close(&r);
}

TEST(work_is_recorded) {
    fixture_run(3, recorded);
}

/* ---- Messages ---------------------------------------------------------------- */

/* Everybody to everybody, in step; `with_test` looks instead of waiting. */
static void all_to_all(nccl_fixture *r, size_t count, int with_test) {
    test_rank *rank = r->rank;
    dlc_request *request[2 * FAKE_RANKS];
    int n = 0, me = rank->rank;
    for (int i = 1; i < rank->ranks; i++) {
        int from = (me + i) % rank->ranks;
        RANK_OK(rank, r->ops->recv(r->endpoint, from, 7,
                                   count ? r->buffer + 1000 * (from + 1) : NULL,
                                   count * sizeof(float), &request[n++]));
    }
    for (int i = 1; i < rank->ranks; i++)
        RANK_OK(rank, r->ops->send(r->endpoint, (me + i) % rank->ranks, 7,
                                   count ? r->buffer : NULL, count * sizeof(float),
                                   &request[n++]));
    for (int i = 0; i < n; i++) {
        int done = !with_test;
        if (!with_test)
            RANK_OK(rank, r->ops->wait(r->endpoint, request[i]));
        while (!done)
            RANK_OK(rank, r->ops->test(r->endpoint, request[i], &done));
    }
}

static void messages_in_step(test_rank *rank, void *context) {
    (void)context;
    nccl_fixture r;
    fixture_open(&r, rank);
    for (int round = 0; round < 10; round++) {
        size_t count = (size_t)round * 100;
        start(&r, count);
        all_to_all(&r, count, round % 2);
        fixture_get(&r, got, FIXTURE_FLOATS);
        for (int k = 0; k < rank->ranks; k++)
            for (size_t i = 0; k != rank->rank && i < count; i++)
                RANK_CHECK(rank, got[(size_t)(1000 * (k + 1)) + i] == value(k, i));
    }
    fixture_close(&r);
}

TEST_RANGE(messages, 2, FAKE_RANKS + 1) {
    fixture_run(_i, messages_in_step);
}

/* Messages of no bytes join the ranks: nobody is through before the last has come. */
static void nobody_early(test_rank *rank, void *context) {
    (void)context;
    nccl_fixture r;
    fixture_open(&r, rank);
    atomic_int *come = (atomic_int *)(void *)rank->shared;
    for (int round = 1; round <= 20; round++) {
        usleep((useconds_t)(rank->rank * 300));
        atomic_fetch_add(come, 1);
        all_to_all(&r, 0, 0);
        RANK_CHECK(rank, atomic_load(come) >= round * rank->ranks);
    }
    fixture_close(&r);
}

TEST(empty_messages) {
    fixture_run(3, nobody_early);
}

/* Several to one peer, in order, and some of them given while others wait. */
static void in_order(test_rank *rank, void *context) {
    (void)context;
    nccl_fixture r;
    dlc_request *request[6];
    fixture_open(&r, rank);
    for (int i = 0; i < 12; i++)
        values[i] = (float)(100 * rank->rank + i);
    fixture_put(&r, values, 12);
    for (int i = 0; i < 3; i++)
        if (rank->rank == 0)
            RANK_OK(rank, r.ops->send(r.endpoint, 1, (dlc_tag)i, r.buffer + i, 4,
                                      &request[i]));
        else
            RANK_OK(rank, r.ops->recv(r.endpoint, 0, (dlc_tag)i, r.buffer + 6 + i, 4,
                                      &request[i]));
    RANK_OK(rank, r.ops->wait(r.endpoint, request[2]));
    RANK_OK(rank, r.ops->wait(r.endpoint, request[0]));
    RANK_OK(rank, r.ops->wait(r.endpoint, request[1]));
    fixture_get(&r, got, 12);
    for (int i = 0; rank->rank == 1 && i < 3; i++)
        RANK_CHECK(rank, got[6 + i] == (float)i);
    fixture_close(&r);
}

TEST(messages_keep_their_order) {
    fixture_run(2, in_order);
}

/* ---- Memory, words ----------------------------------------------------------- */

static void attached(test_rank *rank, void *context) {
    (void)context;
    nccl_fixture r;
    char text[128] = "";
    fixture_open(&r, rank);
    int me = rank->rank;
    RANK_OK(rank, r.ops->describe(r.endpoint, text, sizeof text));
    RANK_CHECK(rank, strcmp(text, "NCCL 2.28.9, memory not registered") == 0);
    atomic_store(&board->no_memory, 1);
    ranks_barrier(rank);
    RANK_OK(rank, r.ops->register_buffer(r.endpoint, &r.memory));
    RANK_CHECK(rank, atomic_load(&board->registered[me]) == 0);
    ranks_barrier(rank);
    atomic_store(&board->no_memory, 0);
    ranks_barrier(rank);
    RANK_OK(rank, r.ops->register_buffer(r.endpoint, &r.memory));
    RANK_CHECK(rank, atomic_load(&board->registered[me]) == 1);
    RANK_OK(rank, r.ops->describe(r.endpoint, text, sizeof text));
    RANK_CHECK(rank, strcmp(text, "NCCL 2.28.9, registered memory") == 0);
    fixture_close(&r);
    RANK_CHECK(rank, atomic_load(&board->registered[me]) == 0);
}

TEST(memory_is_registered) {
    fixture_run(2, attached);
}
