/* Tests communicators (core/comm/collectives.c): each collective gives the same bits
 * for any count and number of ranks, by the transport's own calls or built from
 * messages. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/slice.h"
#include "base/status.h"
#include "comm/comm.h"
#include "comm/team.h"
#include "config/config.h"
#include "discrete_device.h"
#include "support/plugins.h"
#include "support/ranks.h"
#include "support/reference.h"
#include "support/sanitized.h"
#include "support/test.h"

static const int rank_counts[] = {1, 2, 3, 4, 5, 8};
enum { COUNTS = SANITIZED ? 3 : sizeof rank_counts / sizeof *rank_counts };
static const size_t counts[] = {0,    1,    2,    4,     7,     9,    100,
                                2047, 2048, 2049, 16384, 32768, 70001};
enum { SIZES = sizeof counts / sizeof *counts };
/* Three ranks reduce it in three whole chunks, and the last one in a fourth, of one. */
enum { SEVERAL_CHUNKS = 3 * 3 * (256 << 10) + 1, MOST = SEVERAL_CHUNKS };

/* What the communicator may use. */
enum { EVERYTHING, MESSAGES_ONLY, MACHINES, NOT_PAIRWISE, DISCRETE_DEVICE, MODES };

typedef struct fixture {
    test_rank *rank;
    dlc_comm *comm;
    const dlc_device_ops *ops;
    dlc_device *device;
    dlc_settings *settings;
    dlc_memory memory;
    float *host;  /* copied to and from device memory */
    int messages; /* of collectives */
} fixture;

static dlc_feature limited;

static const dlc_feature *limit(const dlc_feature *feature, int mode) {
    static dlc_transport_ops ops;
    memcpy(&ops, feature->ops, sizeof ops);
    limited = *feature;
    limited.ops = &ops;
    if (mode == MESSAGES_ONLY || mode == MACHINES)
        ops.size = offsetof(dlc_transport_ops, wait_any);
    if (mode == NOT_PAIRWISE)
        limited.caps &= ~(uint64_t)DLC_TRANSPORT_PAIRWISE;
    return &limited;
}

static void count_message(void *messages) {
    ++*(int *)messages;
}

static void fixture_open(fixture *b, test_rank *rank, int mode) {
    const dlc_feature *feature = plugin_find(DLC_KIND_TRANSPORT, "host-staged");
    dlc_rank_info rank_info[8];

    *b = (fixture){.rank = rank,
                   .ops = plugin_find(DLC_KIND_DEVICE, "cpu")->ops,
                   .settings = plugin_settings(feature, NULL),
                   .memory = {.size = sizeof b->memory}};
    if (mode == DISCRETE_DEVICE)
        b->ops = discrete_device(b->ops);
    for (int r = 0; r < rank->ranks; r++)
        rank_info[r] = (dlc_rank_info){.size = sizeof *rank_info,
                                       .node = mode == MACHINES ? r : 0};
    dlc_comm_args args = {
        .level = {{limit(feature, mode), b->settings, DLC_DOMAIN_JOB}},
        .levels = 1,
        .rank = rank->rank,
        .ranks = rank->ranks,
        .rank_info = rank_info,
        .device_ops = b->ops,
        .device = {.size = sizeof args.device, .threads = 2},
        .job = rank,
        .oob_all_gather = ranks_all_gather,
        .check = ranks_check,
        .on_progress = count_message,
        .progress_context = &b->messages};
    RANK_OK(rank, dlc_comm_open(&args, &b->comm));
    memset(rank_info, 0xff,
           sizeof rank_info); /* the communicator must have copied it */
    RANK_CHECK(rank, dlc_comm_rank(b->comm) == rank->rank);
    RANK_CHECK(rank, dlc_comm_ranks(b->comm) == rank->ranks);
    args.device.threads = 1;
    RANK_OK(rank, b->ops->open(&args.device, &b->device));
    RANK_OK(rank, b->ops->alloc(b->device, (MOST + 1) * sizeof(float), 0, &b->memory));
    b->host = dlc_alloc(MOST + 1, sizeof *b->host);
    RANK_CHECK(rank, b->host);
}

