/* Conformance of transports: stream-ordered collectives. Many in flight, in registered
 * and other memory, captured, and when a rank is lost. For a device with queues. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/random.h"
#include "base/status.h"
#include "registered.h"
#include "support/reference.h"
#include "support/test.h"

enum { ROOM = 130000, HOST = 1 << 20 /* floats */ };

/* A group with a queue, registered memory, other device memory, and host memory. */
typedef struct fixture {
    group g;
    dlc_queue *queue;
    dlc_event *event;
    dlc_memory arena, plain, host;
    size_t used; /* floats of `host` in use */
} fixture;

static void get_memory(fixture *b, size_t count, uint32_t flags, dlc_memory *memory) {
    *memory = (dlc_memory){.size = sizeof *memory};
    RANK_OK(b->g.rank,
            b->g.device_ops->alloc(b->g.device, count * sizeof(float), flags, memory));
}

static void fixture_open(fixture *b, test_rank *rank, const group_kind *kind) {
    int may = 1;
    *b = (fixture){.used = 0};
    group_open(&b->g, rank, kind);
    if (DLC_CAN(b->g.ops->queues, supported))
        RANK_OK(rank, b->g.ops->queues->supported(b->g.endpoint, &may));
    RANK_CHECK(rank, may || rank->ranks == 1);
    get_memory(b, ROOM, DLC_MEM_SHARED, &b->arena);
    get_memory(b, ROOM, 0, &b->plain);
    get_memory(b, HOST, DLC_MEM_STAGING, &b->host);
    RANK_OK(rank, b->g.ops->register_buffer(b->g.endpoint, &b->arena));
    RANK_OK(rank, b->g.device_ops->queues->queue_open(b->g.device, &b->queue));
    RANK_OK(rank, b->g.device_ops->queues->event_open(b->g.device, &b->event));
}

static void fixture_close(fixture *b) {
    const dlc_device_ops *ops = b->g.device_ops;
    ops->queues->event_close(b->g.device, b->event);
    ops->queues->queue_close(b->g.device, b->queue);
    b->g.ops->close(b->g.endpoint);
    b->g.endpoint = NULL;
    ops->free(b->g.device, &b->arena);
    ops->free(b->g.device, &b->plain);
    ops->free(b->g.device, &b->host);
    group_close(&b->g);
}

static float *host_floats(fixture *b, size_t count) {
    float *at = (float *)b->host.base + b->used;
    b->used += count;
    RANK_CHECK(b->g.rank, b->used <= HOST);
    return at;
}

/* Waits as the core does, polling the transport meanwhile. */
static dlc_status wait_for_queue(fixture *b) {
    const struct timespec pause = {.tv_nsec = 50000};
    const dlc_device_ops *ops = b->g.device_ops;
    dlc_status status = ops->queues->event_record(b->g.device, b->queue, b->event);
    int done = 0;
    while (status == DLC_OK) {
        status = ops->queues->event_done(b->g.device, b->event, &done);
        if (status != DLC_OK || done)
            break;
        status = b->g.ops->queues->poll(b->g.endpoint);
        (void)nanosleep(&pause, NULL);
    }
    return status;
}

/* ---- One collective -------------------------------------------------------- */

typedef enum kind { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, KINDS } kind;

typedef struct trial {
    kind kind;
    size_t count;
    uint64_t salt;
    float *at;             /* on the device */
    float *before, *after; /* on the host */
} trial;

static trial make_trial(fixture *b, kind what, size_t count, size_t offset,
                        uint64_t salt) {
    trial t = {.kind = what, .count = count, .salt = salt};
    t.at = (float *)(salt % 4 ? b->arena.base : b->plain.base) + offset;
    t.before = host_floats(b, count);
    t.after = host_floats(b, count);
    return t;
}

static void submit(fixture *b, const trial *t) {
    const dlc_transport_ops *ops = b->g.ops;
    const dlc_device_ops *device_ops = b->g.device_ops;
    size_t bytes = t->count * sizeof(float);
    dlc_endpoint *e = b->g.endpoint;
    RANK_OK(b->g.rank,
            device_ops->copy(b->g.device, b->queue, t->at, t->before, bytes));
    switch (t->kind) {
    case REDUCE_SCATTER:
        RANK_OK(b->g.rank, ops->queues->reduce_scatter(e, b->queue, t->at, t->count));
        break;
    case ALL_GATHER:
        RANK_OK(b->g.rank, ops->queues->all_gather(e, b->queue, t->at, t->count));
        break;
    default:
        RANK_OK(b->g.rank, ops->queues->all_reduce(e, b->queue, t->at, t->count));
    }
    RANK_OK(b->g.rank, device_ops->copy(b->g.device, b->queue, t->after, t->at, bytes));
}

