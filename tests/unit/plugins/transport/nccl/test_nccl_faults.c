/* The nccl transport when something goes wrong: nobody hangs, everybody says why, the
 * communicator is aborted. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "nccl_fixture.h"
#include "support/test.h"

static int aborted(const test_rank *rank) {
    return atomic_load(&board->aborted[rank->rank]);
}

/* ---- Starting ---------------------------------------------------------------- */

/* The other rank agrees, and then is gone before NCCL starts. */
static void alone(test_rank *rank, void *context) {
    (void)context;
    nccl_fixture r;
    fixture_begin(&r, rank);
    if (rank->rank == 1) {
        char card[FIXTURE_FLOATS], cards[2 * FIXTURE_FLOATS];
        memset(card, 0, sizeof card);
        RANK_OK(rank, ranks_all_gather(rank, card, 4, cards));
        usleep(100000);
        ranks_end(rank);
    } else {
        /* What it tells is what all tell: taken from its own card. */
        r.args.ranks = 2;
        RANK_CHECK(rank, r.ops->open(&r.args, &r.endpoint) == DLC_ERR_PEER);
        RANK_CHECK(rank, r.endpoint == NULL);
    }
    fixture_close(&r);
}

TEST_SETTINGS(.timeout = 120);

TEST(a_rank_of_another_kind) {
    fixture_run(2, alone);
}

/* The job's allgather for one rank that plays two: the other one never starts. */
static dlc_status mirror(void *job, const void *mine, size_t bytes, void *all) {
    (void)job;
    memcpy(all, mine, bytes);
    memcpy((char *)all + bytes, mine, bytes);
    return DLC_OK;
}

static int looks;

static dlc_status check_soon(void *job) {
    (void)job;
    return ++looks < 50 ? DLC_OK : dlc_fail(DLC_ERR_PEER, "rank 1 was lost");
}

static void never_starts(test_rank *rank, void *context) {
    (void)context;
    nccl_fixture r;
    fixture_begin(&r, rank);
    r.place[1] = r.place[0];
    r.place[1].device_index = 1;
    r.args.ranks = 2;
    r.args.oob_all_gather = mirror;
    r.args.check = check_soon;
    RANK_FAILS(rank, r.ops->open(&r.args, &r.endpoint), DLC_ERR_PEER,
               "rank 1 was lost");
    RANK_CHECK(rank, aborted(rank) == 1);
    fixture_close(&r);
}

TEST(a_peer_that_never_starts) {
    fixture_run(1, never_starts);
}

static void without_id(test_rank *rank, void *context) {
    (void)context;
    nccl_fixture r;
    fixture_begin(&r, rank);
    atomic_store(&board->id_fails, 1);
    ranks_barrier(rank);
    RANK_FAILS(rank, r.ops->open(&r.args, &r.endpoint), DLC_ERR_UNAVAILABLE,
               "does not start on rank 0");
    fixture_close(&r);
}

TEST(rank_0_gets_no_id) {
    fixture_run(3, without_id);
}

static void other_version(test_rank *rank, void *context) {
    (void)context;
    nccl_fixture r;
    if (rank->rank == 2)
        setenv("FAKE_NCCL_VERSION", "22703", 1);
    fixture_begin(&r, rank);
    RANK_FAILS(rank, r.ops->open(&r.args, &r.endpoint), DLC_ERR_CONFIG,
               "rank 2 has NCCL 2.27.3, rank 0 has 2.28.9");
    fixture_close(&r);
}

TEST(versions_differ) {
    fixture_run(3, other_version);
}

static void one_gpu(test_rank *rank, void *context) {
    (void)context;
    nccl_fixture r;
    setenv("NCCL_HOSTID", "one", 1);
    fixture_begin(&r, rank);
    r.place[0].device_index = r.place[1].device_index = 3;
    RANK_FAILS(rank, r.ops->open(&r.args, &r.endpoint), DLC_ERR_CONFIG,
               "ranks 0 and 1 share a GPU and NCCL_HOSTID (one)");
    setenv("NCCL_HOSTID", rank->rank == 0 ? "one" : "two", 1);
    RANK_OK(rank, r.ops->open(&r.args, &r.endpoint));
    fixture_close(&r);
}

TEST(one_gpu_with_host_ids) {
    fixture_run(2, one_gpu);
}

/* ---- While it works ---------------------------------------------------------- */

/* From there on everything answers the same, and close is all that is left. */
static void is_over(const nccl_fixture *r, dlc_status status, const char *words) {
    test_rank *rank = r->rank;
    dlc_request *request;
    dlc_queue *queue;
    RANK_OK(rank, r->device_ops->queues->queue_open(r->device, &queue));
    RANK_FAILS(rank, r->ops->all_reduce(r->endpoint, r->buffer, 8), status, words);
    RANK_FAILS(rank, r->ops->broadcast(r->endpoint, 0, r->buffer, 8), status, words);
    RANK_FAILS(rank, r->ops->queues->all_gather(r->endpoint, queue, r->buffer, 8),
               status, words);
    RANK_FAILS(rank, r->ops->send(r->endpoint, 0, 1, r->buffer, 8, &request), status,
               words);
    RANK_FAILS(rank, r->ops->register_buffer(r->endpoint, &r->memory), status, words);
    RANK_FAILS(rank, r->ops->queues->poll(r->endpoint), status, words);
    RANK_CHECK(rank, aborted(rank) == 1);
    r->device_ops->queues->queue_close(r->device, queue);
}