static void fixture_close(fixture *b) {
    b->ops->free(b->device, &b->memory);
    b->ops->close(b->device);
    dlc_comm_close(b->comm);
    dlc_settings_free(b->settings);
    dlc_free(b->host);
    plugins_close();
}

/* Copies this rank's numbers to device memory, and one more that must not change. */
static float *put(fixture *b, uint64_t salt, size_t count) {
    reference_fill(salt, b->rank->rank, count, b->host);
    b->host[count] = 42.0f;
    RANK_OK(b->rank, b->ops->copy(b->device, NULL, b->memory.base, b->host,
                                  (count + 1) * sizeof(float)));
    return b->memory.base;
}

static void get(fixture *b, size_t count) {
    memset(b->host, 0xff, (count + 1) * sizeof(float));
    RANK_OK(b->rank, b->ops->copy(b->device, NULL, b->host, b->memory.base,
                                  (count + 1) * sizeof(float)));
    RANK_CHECK(b->rank, b->host[count] == 42.0f);
}

static size_t wrong(const fixture *b, uint64_t salt, size_t begin, size_t end) {
    return reference_wrong(salt, b->rank->ranks, begin, end, b->host);
}

static void collectives_of(fixture *b, size_t count, uint64_t salt) {
    int me = b->rank->rank, ranks = b->rank->ranks;

    RANK_OK(b->rank, dlc_comm_all_reduce(b->comm, put(b, salt, count), count));
    get(b, count);
    RANK_CHECK(b->rank, wrong(b, salt, 0, count) == 0);

    RANK_OK(b->rank, dlc_comm_reduce_scatter(b->comm, put(b, salt + 1, count), count));
    get(b, count);
    RANK_CHECK(b->rank, wrong(b, salt + 1, dlc_slice(count, me, ranks),
                              dlc_slice(count, me + 1, ranks)) == 0);

    RANK_OK(b->rank, dlc_comm_all_gather(b->comm, put(b, salt + 2, count), count));
    get(b, count);
    for (int r = 0; r < ranks; r++)
        for (size_t i = dlc_slice(count, r, ranks); i < dlc_slice(count, r + 1, ranks);
             i++)
            RANK_CHECK(b->rank, b->host[i] == reference_value(salt + 2, r, i));

    int root = (int)(salt % (uint64_t)ranks);
    RANK_OK(b->rank, dlc_comm_broadcast(b->comm, root, put(b, salt + 3, count),
                                        count * sizeof(float)));
    get(b, count);
    for (size_t i = 0; i < count; i++)
        RANK_CHECK(b->rank, b->host[i] == reference_value(salt + 3, root, i));
}

static void every_count_body(test_rank *rank, void *context) {
    fixture b;
    fixture_open(&b, rank, *(const int *)context);
    for (size_t i = 0; i < SIZES; i++)
        collectives_of(&b, counts[i], 10 * i);
    fixture_close(&b);
}

TEST_SETTINGS(.timeout = 120);

TEST_EACH(every_count, COUNTS *MODES) {
    int mode = _i % MODES, ranks = rank_counts[_i / MODES];
    ck_assert_msg(ranks_run(ranks, 60, every_count_body, &mode) == 0,
                  "%d ranks, mode %d", ranks, mode);
}

static void several_chunks_body(test_rank *rank, void *context) {
    fixture b;
    fixture_open(&b, rank, *(const int *)context);
    for (uint64_t salt = 1; salt < 3; salt++) {
        b.messages = 0;
        collectives_of(&b, SEVERAL_CHUNKS, salt);
        /* In two reductions, of at least three chunks, to two ranks and from them. */
        RANK_CHECK(rank, b.messages >= 2 * 3 * (2 + 2));
    }
    fixture_close(&b);
}

