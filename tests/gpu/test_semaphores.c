/* Semaphores that queues write and wait for, within one process and between several.
 * Tests the GPU, or the device that DLCORE_TEST_DEVICE names. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "support/mirror.h"
#include "support/plugins.h"
#include "support/ranks.h"
#include "support/test.h"

enum { N = 20000, BYTES = N * sizeof(float), RANKS = 4, STRIDE = 16, ROUNDS = 40 };

#define OK(call) ck_assert_msg((call) == DLC_OK, "%s: %s", #call, dlc_detail())

/* A process's state; `here` and `semaphores` are host memory. */
typedef struct fixture {
    const dlc_device_ops *ops;
    dlc_device *device;
    dlc_queue *queue;
    dlc_event *event;
    dlc_memory x, staging, memory;
    float *at, *here;
    uint32_t *semaphores;
} fixture;

static dlc_status take(fixture *r, size_t bytes, uint32_t flags, dlc_memory *memory) {
    *memory = (dlc_memory){.size = sizeof *memory};
    return r->ops->alloc(r->device, bytes, flags, memory);
}

static dlc_status fixture_open(fixture *r) {
    const dlc_device_args args = {.size = sizeof args, .threads = 1};
    *r = (fixture){
        .ops = plugin_find(DLC_KIND_DEVICE, getenv("DLCORE_TEST_DEVICE"))->ops};
    dlc_status status = r->ops->open(&args, &r->device);
    if (status == DLC_OK)
        status = r->ops->queues->queue_open(r->device, &r->queue);
    if (status == DLC_OK)
        status = r->ops->queues->event_open(r->device, &r->event);
    if (status == DLC_OK)
        status = take(r, BYTES, DLC_MEM_SHARED, &r->x);
    if (status == DLC_OK)
        status = take(r, BYTES, DLC_MEM_STAGING, &r->staging);
    if (status == DLC_OK)
        status = take(r, (size_t)RANKS * STRIDE * sizeof(uint32_t),
                      DLC_MEM_SHARED | DLC_MEM_STAGING, &r->memory);
    r->at = r->x.base;
    r->here = r->staging.base;
    r->semaphores = r->memory.base;
    return status;
}

static void fixture_close(fixture *r) {
    r->ops->queues->event_close(r->device, r->event);
    r->ops->queues->queue_close(r->device, r->queue);
    r->ops->free(r->device, &r->x);
    r->ops->free(r->device, &r->staging);
    r->ops->free(r->device, &r->memory);
    r->ops->close(r->device);
    plugins_close();
}

static dlc_status set(fixture *r, float value) {
    for (int i = 0; i < N; i++)
        r->here[i] = value;
    return r->ops->copy(r->device, NULL, r->at, r->here, BYTES);
}

/* -1: the elements differ. */
static float value_of(fixture *r) {
    if (r->ops->copy(r->device, NULL, r->here, r->at, BYTES) != DLC_OK)
        return -1;
    for (int i = 1; i < N; i++)
        if (r->here[i] != r->here[0])
            return -1;
    return r->here[0];
}

static dlc_status step(const fixture *r, dlc_queue *queue, dlc_semaphore_kind kind,
                       uint32_t *semaphore, uint32_t value) {
    const dlc_semaphore_op one = {(uint32_t)kind, value, semaphore};
    return r->ops->queues->queue_semaphores(r->device, queue, &one, 1);
}

static uint32_t *semaphore_at(const fixture *r, size_t i) {
    return r->semaphores + i * STRIDE;
}

static uint32_t load(const uint32_t *semaphore) {
    return __atomic_load_n(semaphore, __ATOMIC_SEQ_CST);
}

static void store(uint32_t *semaphore, uint32_t value) {
    __atomic_store_n(semaphore, value, __ATOMIC_SEQ_CST);
}

/* ---- Several processes --------------------------------------------------- */

/* The other ranks' semaphores, and memory of rank 0. */
typedef struct ring {
    fixture r;
    dlc_memory semaphores[RANKS], x;
    uint32_t *mine, *next; /* the semaphores that pass the turn on */
    float *shared;
} ring;

static void import(test_rank *rank, fixture *r, const dlc_memory *mine, int32_t from,
                   dlc_memory *memory) {
    dlc_ipc_handle share = {.size = sizeof share}, all[RANKS];
    *memory = (dlc_memory){.size = sizeof *memory};
    RANK_OK(rank, r->ops->ipc_export(r->device, mine, &share));
    RANK_OK(rank, ranks_all_gather(rank, &share, sizeof share, all));
    if (from != rank->rank)
        RANK_OK(rank, r->ops->ipc_import(r->device, &all[from], memory));
}

