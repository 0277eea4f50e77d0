/* Queues, which are threads, and events, which are points in them. */
#include <errno.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "async.h"

pthread_mutex_t async_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t async_done = PTHREAD_COND_INITIALIZER;

static void lock(void) {
    (void)pthread_mutex_lock(&async_lock);
}

static void unlock(void) {
    (void)pthread_mutex_unlock(&async_lock);
}

/* xorshift64* (Vigna 2016). */
uint64_t random_below(uint64_t *state, uint64_t most) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (*state * UINT64_C(0x2545F4914F6CDD1D) >> 16) % most;
}

void random_pause(uint64_t *state, int64_t most_us) {
    uint64_t what = random_below(state, 8);
    if (what < 2 && most_us > 0) {
        uint64_t us = random_below(state, (uint64_t)most_us + 1);
        const struct timespec pause = {(time_t)(us / 1000000),
                                       (long)(us % 1000000) * 1000};
        (void)nanosleep(&pause, NULL);
    } else if (what < 5) {
        (void)sched_yield();
    }
}

/* ---- Points: called with the lock held ----------------------------------- */

static void point_release(point *p) {
    if (p && --p->refs == 0)
        host->free(p);
}

static void point_assign(point **place, point *p) {
    if (p)
        p->refs++;
    point_release(*place);
    *place = p;
}

/* Somebody waits for a queue's work up to this. */
static void want(dlc_queue *queue, uint64_t place) {
    if (queue->wanted >= place)
        return;
    queue->wanted = place;
    (void)pthread_cond_signal(&queue->has_work);
}

static void want_point(const point *p) {
    if (p && !p->done && p->queue)
        want(p->queue, p->place);
}

static void wait_until_done(const point *p) {
    want_point(p);
    while (p && !p->done)
        (void)pthread_cond_wait(&async_done, &async_lock);
}

/* Until the work is wanted, or has been there for a while: what other processes wait
 * for is never wanted here. */
static void be_lazy(dlc_queue *queue, const work *w) {
    struct timespec until;
    int64_t us = queue->device->pause_us;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(us / 1000000);
    until.tv_nsec += (long)(us % 1000000) * 1000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    while (w->place > queue->wanted && !queue->stop)
        if (pthread_cond_timedwait(&queue->has_work, &async_lock, &until) == ETIMEDOUT)
            break;
}

/* ---- Work -------------------------------------------------------------------- */

work *work_make(work_fn *run, const void *args, size_t bytes) {
    work *w = host->alloc(sizeof *w + bytes);
    if (!w)
        return NULL;
    w->run = run;
    if (bytes > 0)
        memcpy(w->args, args, bytes);
    return w;
}

void work_free(work *w) {
    if (!w)
        return;
    if (w->drop)
        w->drop(w->args);
    point_release(w->wait);
    point_release(w->signal);
    host->free(w);
}

/* Call with the lock held. */
static void append(dlc_queue *queue, work *w) {
    w->place = ++queue->submitted;
    if (w->signal) {
        w->signal->queue = queue;
        w->signal->place = w->place;
    }
    *queue->last = w;
    queue->last = &w->next;
    (void)pthread_cond_signal(&queue->has_work);
}

void work_append(dlc_queue *queue, work *w) {
    lock();
    append(queue, w);
    unlock();
}

dlc_status work_submit(dlc_queue *queue, work_fn *run, const void *args, size_t bytes) {
    if (!queue) {
        dlc_status status = capture_refuse("work without a queue");
        return status == DLC_OK ? run(args) : status;
    }
    work *w = work_make(run, args, bytes);
    if (!w)
        return DLC_ERR_NOMEM;
    dlc_status status = DLC_OK;
    lock();
    if (is_captured(queue))
        status = capture_work(queue, w);
    else
        append(queue, w);
    unlock();
    return status;
}

/* For fakes of other libraries, which find it by its name. */
DLC_EXPORT dlc_status async_give(dlc_queue *queue, work_fn *run, const void *args,
                                 size_t bytes);
dlc_status async_give(dlc_queue *queue, work_fn *run, const void *args, size_t bytes) {
    return work_submit(queue, run, args, bytes);
}

/* Call without the lock, which only guards its points. */
static void run_work(dlc_queue *queue, const work *w) {
    lock();
    if (queue->device->is_lazy)
        be_lazy(queue, w);
    wait_until_done(w->wait);
    int go = w->run && queue->failed == DLC_OK;
    unlock();
    if (!queue->device->is_lazy)
        random_pause(&queue->random, queue->device->pause_us);
    dlc_status status = go ? w->run(w->args) : DLC_OK;
    lock();
    if (status != DLC_OK) {
        queue->failed = status;
        host->log(DLC_LOG_ERROR, "device async: work on a queue failed (%d)", status);
    }
    if (w->signal)
        w->signal->done = 1;
    unlock();
}

/* The layers' library reads this on each thread that calls it. */
void device_use_threads(const dlc_device *device) {
    int limit = omp_get_thread_limit();
    omp_set_num_threads(device->threads < limit ? device->threads : limit);
}

