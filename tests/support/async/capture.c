/* Captured graphs: the work of queues, recorded and replayed.
 *
 * A graph is a list of steps, each of the queue that it was submitted to; a step may
 * wait for a step of another queue. A launch runs them sequentially in any order that
 * these two rules allow, chosen at random each time: without a dependency two steps may
 * run in either order.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "async.h"

enum { QUEUES = 64 };

typedef struct step {
    work *work;          /* owned */
    int32_t queue_index; /* index; 0: the queue that capture_begin was called with */
    size_t waits;        /* for the step before this number; 0: for none */
} step;

struct dlc_captured_graph {
    dlc_device *device;
    uint64_t number; /* 1, 2, ... */
    step *steps;     /* owned */
    size_t count, room;
    int32_t queues;
    uint64_t random;
    int refs, running; /* guarded by the lock */
};

/* The capture in progress; one at a time. Guarded by the lock. */
static struct {
    dlc_captured_graph *graph; /* NULL: none */
    pthread_t thread;
    dlc_queue *queues[QUEUES];
    const char *invalid_by; /* why; NULL: it is valid */
} now;
static uint64_t captures;

static void lock(void) {
    (void)pthread_mutex_lock(&async_lock);
}

static void unlock(void) {
    (void)pthread_mutex_unlock(&async_lock);
}

static void graph_release(dlc_captured_graph *r) {
    if (!r || --r->refs > 0)
        return;
    for (size_t i = 0; i < r->count; i++)
        work_free(r->steps[i].work);
    free(r->steps);
    host->free(r);
}

static dlc_status invalidate(const char *why) {
    if (!now.invalid_by)
        now.invalid_by = why;
    return host->fail(DLC_ERR_DEVICE, "during a capture: %s", why);
}

dlc_status capture_refuse(const char *call) {
    lock();
    int mine = now.graph && pthread_equal(now.thread, pthread_self());
    dlc_status status = mine ? invalidate(call) : DLC_OK;
    unlock();
    return status;
}

int is_captured(const dlc_queue *queue) {
    return now.graph && queue->queue_index >= 0;
}

/* ---- Capturing ----------------------------------------------------------------- */

static step *add_step(dlc_captured_graph *r) {
    if (r->count == r->room) {
        size_t room = r->room ? 2 * r->room : 64;
        step *grown = realloc(r->steps, room * sizeof *grown);
        if (!grown)
            return NULL;
        r->steps = grown;
        r->room = room;
    }
    step *added = &r->steps[r->count++];
    *added = (step){0};
    return added;
}

/* Takes ownership of the work, also when it fails. */
static dlc_status capture_step(dlc_queue *queue, work *w, size_t waits) {
    step *added = add_step(now.graph);
    if (!added) {
        work_free(w);
        return invalidate("out of memory");
    }
    *added = (step){.work = w, .queue_index = queue->queue_index, .waits = waits};
    if (w->signal) {
        w->signal->graph_number = now.graph->number;
        w->signal->step = now.graph->count;
    }
    return DLC_OK;
}

dlc_status capture_work(dlc_queue *queue, work *w) {
    return capture_step(queue, w, 0);
}

static dlc_status refuse(work *w, const char *why) {
    work_free(w);
    return now.graph ? invalidate(why) : host->fail(DLC_ERR_DEVICE, "%s", why);
}

dlc_status capture_wait(dlc_queue *queue, work *w) {
    const point *p = w->wait;
    if (!p)
        return refuse(w, "a queue waits for an event that was never recorded");
    if (!now.graph || p->graph_number != now.graph->number)
        return refuse(w, p->graph_number > 0
                             ? "a queue waits for an event of a capture that ended"
                             : "a queue waits for an event from outside of it");
    if (queue->queue_index < 0) {
        if (now.graph->queues == QUEUES)
            return refuse(w, "too many queues");
        queue->queue_index = now.graph->queues++;
        now.queues[queue->queue_index] = queue;
    }
    return capture_step(queue, w, p->step);
}

dlc_status capture_begin(dlc_device *device, dlc_queue *queue) {
    if (!queue)
        return host->fail(DLC_ERR_CONFIG, "a capture needs a queue");
    dlc_captured_graph *graph = host->alloc(sizeof *graph);
    if (!graph)
        return DLC_ERR_NOMEM;
    lock();
    if (now.graph) {
        unlock();
        host->free(graph);
        return host->fail(DLC_ERR_DEVICE, "another capture is in progress");
    }
    graph->device = device;
    graph->number = ++captures;
    graph->random = (device->seed + graph->number) * UINT64_C(0x9E3779B97F4A7C15) | 1;
    graph->refs = 1;
    graph->queues = 1;
    now.graph = graph;
    now.thread = pthread_self();
    now.invalid_by = NULL;
    now.queues[0] = queue;
    queue->queue_index = 0;
    unlock();
    return DLC_OK;
}

