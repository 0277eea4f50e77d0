/* Queues: a thread each, which does work in the order in which it was submitted. One
 * lock is enough for a simulation; nobody holds it while work is done. */
#include "accelerator.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The longest sentence of an error. */
enum { SENTENCE = 256 };

typedef struct work work;
struct work {
    work *next;
    work_run *run;
    size_t bytes;
    _Alignas(16) unsigned char args[];
};

typedef struct work_list {
    work *first, *last;
} work_list;

/* A graph is done in the order in which its work was submitted, whatever the queue:
 * that order obeys all events. */
struct dlc_captured_graph {
    work_list list;
    int is_invalid; /* a blocking call was made while it was captured */
};

struct dlc_queue {
    pthread_t thread;
    work_list list;
    int is_busy, is_closing;
    dlc_captured_graph *capture; /* which gets the work instead; NULL: none */
    dlc_queue *next;             /* in the list of all queues */
    dlc_status status;           /* of the work that failed first */
    char sentence[SENTENCE];
};

/* A place is the number of times that the event was recorded so far. */
struct dlc_event {
    uint64_t recorded, done;
    dlc_captured_graph *capture; /* in which it was recorded last; NULL: none */
    int users;                   /* who opened it, and work of queues */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static dlc_queue *all_queues;

static void enter(void) {
    (void)pthread_mutex_lock(&lock);
}

static void leave(void) {
    (void)pthread_cond_broadcast(&changed);
    (void)pthread_mutex_unlock(&lock);
}

static void sleep_until_change(void) {
    (void)pthread_cond_wait(&changed, &lock);
}

/* ---- Work ------------------------------------------------------------------- */

/* Of the thread of a queue: where its work puts the sentence of an error. */
static _Thread_local char *sentence_of_queue;

dlc_status work_fail(dlc_status status, const char *format, ...) {
    char text[SENTENCE];
    va_list values;
    va_start(values, format);
    (void)vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (!sentence_of_queue)
        return host->fail(status, "%s", text);
    memcpy(sentence_of_queue, text, sizeof text);
    return status;
}

static void append(work_list *list, work *added) {
    if (list->first)
        list->last->next = added;
    else
        list->first = added;
    list->last = added;
}

dlc_status submit(dlc_queue *queue, work_run *run, const void *args, size_t bytes) {
    if (!queue)
        return run(args);
    work *made = host->alloc(sizeof *made + bytes);
    if (!made)
        return DLC_ERR_NOMEM;
    made->run = run;
    made->bytes = bytes;
    memcpy(made->args, args, bytes);
    enter();
    append(queue->capture ? &queue->capture->list : &queue->list, made);
    leave();
    return DLC_OK;
}

/* Call with the lock, which is released meanwhile. */
static void do_next(dlc_queue *queue) {
    work *next = queue->list.first;
    char text[SENTENCE] = "";
    queue->list.first = next->next;
    queue->is_busy = 1;
    leave();
    sentence_of_queue = text;
    dlc_status status = next->run(next->args);
    host->free(next);
    enter();
    queue->is_busy = 0;
    if (status != DLC_OK && queue->status == DLC_OK) {
        queue->status = status;
        memcpy(queue->sentence, text, sizeof text);
    }
    (void)pthread_cond_broadcast(&changed);
}

static void *serve(void *context) {
    dlc_queue *queue = context;
    enter();
    for (;;) {
        while (!queue->list.first && !queue->is_closing)
            sleep_until_change();
        if (!queue->list.first)
            break;
        do_next(queue);
    }
    leave();
    return NULL;
}

/* ---- Queues ----------------------------------------------------------------- */

static dlc_status queue_open(dlc_device *device, dlc_queue **queue) {
    (void)device;
    dlc_queue *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    int error = pthread_create(&made->thread, NULL, serve, made);
    if (error) {
        host->free(made);
        return host->fail(DLC_ERR_DEVICE, "no thread for a queue: %s", strerror(error));
    }
    enter();
    made->next = all_queues;
    all_queues = made;
    leave();
    *queue = made;
    return DLC_OK;
}

/* The thread ends when nothing is left to do. */
static void queue_close(dlc_device *device, dlc_queue *queue) {
    (void)device;
    enter();
    queue->is_closing = 1;
    dlc_queue **at = &all_queues;
    while (*at != queue)
        at = &(*at)->next;
    *at = queue->next;
    leave();
    (void)pthread_join(queue->thread, NULL);
    host->free(queue);
}

static dlc_status queue_sync(dlc_device *device, dlc_queue *queue) {
    (void)device;
    enter();
    int is_captured = queue->capture != NULL;
    if (is_captured)
        queue->capture->is_invalid = 1;
    while (!is_captured && (queue->list.first || queue->is_busy))
        sleep_until_change();
    dlc_status status = queue->status;
    leave();
    if (is_captured)
        return host->fail(DLC_ERR_DEVICE, "a queue is synchronized while its work is "
                                          "captured");
    return status == DLC_OK ? DLC_OK : host->fail(status, "%s", queue->sentence);
}

/* ---- Events ----------------------------------------------------------------- */

typedef struct place {
    dlc_event *event;
    uint64_t number;
} place;

static void release_event(dlc_event *event) {
    if (--event->users == 0)
        host->free(event);
}

static dlc_status run_mark(const void *args) {
    const place *p = args;
    enter();
    if (p->event->done < p->number)
        p->event->done = p->number;
    release_event(p->event);
    leave();
    return DLC_OK;
}

static dlc_status run_wait(const void *args) {
    const place *p = args;
    enter();
    while (p->event->done < p->number)
        sleep_until_change();
    release_event(p->event);
    leave();
    return DLC_OK;
}

static dlc_status event_open(dlc_device *device, dlc_event **event) {
    (void)device;
    dlc_event *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->users = 1;
    *event = made;
    return DLC_OK;
}

static void event_close(dlc_device *device, dlc_event *event) {
    (void)device;
    enter();
    release_event(event);
    leave();
}

static dlc_status event_record(dlc_device *device, dlc_queue *queue, dlc_event *event) {
    (void)device;
    enter();
    event->capture = queue->capture;
    int is_captured = event->capture != NULL;
    place p = {event, event->recorded};
    if (!is_captured) {
        p.number = ++event->recorded;
        event->users++;
    }
    leave();
    return is_captured ? DLC_OK : submit(queue, run_mark, &p, sizeof p);
}

/* A queue that waits for an event of a capture takes part in it. */
static dlc_status event_wait(dlc_device *device, dlc_queue *queue, dlc_event *event) {
    (void)device;
    enter();
    if (event->capture)
        queue->capture = event->capture;
    int is_captured = queue->capture != NULL;
    const place p = {event, event->recorded};
    if (!is_captured)
        event->users++;
    leave();
    return is_captured ? DLC_OK : submit(queue, run_wait, &p, sizeof p);
}

static dlc_status event_done(dlc_device *device, dlc_event *event, int *done) {
    (void)device;
    enter();
    *done = event->done == event->recorded;
    leave();
    return DLC_OK;
}

static dlc_status event_sync(dlc_device *device, dlc_event *event) {
    (void)device;
    enter();
    while (event->done < event->recorded)
        sleep_until_change();
    leave();
    return DLC_OK;
}

/* ---- Captured graphs -------------------------------------------------------- */

static dlc_status capture_begin(dlc_device *device, dlc_queue *queue) {
    (void)device;
    dlc_captured_graph *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    enter();
    queue->capture = made;
    leave();
    return DLC_OK;
}

static void graph_close(dlc_device *device, dlc_captured_graph *graph) {
    (void)device;
    for (work *w = graph->list.first; w;) {
        work *gone = w;
        w = w->next;
        host->free(gone);
    }
    host->free(graph);
}

static dlc_status capture_end(dlc_device *device, dlc_queue *queue,
                              dlc_captured_graph **graph) {
    enter();
    dlc_captured_graph *made = queue->capture;
    for (dlc_queue *each = all_queues; each; each = each->next)
        if (each->capture == made)
            each->capture = NULL;
    leave();
    if (graph && !made->is_invalid) {
        *graph = made;
        return DLC_OK;
    }
    graph_close(device, made);
    return graph
               ? host->fail(DLC_ERR_DEVICE, "the capture is invalid, since a blocking "
                                            "call was made")
               : DLC_OK;
}

static dlc_status graph_launch(dlc_device *device, dlc_queue *queue,
                               dlc_captured_graph *graph) {
    (void)device;
    dlc_status status = DLC_OK;
    for (const work *w = graph->list.first; w && status == DLC_OK; w = w->next)
        status = submit(queue, w->run, w->args, w->bytes);
    return status;
}

/* ---- Semaphores ------------------------------------------------------------- */

static dlc_status run_semaphore(const void *args) {
    const dlc_semaphore_op *op = args;
    const struct timespec pause = {.tv_nsec = 20000};
    _Atomic uint32_t *semaphore = (_Atomic uint32_t *)op->semaphore;
    if (op->kind == DLC_SEMAPHORE_WRITE)
        atomic_store(semaphore, op->value);
    else
        while ((int32_t)(atomic_load(semaphore) - op->value) < 0)
            (void)nanosleep(&pause, NULL);
    return DLC_OK;
}

static dlc_status queue_semaphores(dlc_device *device, dlc_queue *queue,
                                   const dlc_semaphore_op *ops, int32_t count) {
    (void)device;
    dlc_status status = DLC_OK;
    for (int32_t i = 0; i < count && status == DLC_OK; i++)
        status = submit(queue, run_semaphore, &ops[i], sizeof ops[i]);
    return status;
}

const dlc_device_queue_ops queue_ops = {
    .size = sizeof queue_ops,
    .queue_open = queue_open,
    .queue_close = queue_close,
    .queue_sync = queue_sync,
    .event_open = event_open,
    .event_close = event_close,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_done = event_done,
    .event_sync = event_sync,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_launch = graph_launch,
    .graph_close = graph_close,
    .queue_semaphores = queue_semaphores,
};