static void ring_open(test_rank *rank, ring *g) {
    int32_t next = (rank->rank + 1) % rank->ranks;
    RANK_OK(rank, fixture_open(&g->r));
    import(rank, &g->r, &g->r.memory, next, &g->semaphores[0]);
    import(rank, &g->r, &g->r.x, 0, &g->x);
    g->mine = g->r.semaphores;
    g->next = g->semaphores[0].base;
    g->shared = rank->rank == 0 ? g->r.at : g->x.base;
    RANK_OK(rank, set(&g->r, 1));
    ranks_barrier(rank);
}

static void ring_close(test_rank *rank, ring *g) {
    ranks_barrier(rank);
    g->r.ops->free(g->r.device, &g->semaphores[0]);
    g->r.ops->free(g->r.device, &g->x);
    ranks_barrier(rank);
    fixture_close(&g->r);
}

/* Waits for its turn, changes the shared memory, passes the turn on. Nobody passes rank
 * 0 its first turn. */
static void take_turn(test_rank *rank, ring *g, float factor, uint32_t turn,
                      int clear) {
    dlc_semaphore_op steps[] = {{DLC_SEMAPHORE_WAIT, turn, g->mine},
                                {DLC_SEMAPHORE_WRITE, 0, g->mine}};
    const dlc_device_ops *ops = g->r.ops;
    RANK_OK(rank, ops->queues->queue_semaphores(g->r.device, g->r.queue, steps,
                                                clear ? 2 : 1));
    RANK_OK(rank, ops->scale(g->r.device, g->r.queue, N, factor, g->shared));
    RANK_OK(rank, step(&g->r, g->r.queue, DLC_SEMAPHORE_WRITE, g->next,
                       clear ? 1 : turn + (rank->rank + 1 == rank->ranks)));
}

/* Without the CPU in between: each queue is given all its turns. */
static void turns_body(test_rank *rank, void *context) {
    ring g = {.shared = NULL};
    (void)context;
    ring_open(rank, &g);
    if (rank->rank == 0)
        store(g.mine, 1);
    for (uint32_t i = 1; i <= ROUNDS; i++)
        take_turn(rank, &g, i % 2 ? 2 : 0.5f, i, 0);
    RANK_OK(rank, g.r.ops->queues->queue_sync(g.r.device, g.r.queue));
    ranks_barrier(rank);
    if (rank->rank == 0)
        RANK_CHECK(rank, value_of(&g.r) == 1);
    ring_close(rank, &g);
}

/* The same values at each launch, since the waiting rank clears the semaphore. */
static void captured_body(test_rank *rank, void *context) {
    ring g = {.shared = NULL};
    dlc_captured_graph *graph = NULL;
    (void)context;
    ring_open(rank, &g);
    const dlc_device_ops *ops = g.r.ops;
    if (rank->rank == 0)
        store(g.mine, 1);
    take_turn(rank, &g, 1, 1, 1); /* sets up what is created on first use */
    RANK_OK(rank, ops->queues->queue_sync(g.r.device, g.r.queue));
    RANK_OK(rank, ops->queues->capture_begin(g.r.device, g.r.queue));
    take_turn(rank, &g, 2, 1, 1);
    take_turn(rank, &g, 0.5f, 1, 1);
    take_turn(rank, &g, 2, 1, 1);
    RANK_OK(rank, ops->queues->capture_end(g.r.device, g.r.queue, &graph));
    for (int i = 0; i < 5; i++)
        RANK_OK(rank, ops->queues->graph_launch(g.r.device, g.r.queue, graph));
    RANK_OK(rank, ops->queues->queue_sync(g.r.device, g.r.queue));
    ranks_barrier(rank);
    if (rank->rank == 0)
        RANK_CHECK(rank, value_of(&g.r) == (float)(1 << 5 * rank->ranks));
    ops->queues->graph_close(g.r.device, graph);
    ring_close(rank, &g);
}

static int begin(int argc, char **argv) {
    if (setenv("DLCORE_TEST_DEVICE", "cuda", 0) != 0)
        return EXIT_FAILURE;
    int code = mirror_begin(argc, argv);
    if (code != TESTS_RUN)
        return code;
    const dlc_feature *device = plugin_find(DLC_KIND_DEVICE,
                                            getenv("DLCORE_TEST_DEVICE"));
    if (!DLC_CAN((const dlc_device_ops *)device->ops, queues))
        return tests_skip("this device has no queues");
    plugins_close();
    return TESTS_RUN;
}