static void fill(const fixture *b, const trial *t) {
    reference_fill(t->salt, b->g.rank->rank, t->count, t->before);
    memset(t->after, 0, t->count * sizeof(float));
}

static void check(const fixture *b, const trial *t) {
    int me = b->g.rank->rank, ranks = b->g.rank->ranks;
    size_t begin = t->count * (size_t)me / (size_t)ranks;
    size_t end = t->count * ((size_t)me + 1) / (size_t)ranks;
    if (t->kind == ALL_GATHER) {
        for (int r = 0; r < ranks; r++)
            for (size_t i = t->count * (size_t)r / (size_t)ranks;
                 i < t->count * ((size_t)r + 1) / (size_t)ranks; i++)
                RANK_CHECK(b->g.rank, t->after[i] == reference_value(t->salt, r, i));
        return;
    }
    if (t->kind == ALL_REDUCE) {
        begin = 0;
        end = t->count;
    }
    if (registered_is_pairwise(&b->g))
        RANK_CHECK(b->g.rank,
                   reference_wrong(t->salt, ranks, begin, end, t->after) == 0);
}

/* ---- Schedules ------------------------------------------------------------------ */

static int has_queues(const char *transport) {
    const dlc_transport_ops *ops = plugin_find(DLC_KIND_TRANSPORT, transport)->ops;
    return DLC_CAN(ops, queues);
}

static void run_all(int ranks, uint64_t lost, rank_body *body) {
    static const char *const pieces[] = {"schedule=tree", "chunk_bytes=4K", NULL};
    const char *name;
    for (int i = 0; i < REGISTERED_SETTINGS - 1; i++) {
        group_kind way = registered_settings[i];
        if (i == REGISTERED_SETTINGS - 2)
            way.sets = pieces;
        registered_run(&way, ranks, lost, body);
    }
    for (size_t i = 0; (name = group_transport(i)) != NULL; i++)
        if (has_queues(name) && strcmp(name, registered_settings[0].transport) != 0)
            registered_run(&(group_kind){name, NULL}, ranks, lost, body);
    plugins_close();
}

/* ---- Tests ------------------------------------------------------------------ */

static void many_body(test_rank *rank, void *context) {
    static const size_t counts[] = {0,  1,    2,    3,    7,     8,
                                    31, 1000, 1023, 4097, 16385, 60001};
    enum { TRIALS = KINDS * sizeof counts / sizeof *counts };
    dlc_random mine = dlc_random_make(9, 10 + (uint64_t)rank->rank);
    trial all[TRIALS];
    fixture b;

    fixture_open(&b, rank, context);
    for (size_t i = 0; i < TRIALS; i++) {
        size_t count = counts[i / KINDS];
        all[i] = make_trial(&b, (kind)(i % KINDS), count, 1 + i * 1031 % 60000, i);
        fill(&b, &all[i]);
    }
    for (size_t i = 0; i < TRIALS; i++) {
        if (dlc_random_below(&mine, 6) == 0)
            usleep((unsigned)dlc_random_below(&mine, 2000));
        submit(&b, &all[i]);
    }
    RANK_OK(rank, wait_for_queue(&b));
    for (size_t i = 0; i < TRIALS; i++)
        check(&b, &all[i]);
    fixture_close(&b);
}

static const int rank_counts[] = {1, 2, 3, 4};
enum { COUNTS = sizeof rank_counts / sizeof *rank_counts };

static int has_async_queues(void) {
    const char *device = getenv("DLCORE_TEST_DEVICE");
    const dlc_device_ops *ops = device ? plugin_find(DLC_KIND_DEVICE, device)->ops
                                       : NULL;
    return ops && DLC_CAN(ops, queues);
}

static int begin(int argc, char **argv) {
    (void)argc, (void)argv;
    if (!has_async_queues())
        return tests_skip("this device has no queues");
    plugins_close();
    return TESTS_RUN;
}

TEST_SETTINGS(.timeout = 120, .begin = begin);

TEST_EACH(many, COUNTS) {
    if (rank_counts[_i] <= group_most_ranks())
        run_all(rank_counts[_i], 0, many_body);
}

/* Semaphores have the same values at each launch; other calls, of either kind, come in
 * between. */
