/* The checks of what devices with queues promise: order, events, captured graphs,
 * semaphores, and several threads. A queue is held up by a semaphore, or by much work.
 */
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/status.h"
#include "device_checks.h"
#include "host.h"
#include "process.h"

enum { COUNT = 100003 };

/* An open device with queues, a second queue, an event, and numbers here and there, to
 * which others are added. */
typedef struct bench {
    device_check b;
    const dlc_device_queue_ops *ops;
    dlc_queue *other;
    dlc_event *event;
    float *here, *there, *added_here, *added;
} bench;

static void open_bench(suite_run *run, bench *w) {
    *w = (bench){.ops = NULL};
    device_check_open(run, &w->b);
    if (!w->b.queue)
        suite_skip(run, "it has no queues");
    w->ops = w->b.ops->queues;
    suite_must(run, w->ops->queue_open(w->b.device, &w->other), "queue_open");
    suite_must(run, w->ops->event_open(w->b.device, &w->event), "event_open");
    if (!w->other || w->other == w->b.queue || !w->event)
        suite_fail(run, "queue_open or event_open succeeds, but opens nothing new");
    w->there = device_check_upload(&w->b, COUNT, 1, &w->here);
    w->added = device_check_upload(&w->b, COUNT, 2, &w->added_here);
}

static void scale(const bench *w, dlc_queue *queue, float factor) {
    suite_must(w->b.run, w->b.ops->scale(w->b.device, queue, COUNT, factor, w->there),
               "scale");
}

static void expect_scaled(const bench *w, float factor) {
    for (size_t i = 0; i < COUNT; i++)
        w->here[i] *= factor;
}

/* Much work whose result depends on its order; all of it is exact. */
static void submit_much(const bench *w, dlc_queue *queue, int times) {
    for (int i = 0; i < times; i++) {
        float factor = i % 2 ? 0.5f : 2.0f;
        scale(w, queue, factor);
        expect_scaled(w, factor);
        suite_must(w->b.run,
                   w->b.ops->add(w->b.device, queue, COUNT, w->added, w->there), "add");
        for (size_t k = 0; k < COUNT; k++)
            w->here[k] += w->added_here[k];
    }
}

static void compare(const bench *w, const char *what) {
    device_check_compare(&w->b, what, w->there, w->here, COUNT, 0);
}

static void record(const bench *w, dlc_queue *queue) {
    suite_must(w->b.run, w->ops->event_record(w->b.device, queue, w->event),
               "event_record");
}

static void wait_for_event(const bench *w, dlc_queue *queue) {
    suite_must(w->b.run, w->ops->event_wait(w->b.device, queue, w->event),
               "event_wait");
}

static int is_done(const bench *w) {
    int done = -1;
    suite_must(w->b.run, w->ops->event_done(w->b.device, w->event, &done),
               "event_done");
    if (done != 0 && done != 1)
        suite_fail(w->b.run, "event_done stores %d, neither 0 nor 1", done);
    return done;
}