static void breaks(test_rank *rank, void *context) {
    (void)context;
    nccl_fixture r;
    atomic_store(&board->fail_rank, 1 + 1);
    atomic_store(&board->fail_call, 3);
    fixture_open(&r, rank);
    for (int i = 0; i < 2; i++)
        RANK_OK(rank, r.ops->all_reduce(r.endpoint, r.buffer, 100));
    ranks_barrier(rank); /* or the end of the job meets a rank still in the second */
    if (rank->rank == 1) {
        RANK_FAILS(
            rank, r.ops->all_reduce(r.endpoint, r.buffer, 100), DLC_ERR_PEER,
            "rank 1: NCCL cannot all-reduce: remote process exited: the cable is "
            "out");
        is_over(&r, DLC_ERR_PEER, "the cable is out");
        ranks_end(rank); /* the job hears of it */
    } else {             /* hangs in it, until the job says so */
        RANK_FAILS(rank, r.ops->all_reduce(r.endpoint, r.buffer, 100), DLC_ERR_PEER,
                   "another rank is gone");
        is_over(&r, DLC_ERR_PEER, "failed before");
    }
    fixture_close(&r);
}

TEST(an_asynchronous_error) {
    fixture_run(3, breaks);
}

/* The same found by poll, where a queue hangs: the abort frees it. */
static void breaks_on_a_queue(test_rank *rank, void *context) {
    (void)context;
    nccl_fixture r;
    dlc_queue *queue;
    dlc_status status = DLC_OK;
    atomic_store(&board->fail_rank, 1);
    atomic_store(&board->fail_call, 2);
    fixture_open(&r, rank);
    RANK_OK(rank, r.device_ops->queues->queue_open(r.device, &queue));
    RANK_OK(rank, r.ops->queues->all_reduce(r.endpoint, queue, r.buffer, 100));
    RANK_OK(rank, r.ops->queues->all_reduce(r.endpoint, queue, r.buffer, 100));
    while (status == DLC_OK) {
        usleep(1000);
        status = r.ops->queues->poll(r.endpoint);
        if (status != DLC_OK && rank->rank == 0)
            ranks_end(rank);
    }
    RANK_CHECK(rank, status == DLC_ERR_PEER);
    if (rank->rank == 0)
        RANK_CHECK(rank, strstr(dlc_detail(), "the cable is out") != NULL);
    RANK_OK(rank, r.device_ops->queues->queue_sync(r.device, queue));
    RANK_CHECK(rank, aborted(rank) == 1);
    r.device_ops->queues->queue_close(r.device, queue);
    fixture_close(&r);
}

TEST(an_error_on_a_queue) {
    fixture_run(2, breaks_on_a_queue);
}

static void lost(test_rank *rank, void *context) {
    (void)context;
    nccl_fixture r;
    dlc_request *request;
    fixture_open(&r, rank);
    if (rank->rank == 1) {
        usleep(50000);
        ranks_end(rank);
    } else if (rank->rank == 0) {
        RANK_FAILS(rank, r.ops->reduce_scatter(r.endpoint, r.buffer, 7), DLC_ERR_PEER,
                   "another rank is gone");
        is_over(&r, DLC_ERR_PEER, "failed before");
    } else {
        RANK_OK(rank, r.ops->recv(r.endpoint, 1, 1, r.buffer, 64, &request));
        RANK_FAILS(rank, r.ops->wait(r.endpoint, request), DLC_ERR_PEER,
                   "another rank is gone");
    }
    fixture_close(&r);
}

TEST(a_peer_that_is_lost) {
    fixture_run(3, lost);
}

/* ---- Closing ----------------------------------------------------------------- */

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* One rank closes with messages in flight; the other closes only later. */
static void closes_alone(test_rank *rank, void *context) {
    (void)context;
    nccl_fixture r;
    dlc_request *request;
    fixture_open(&r, rank);
    double since = seconds();
    if (rank->rank == 0) {
        RANK_OK(rank, r.ops->recv(r.endpoint, 1, 1, r.buffer, 64, &request));
        int done = 0;
        RANK_OK(rank, r.ops->test(r.endpoint, request, &done));
        RANK_CHECK(rank, !done);
    }
    fixture_close(&r);
    RANK_CHECK(rank, aborted(rank) == 1); /* rank 1 waited for rank 0 to finish */
    RANK_CHECK(rank, seconds() - since < 30);
}

TEST(closing_does_not_wait) {
    fixture_run(2, closes_alone);
}