static void captured_body(test_rank *rank, void *context) {
    enum { RUNS = 12, ODD = 5003 };
    dlc_captured_graph *graph = NULL;
    trial inside[KINDS], between;
    fixture b;

    fixture_open(&b, rank, context);
    const dlc_device_ops *ops = b.g.device_ops;
    for (int i = 0; i < KINDS; i++)
        inside[i] = make_trial(&b, (kind)i, ODD + (size_t)i, 1 + (size_t)i * 9000,
                               (uint64_t)i + 1);
    between = make_trial(&b, ALL_REDUCE, ODD, 40001, 77);
    submit(&b, &inside[0]); /* sets up what is created on first use */
    RANK_OK(rank, wait_for_queue(&b));
    RANK_OK(rank, ops->queues->capture_begin(b.g.device, b.queue));
    for (int i = 0; i < KINDS; i++)
        submit(&b, &inside[i]);
    RANK_OK(rank, ops->queues->capture_end(b.g.device, b.queue, &graph));
    for (uint64_t run = 0; run < RUNS; run++) {
        for (int i = 0; i < KINDS; i++) {
            inside[i].salt = 100 * run + (uint64_t)i;
            fill(&b, &inside[i]);
        }
        fill(&b, &between);
        if (run % 3 == 0)
            submit(&b, &between);
        RANK_OK(rank, ops->queues->graph_launch(b.g.device, b.queue, graph));
        if (run % 3 == 1)
            submit(&b, &between);
        RANK_OK(rank, wait_for_queue(&b));
        for (int i = 0; i < KINDS; i++)
            check(&b, &inside[i]);
        if (run % 3 < 2)
            check(&b, &between);
        if (run % 4 == 0) /* a blocking call does not use the semaphores */
            RANK_OK(rank, b.g.ops->all_reduce(b.g.endpoint, b.arena.base, ODD));
    }
    ops->queues->graph_close(b.g.device, graph);
    fixture_close(&b);
}

TEST_EACH(captured, 3) {
    run_all(2 + _i, 0, captured_body);
}

/* A rank is killed at any moment. The others get an error from poll, and their queues
 * drain. */
static void killed_body(test_rank *rank, void *context) {
    enum { AHEAD = 6 };
    dlc_status status = DLC_OK;
    fixture b;

    fixture_open(&b, rank, context);
    if (rank->rank == 1 && fork() == 0) { /* the parent dies while this one continues */
        usleep((unsigned)(getpid() % 40) * 1000);
        (void)kill(getppid(), SIGKILL);
        _exit(0);
    }
    while (status == DLC_OK) {
        for (int i = 0; i < AHEAD && status == DLC_OK; i++)
            status = b.g.ops->queues->all_reduce(b.g.endpoint, b.queue, b.arena.base,
                                                 ROOM);
        if (status == DLC_OK)
            status = wait_for_queue(&b);
    }
    RANK_CHECK(rank, status == DLC_ERR_PEER);
    RANK_CHECK(rank, b.g.ops->queues->poll(b.g.endpoint) == DLC_ERR_PEER);
    RANK_CHECK(rank, b.g.ops->queues->poll(b.g.endpoint) == DLC_ERR_PEER);
    (void)b.g.device_ops->queues->queue_sync(b.g.device, b.queue);
    fixture_close(&b);
}

TEST_EACH(killed, 3) {
    run_all(2 + _i, 1u << 1, killed_body);
}

/* A device whose queues have no semaphores: reported, and the CPU waits instead. */
static void no_semaphores_body(test_rank *rank, void *context) {
    dlc_memory memory;
    char words[256] = "";
    int may = 1;
    group g;

    group_open(&g, rank, context);
    RANK_OK(rank, g.ops->queues->supported(g.endpoint, &may));
    RANK_CHECK(rank, !may);
    RANK_OK(rank, g.ops->describe(g.endpoint, words, sizeof words));
    RANK_CHECK(rank, strstr(words, "the CPU waits between steps") != NULL);
    float *arena = register_floats(&g, ROOM, &memory);
    RANK_CHECK(rank, g.ops->queues->all_reduce(g.endpoint, NULL, memory.base, 100) ==
                         DLC_ERR_UNSUPPORTED);
    reference_fill(3, rank->rank, ROOM, arena);
    RANK_OK(rank, group_all_reduce(&g, arena, ROOM));
    RANK_CHECK(rank, reference_wrong(3, rank->ranks, 0, ROOM, arena) == 0);
    registered_finish(&g, &memory, NULL);
}

TEST(no_semaphores) {
    const char *device = getenv("DLCORE_TEST_DEVICE");
    if (!device || strcmp(device, "async") != 0)
        return;
    (void)setenv("DLCORE_TEST_DEVICE_SET", "async_semaphores=no", 1);
    for (int i = 0; i < 2; i++)
        registered_run(&registered_settings[i], 3, 0, no_semaphores_body);
    plugins_close();
}