/* These first: with CK_FORK=no this process starts CUDA later, and cannot fork then. */
TEST_SETTINGS(.name = "between processes", .timeout = 60, .begin = begin);

TEST_EACH(turns, RANKS - 1) {
    ck_assert_int_eq(ranks_run(2 + _i, 60, turns_body, NULL), 0);
}

TEST_EACH(captured_turns, RANKS - 1) {
    ck_assert_int_eq(ranks_run(2 + _i, 60, captured_body, NULL), 0);
}

TEST_SETTINGS(.name = "device", .timeout = 60);

/* ---- One process ------------------------------------------------------------- */

TEST(is_supported) {
    fixture r;
    OK(fixture_open(&r));
    OK(r.ops->queues->queue_semaphores(r.device, r.queue, NULL, 0));
    OK(r.ops->queues->queue_semaphores(r.device, NULL, NULL, 0));
    fixture_close(&r);
}

/* The queue waits for the CPU, and the CPU sees what the queue wrote. */
TEST(cpu_and_queue) {
    int done = 0;
    fixture r;
    OK(fixture_open(&r));
    /* CUDA loads a kernel on first use, waiting for all queues: that would wait for the
     * semaphore, which this thread has not written yet. */
    OK(r.ops->scale(r.device, NULL, N, 2, r.at));
    OK(set(&r, 1));
    for (uint32_t i = 1; i <= 5; i++) {
        OK(step(&r, r.queue, DLC_SEMAPHORE_WAIT, semaphore_at(&r, 0), i));
        OK(r.ops->scale(r.device, r.queue, N, 2, r.at));
        OK(step(&r, r.queue, DLC_SEMAPHORE_WRITE, semaphore_at(&r, 1), i));
        OK(r.ops->queues->event_record(r.device, r.queue, r.event));
        usleep(5000);
        OK(r.ops->queues->event_done(r.device, r.event, &done));
        ck_assert_int_eq(done, 0);
        ck_assert_uint_eq(load(semaphore_at(&r, 1)), i - 1);
        store(semaphore_at(&r, 0), i);
        while (load(semaphore_at(&r, 1)) != i)
            usleep(100);
        ck_assert(value_of(&r) == (float)(1 << i));
    }
    fixture_close(&r);
}

/* Later values end a wait, too, also after the counter wraps around; earlier ones
 * don't. */
TEST(values_wrap_around) {
    int done = 0;
    fixture r;
    OK(fixture_open(&r));
    store(semaphore_at(&r, 0), 5);
    OK(step(&r, r.queue, DLC_SEMAPHORE_WAIT, semaphore_at(&r, 0), 3));
    store(semaphore_at(&r, 1), 2);
    OK(step(&r, r.queue, DLC_SEMAPHORE_WAIT, semaphore_at(&r, 1), UINT32_MAX));
    OK(r.ops->queues->queue_sync(r.device, r.queue));
    store(semaphore_at(&r, 0), UINT32_MAX);
    OK(step(&r, r.queue, DLC_SEMAPHORE_WAIT, semaphore_at(&r, 0), 1));
    OK(r.ops->queues->event_record(r.device, r.queue, r.event));
    usleep(5000);
    OK(r.ops->queues->event_done(r.device, r.event, &done));
    ck_assert_int_eq(done, 0);
    store(semaphore_at(&r, 0), 1);
    OK(r.ops->queues->queue_sync(r.device, r.queue));
    fixture_close(&r);
}

/* Many operations at once run in order; without a queue they are done on return. */
TEST(many_steps) {
    enum { STEPS = 600 };
    static dlc_semaphore_op steps[STEPS];
    fixture r;
    OK(fixture_open(&r));
    for (size_t i = 0; i < STEPS; i++)
        steps[i] = (dlc_semaphore_op){i % 2 ? DLC_SEMAPHORE_WAIT : DLC_SEMAPHORE_WRITE,
                                      (uint32_t)(i / 2 + 1),
                                      semaphore_at(&r, i / 2 % 3)};
    for (int again = 0; again < 2; again++) {
        OK(r.ops->queues->queue_semaphores(r.device, again ? r.queue : NULL, steps,
                                           STEPS));
        if (again)
            OK(r.ops->queues->queue_sync(r.device, r.queue));
        for (size_t i = 0; i < 3; i++)
            ck_assert_uint_eq(load(semaphore_at(&r, i)), STEPS / 2 - 2 + i);
        memset(r.semaphores, 0, (size_t)3 * STRIDE * sizeof *r.semaphores);
    }
    fixture_close(&r);
}