static void *queue_main(void *context) {
    dlc_queue *queue = context;
    device_use_threads(queue->device);
    lock();
    while (queue->first || !queue->stop) {
        work *w = queue->first;
        if (!w) {
            (void)pthread_cond_wait(&queue->has_work, &async_lock);
            continue;
        }
        queue->first = w->next;
        if (!queue->first)
            queue->last = &queue->first;
        queue->busy = 1;
        unlock();
        run_work(queue, w);
        lock();
        work_free(w);
        queue->busy = 0;
        (void)pthread_cond_broadcast(&async_done);
    }
    unlock();
    return NULL;
}

/* ---- Queues ------------------------------------------------------------------ */

dlc_status queue_open(dlc_device *device, dlc_queue **queue) {
    static _Atomic uint64_t opened;
    dlc_queue *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->device = device;
    made->queue_index = -1;
    made->last = &made->first;
    made->random = (device->seed + ++opened) * UINT64_C(0x9E3779B97F4A7C15) | 1;
    (void)pthread_cond_init(&made->has_work, NULL);
    int error = pthread_create(&made->thread, NULL, queue_main, made);
    if (error) {
        (void)pthread_cond_destroy(&made->has_work);
        host->free(made);
        return host->fail(DLC_ERR_NOMEM, "cannot start a queue's thread: %s",
                          strerror(error));
    }
    *queue = made;
    return DLC_OK;
}

/* Completes the queued work first. */
void queue_close(dlc_device *device, dlc_queue *queue) {
    (void)device;
    if (!queue)
        return;
    lock();
    queue->stop = 1;
    (void)pthread_cond_signal(&queue->has_work);
    unlock();
    (void)pthread_join(queue->thread, NULL);
    (void)pthread_cond_destroy(&queue->has_work);
    host->free(queue);
}

dlc_status queue_sync(dlc_device *device, dlc_queue *queue) {
    (void)device;
    dlc_status status = capture_refuse("queue_sync");
    if (!queue || status != DLC_OK)
        return status;
    lock();
    want(queue, queue->submitted);
    while (queue->first || queue->busy)
        (void)pthread_cond_wait(&async_done, &async_lock);
    status = queue->failed;
    unlock();
    return status == DLC_OK ? DLC_OK
                            : host->fail(status, "work on a queue of device async "
                                                 "failed");
}

/* ---- Events ------------------------------------------------------------------ */

dlc_status event_open(dlc_device *device, dlc_event **event) {
    (void)device;
    dlc_event *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    *event = made;
    return DLC_OK;
}

void event_close(dlc_device *device, dlc_event *event) {
    (void)device;
    if (!event)
        return;
    lock();
    point_release(event->last);
    unlock();
    host->free(event);
}

dlc_status event_record(dlc_device *device, dlc_queue *queue, dlc_event *event) {
    (void)device;
    dlc_status status = queue ? DLC_OK : capture_refuse("event_record without a queue");
    if (status != DLC_OK)
        return status;
    point *p = host->alloc(sizeof *p);
    work *w = work_make(NULL, NULL, 0);
    if (!p || !w) {
        host->free(p);
        host->free(w);
        return DLC_ERR_NOMEM;
    }
    lock();
    point_assign(&event->last, p);
    if (!queue) {
        p->done = 1;
        work_free(w);
    } else {
        point_assign(&w->signal, p);
        if (is_captured(queue))
            status = capture_work(queue, w);
        else
            append(queue, w);
    }
    unlock();
    return status;
}

/* An event captured in a capture is invalid outside of it. */
static dlc_status check_not_captured(const dlc_event *event, const char *call) {
    lock();
    int inside = event->last && event->last->graph_number > 0;
    unlock();
    if (!inside)
        return DLC_OK;
    return host->fail(DLC_ERR_DEVICE, "%s: the event is part of a captured graph",
                      call);
}

dlc_status event_wait(dlc_device *device, dlc_queue *queue, dlc_event *event) {
    if (!queue)
        return event_sync(device, event);
    work *w = work_make(NULL, NULL, 0);
    if (!w)
        return DLC_ERR_NOMEM;
    lock();
    point_assign(&w->wait, event->last);
    int captured = is_captured(queue) || (w->wait && w->wait->graph_number > 0);
    dlc_status status = DLC_OK;
    if (captured)
        status = capture_wait(queue, w);
    else
        append(queue, w);
    unlock();
    return status;
}

dlc_status event_done(dlc_device *device, dlc_event *event, int *done) {
    (void)device;
    dlc_status status = check_not_captured(event, "event_done");
    if (status != DLC_OK)
        return status;
    lock();
    want_point(event->last);
    *done = !event->last || event->last->done;
    unlock();
    return DLC_OK;
}

dlc_status event_sync(dlc_device *device, dlc_event *event) {
    (void)device;
    dlc_status status = capture_refuse("event_sync");
    if (status == DLC_OK)
        status = check_not_captured(event, "event_sync");
    if (status != DLC_OK)
        return status;
    point *p = NULL;
    lock();
    point_assign(&p, event->last);
    wait_until_done(p);
    point_release(p);
    unlock();
    return DLC_OK;
}