static void pause_ms(long ms) {
    (void)nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* ---- Order and events ------------------------------------------------------- */

static void queues_keep_order(suite_run *run) {
    enum { ROUNDS = 10, TIMES = 20 };
    bench w;
    open_bench(run, &w);
    for (int i = 0; i < ROUNDS; i++) {
        dlc_queue *here = i % 2 ? w.other : w.b.queue;
        submit_much(&w, here, TIMES + 1);
        record(&w, here);
        wait_for_event(&w, i % 2 ? w.b.queue : w.other);
    }
    record(&w, w.b.queue);
    suite_must(run, w.ops->event_sync(w.b.device, w.event), "event_sync");
    if (!is_done(&w))
        suite_fail(run, "an event is not done after event_sync has returned");
    compare(&w, "work on two queues that wait for each other");
    w.ops->event_close(w.b.device, w.event);
    w.ops->queue_close(w.b.device, w.other);
}

/* Looks at the numbers through another queue, which waits for nothing. */
static void compare_at_once(const bench *w, dlc_queue *queue, const char *what) {
    device_check by = w->b;
    by.queue = queue;
    device_check_compare(&by, what, w->there, w->here, COUNT, 0);
}

static void events_are_true(suite_run *run) {
    enum { ROUNDS = 5, TIMES = 100, MOST_MS = 20000 };
    bench w;
    open_bench(run, &w);
    if (!is_done(&w))
        suite_fail(run, "an event that was never recorded is not done");
    suite_must(run, w.ops->event_sync(w.b.device, w.event), "event_sync");
    wait_for_event(&w, w.other);
    suite_must(run, w.ops->queue_sync(w.b.device, w.other), "queue_sync");
    for (int i = 0; i < ROUNDS; i++) {
        submit_much(&w, w.b.queue, TIMES);
        record(&w, w.b.queue);
        for (int ms = 0; !is_done(&w); ms++) {
            if (ms == MOST_MS)
                suite_fail(run, "an event is not done %d s after it was recorded",
                           MOST_MS / 1000);
            pause_ms(1);
        }
        compare_at_once(&w, w.other,
                        "work before an event that event_done says is "
                        "done");
        submit_much(&w, w.other, TIMES);
        record(&w, w.other);
        suite_must(run, w.ops->event_sync(w.b.device, w.event), "event_sync");
        compare_at_once(&w, w.b.queue, "work before an event after event_sync");
    }
}

/* The event is closed before the work that is before it is done. */
static void closing_completes(suite_run *run) {
    enum { TIMES = 100 };
    bench w;
    open_bench(run, &w);
    submit_much(&w, w.other, TIMES);
    record(&w, w.other);
    w.ops->event_close(w.b.device, w.event);
    w.ops->queue_close(w.b.device, w.other);
    compare(&w, "work on a queue that was closed");
}

static void closing_leaks_nothing(suite_run *run) {
    enum { TIMES = 8 };
    bench w;
    open_bench(run, &w);
    int64_t before = suite_host_allocations();
    int threads = suite_count_entries(SUITE_THREADS);
    for (int i = 0; i < TIMES; i++) {
        dlc_queue *queue = NULL;
        suite_must(run, w.ops->queue_open(w.b.device, &queue), "queue_open");
        suite_must(run, w.ops->event_open(w.b.device, &w.event), "event_open");
        record(&w, queue);
        wait_for_event(&w, w.b.queue);
        device_check_finish(&w.b);
        w.ops->event_close(w.b.device, w.event);
        w.ops->queue_close(w.b.device, queue);
    }
    int64_t left = suite_host_allocations() - before;
    if (left >= TIMES)
        suite_fail(run, "%d queues and events that were closed leave %lld allocations",
                   TIMES, (long long)left);
    if (suite_count_entries(SUITE_THREADS) >= threads + TIMES)
        suite_fail(run, "%d queues that were closed leave a thread each", TIMES);
}

/* ---- Semaphores -------------------------------------------------------------- */

static uint32_t *open_semaphores(const bench *w) {
    dlc_memory memory = {.size = sizeof memory};
    if (!DLC_CAN(w->ops, queue_semaphores))
        suite_skip(w->b.run, "it has no queue_semaphores");
    dlc_status status = w->ops->queue_semaphores(w->b.device, NULL, NULL, 0);
    if (status == DLC_ERR_UNSUPPORTED)
        suite_skip(w->b.run, "it has no semaphores here: %s", dlc_detail());
    suite_must(w->b.run, status, "queue_semaphores without operations");
    suite_must(
        w->b.run,
        w->b.ops->alloc(w->b.device, 4096, DLC_MEM_SHARED | DLC_MEM_STAGING, &memory),
        "alloc");
    return memory.base;
}

static void operate(const bench *w, const dlc_semaphore_op *ops, int32_t count) {
    suite_must(w->b.run, w->ops->queue_semaphores(w->b.device, w->b.queue, ops, count),
               "queue_semaphores");
}

static uint32_t value_of(const uint32_t *semaphore) {
    return __atomic_load_n(semaphore, __ATOMIC_ACQUIRE);
}

/* A queue waits for [0], writes [1], and must not go on before the CPU says so. */
static void hold_and_release(const bench *w, uint32_t *semaphore, uint32_t value) {
    enum { HOLD_MS = 20 };
    const dlc_semaphore_op ops[] = {{DLC_SEMAPHORE_WAIT, value, &semaphore[0]},
                                    {DLC_SEMAPHORE_WRITE, value, &semaphore[1]}};
    semaphore[0] = value - 1;
    semaphore[1] = 0;
    operate(w, ops, 2);
    scale(w, w->b.queue, 0.5f);
    record(w, w->b.queue);
    wait_for_event(w, w->other);
    scale(w, w->other, 3.0f);
    pause_ms(HOLD_MS);
    if (value_of(&semaphore[1]) == value || is_done(w))
        suite_fail(w->b.run, "a queue does not wait for a semaphore: %u, until %u",
                   value - 1, value);
    __atomic_store_n(&semaphore[0], value + 1, __ATOMIC_RELEASE);
    suite_must(w->b.run, w->ops->queue_sync(w->b.device, w->other), "queue_sync");
    if (value_of(&semaphore[1]) != value)
        suite_fail(w->b.run, "a queue writes %u to a semaphore, not %u",
                   value_of(&semaphore[1]), value);
    expect_scaled(w, 0.5f);
    expect_scaled(w, 3.0f);
    compare(w, "work after a semaphore");
}

static void semaphores_hold(suite_run *run) {
    static const uint32_t values[] = {1, 0x80000000u, UINT32_MAX, 2};
    bench w;
    open_bench(run, &w);
    uint32_t *semaphore = open_semaphores(&w);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        hold_and_release(&w, semaphore, values[i]);
}

/* ---- Captured graphs --------------------------------------------------------- */

static void begin_capture(const bench *w) {
    if (!DLC_CAN(w->ops, capture_begin))
        suite_skip(w->b.run, "it has no captured graphs");
    suite_must(w->b.run, w->ops->capture_begin(w->b.device, w->b.queue),
               "capture_begin");
}

/* Work on both queues, in turn. */
static void submit_both(const bench *w) {
    scale(w, w->b.queue, 0.5f);
    record(w, w->b.queue);
    wait_for_event(w, w->other);
    scale(w, w->other, 3.0f);
    record(w, w->other);
    wait_for_event(w, w->b.queue);
    scale(w, w->b.queue, 0.75f);
}

static void graphs_repeat(suite_run *run) {
    enum { LAUNCHES = 3 };
    bench w;
    dlc_captured_graph *graph = NULL;
    open_bench(run, &w);
    begin_capture(&w);
    submit_both(&w);
    suite_must(run, w.ops->capture_end(w.b.device, w.b.queue, &graph), "capture_end");
    if (!graph)
        suite_fail(run, "capture_end succeeds, but there is no graph");
    compare(&w, "what was captured, before it is launched,");
    for (int i = 0; i < LAUNCHES; i++) {
        suite_must(run, w.ops->graph_launch(w.b.device, w.b.queue, graph),
                   "graph_launch");
        expect_scaled(&w, 0.5f);
        expect_scaled(&w, 3.0f);
        expect_scaled(&w, 0.75f);
        scale(&w, w.b.queue, 2.0f);
        expect_scaled(&w, 2.0f);
    }
    compare(&w, "a graph that was launched several times");
    w.ops->graph_close(w.b.device, graph);
}

static void captures_can_fail(suite_run *run) {
    bench w;
    dlc_captured_graph *graph = NULL;
    open_bench(run, &w);
    begin_capture(&w);
    scale(&w, w.b.queue, 0.5f);
    suite_must(run, w.ops->capture_end(w.b.device, w.b.queue, NULL),
               "capture_end without a graph");
    compare(&w, "what was captured and discarded");
    begin_capture(&w);
    scale(&w, w.b.queue, 0.5f);
    if (w.ops->queue_sync(w.b.device, w.b.queue) == DLC_OK)
        suite_fail(run, "queue_sync succeeds while the queue is captured");
    if (w.ops->capture_end(w.b.device, w.b.queue, &graph) == DLC_OK)
        suite_fail(run, "capture_end succeeds after a blocking call in the capture");
    scale(&w, w.b.queue, 0.25f);
    expect_scaled(&w, 0.25f);
    compare(&w, "work after captures that failed");
}

/* ---- Threads ----------------------------------------------------------------- */

static void *use_own_queue(void *context) {
    enum { ROUNDS = 20, SMALL = 1000 };
    device_check b = *(const device_check *)context;
    dlc_memory memory = {.size = sizeof memory};
    if (b.queue)
        suite_must(b.run, b.ops->queues->queue_open(b.device, &b.queue), "queue_open");
    for (int i = 0; i < ROUNDS; i++) {
        float *here, *there = device_check_upload(&b, SMALL, (uint64_t)i, &here);
        suite_must(b.run, b.ops->alloc(b.device, 4096, 0, &memory), "alloc");
        suite_must(b.run, b.ops->scale(b.device, b.queue, SMALL, 3.0f, there), "scale");
        for (size_t k = 0; k < SMALL; k++)
            here[k] *= 3.0f;
        b.ops->free(b.device, &memory);
        device_check_compare(&b, "scale, while other threads use the device,", there,
                             here, SMALL, 0);
        dlc_free(here);
    }
    if (b.queue)
        b.ops->queues->queue_close(b.device, b.queue);
    return NULL;
}

static void threads_share(suite_run *run) {
    enum { THREADS = 4 };
    device_check b;
    pthread_t thread[THREADS];
    device_check_open(run, &b);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread[i], NULL, use_own_queue, &b) != 0)
            suite_skip(run, "it cannot start threads");
    for (int i = 0; i < THREADS; i++)
        (void)pthread_join(thread[i], NULL);
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_DEVICE, 0, SUITE_LOADED, 60, run }

const suite_check suite_device_queue_checks[] = {
    CHECK("device.queues", "queues keep the order of work and wait for events",
          queues_keep_order),
    CHECK("device.events",
          "an event is done when the work before it is, and not before",
          events_are_true),
    CHECK("device.close", "closing a queue completes its work", closing_completes),
    CHECK("device.queue_leaks", "closing queues and events leaks nothing",
          closing_leaks_nothing),
    CHECK("device.semaphores", "queues wait for semaphores, and write them",
          semaphores_hold),
    CHECK("device.graphs", "a captured graph can be launched again and again",
          graphs_repeat),
    CHECK("device.captures", "a capture can be discarded, and blocking calls end it",
          captures_can_fail),
    CHECK("device.threads", "several threads can use the device, each its own queue",
          threads_share),
    {.name = NULL},
};