TEST_EACH(several_chunks, 2) {
    int mode = _i ? MACHINES : MESSAGES_ONLY;
    ck_assert_int_eq(ranks_run(3, 20, several_chunks_body, &mode), 0);
}

/* No rank leaves a barrier before all have reached it. */
static void barrier_body(test_rank *rank, void *context) {
    volatile char *reached = rank->shared;
    dlc_random random = dlc_random_make(1, (uint64_t)rank->rank);
    fixture b;

    fixture_open(&b, rank, *(const int *)context);
    for (int round = 1; round <= 40; round++) {
        usleep((unsigned)dlc_random_below(&random, 500));
        __atomic_store_n(&reached[rank->rank], (char)round, __ATOMIC_SEQ_CST);
        RANK_OK(rank, dlc_comm_barrier(b.comm));
        for (int r = 0; r < rank->ranks; r++)
            RANK_CHECK(rank, __atomic_load_n(&reached[r], __ATOMIC_SEQ_CST) >= round);
    }
    fixture_close(&b);
}

TEST_EACH(barrier, COUNTS) {
    int mode = MESSAGES_ONLY;
    ck_assert_int_eq(ranks_run(rank_counts[_i], 60, barrier_body, &mode), 0);
}

/* After an error every call returns it, without calling the transport. */
static void cancelled_body(test_rank *rank, void *context) {
    fixture b;
    fixture_open(&b, rank, *(const int *)context);
    if (rank->rank == 0) {
        dlc_comm_cancel(b.comm);
        RANK_CHECK(rank, dlc_comm_all_reduce(b.comm, put(&b, 1, 5000), 5000) ==
                             DLC_ERR_CANCELLED);
        RANK_CHECK(rank, strstr(dlc_detail(), "cancelled") != NULL);
        RANK_CHECK(rank, dlc_comm_all_reduce(b.comm, b.memory.base, 5000) ==
                             DLC_ERR_CANCELLED);
        RANK_CHECK(rank, strstr(dlc_detail(), "earlier error") != NULL);
    }
    ranks_barrier(rank);
    fixture_close(&b);
}

TEST(cancelled) {
    for (int mode = 0; mode < MODES; mode++)
        ck_assert_int_eq(ranks_run(2, 30, cancelled_body, &mode), 0);
}

TEST(bad_arguments) {
    dlc_comm *comm = NULL;
    dlc_comm_args args = {.rank = 2, .ranks = 2};
    ck_assert_int_eq(dlc_comm_open(&args, &comm), DLC_ERR_INTERNAL);
    args.rank = 0;
    ck_assert_int_eq(dlc_comm_open(&args, &comm), DLC_ERR_INTERNAL);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "no transport"));
    args.ranks = 1;
    ck_assert_int_eq(dlc_comm_open(&args, &comm), DLC_OK);
    ck_assert_int_eq(dlc_comm_broadcast(comm, 1, NULL, 0), DLC_ERR_INTERNAL);
    ck_assert_int_eq(dlc_comm_broadcast(comm, 0, NULL, 100), DLC_OK);
    ck_assert_int_eq(dlc_comm_barrier(comm), DLC_OK);
    dlc_comm_close(comm);
    dlc_comm_close(NULL);
}

TEST(slices) {
    for (size_t count = 0; count < 200; count++)
        for (int ranks = 1; ranks < 20; ranks++) {
            ck_assert_uint_eq(dlc_slice(count, 0, ranks), 0);
            for (int r = 0; r <= ranks; r++)
                ck_assert_uint_eq(dlc_slice(count, r, ranks),
                                  count * (size_t)r / (size_t)ranks);
        }
    ck_assert_uint_eq(dlc_slice(SIZE_MAX, 2, 2), SIZE_MAX);
}