/* The last step of queue `queue` before number `i`, counted from 1; 0: none. */
static size_t before(const dlc_captured_graph *r, size_t i, int32_t queue_index) {
    while (i > 0 && r->steps[i - 1].queue_index != queue_index)
        i--;
    return i;
}

/* Does the end of queue 0 come after all work? */
static int all_joined(const dlc_captured_graph *r) {
    char *reached = calloc(r->count + 1, 1);
    if (!reached)
        return 0;
    reached[before(r, r->count, 0)] = 1;
    int all = 1;
    for (size_t i = r->count; i > 0; i--) {
        const step *s = &r->steps[i - 1];
        if (reached[i]) {
            reached[before(r, i - 1, s->queue_index)] = 1;
            reached[s->waits] = 1;
        } else if (s->work->run) {
            all = 0;
        }
    }
    free(reached);
    return all;
}

dlc_status capture_end(dlc_device *device, dlc_queue *queue,
                       dlc_captured_graph **captured) {
    (void)device;
    lock();
    dlc_captured_graph *graph = now.graph;
    if (!graph || now.queues[0] != queue) {
        unlock();
        return host->fail(DLC_ERR_DEVICE, "no capture was begun with this queue");
    }
    const char *why = now.invalid_by;
    for (int32_t i = 0; i < graph->queues; i++)
        now.queues[i]->queue_index = -1;
    now.graph = NULL;
    if (!why && !all_joined(graph))
        why = "a queue was not joined before its end";
    if (captured && !why)
        *captured = graph;
    else
        graph_release(graph);
    unlock();
    return captured && why
               ? host->fail(DLC_ERR_DEVICE, "the capture is invalid: %s", why)
               : DLC_OK;
}

/* ---- Launching ----------------------------------------------------------------- */

typedef struct run_state {
    size_t next[QUEUES]; /* number of the queue's next step; 0: none left */
    char *done;          /* owned; by the step's number */
} run_state;

static size_t following(const dlc_captured_graph *r, size_t i, int32_t queue_index) {
    for (; i < r->count; i++)
        if (r->steps[i].queue_index == queue_index)
            return i + 1;
    return 0;
}

static int is_ready(const dlc_captured_graph *r, const run_state *s,
                    int32_t queue_index) {
    size_t i = s->next[queue_index];
    if (i == 0)
        return 0;
    size_t waits = r->steps[i - 1].waits;
    return waits == 0 || s->done[waits];
}

/* A queue that can continue, each with equal probability; -1: none. */
static int32_t choose(dlc_captured_graph *r, const run_state *s) {
    int32_t ready[QUEUES], count = 0;
    for (int32_t queue_index = 0; queue_index < r->queues; queue_index++)
        if (is_ready(r, s, queue_index))
            ready[count++] = queue_index;
    return count > 0 ? ready[random_below(&r->random, (uint64_t)count)] : -1;
}

static dlc_status run_steps(dlc_captured_graph *r) {
    run_state s = {.done = calloc(r->count + 1, 1)};
    dlc_status status = s.done ? DLC_OK : DLC_ERR_NOMEM;
    for (int32_t queue_index = 0; queue_index < r->queues; queue_index++)
        s.next[queue_index] = following(r, 0, queue_index);
    for (int32_t queue_index; status == DLC_OK && (queue_index = choose(r, &s)) >= 0;) {
        size_t i = s.next[queue_index];
        const work *w = r->steps[i - 1].work;
        if (!r->device->is_lazy)
            random_pause(&r->random, r->device->pause_us);
        if (w->run)
            status = w->run(w->args);
        s.done[i] = 1;
        s.next[queue_index] = following(r, i, queue_index);
    }
    free(s.done);
    return status;
}

static dlc_captured_graph *graph_of(const void *args) {
    dlc_captured_graph *r;
    memcpy(&r, args, sizeof(dlc_captured_graph *));
    return r;
}

static dlc_status work_run(const void *args) {
    dlc_captured_graph *r = graph_of(args);
    lock();
    while (r->running)
        (void)pthread_cond_wait(&async_done, &async_lock);
    r->running = 1;
    unlock();
    dlc_status status = run_steps(r);
    lock();
    r->running = 0;
    (void)pthread_cond_broadcast(&async_done);
    unlock();
    return status;
}

static void work_drop(const void *args) {
    graph_release(graph_of(args));
}

dlc_status graph_launch(dlc_device *device, dlc_queue *queue,
                        dlc_captured_graph *graph) {
    (void)device;
    dlc_status status = capture_refuse("graph_launch");
    if (status != DLC_OK || !queue)
        return status == DLC_OK ? work_run(&graph) : status;
    work *w = work_make(work_run, &graph, sizeof(dlc_captured_graph *));
    if (!w)
        return DLC_ERR_NOMEM;
    lock();
    graph->refs++;
    unlock();
    w->drop = work_drop;
    work_append(queue, w);
    return DLC_OK;
}

void graph_close(dlc_device *device, dlc_captured_graph *graph) {
    (void)device;
    lock();
    graph_release(graph);
    unlock();
}
