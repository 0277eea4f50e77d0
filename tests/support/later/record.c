/* Recordings: the work of queues, noted and run again.
 *
 * A recording is a list of steps, each in the lane of the queue that it was given to;
 * a step may wait for a step of another lane. A run does them one after the other in
 * any order that these two rules allow, another one each time: what was not told to
 * wait for something may well come before it.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "later.h"

enum { LANES = 64 };

typedef struct step {
    work *work;   /* own */
    int32_t lane; /* 0: of the queue that record_begin was called with */
    size_t waits; /* for the step before this number; 0: for none */
} step;

struct dlc_recording {
    dlc_device *device;
    uint64_t number; /* 1, 2, ... */
    step *steps;     /* own */
    size_t count, room;
    int32_t lanes;
    uint64_t random;
    int refs, running; /* with the lock */
};

/* The recording that is made; one at a time. With the lock. */
static struct {
    dlc_recording *made; /* NULL: none */
    pthread_t thread;
    dlc_queue *lane[LANES];
    const char *spoiled; /* why; NULL: it is not */
} now;
static uint64_t begun;

static void lock(void) {
    (void)pthread_mutex_lock(&later_lock);
}

static void unlock(void) {
    (void)pthread_mutex_unlock(&later_lock);
}

static void let_go(dlc_recording *r) {
    if (!r || --r->refs > 0)
        return;
    for (size_t i = 0; i < r->count; i++)
        work_free(r->steps[i].work);
    free(r->steps);
    host->free(r);
}

static dlc_status spoil(const char *why) {
    if (!now.spoiled)
        now.spoiled = why;
    return host->fail(DLC_ERR_DEVICE, "while a recording is made: %s", why);
}

dlc_status must_not_record(const char *call) {
    lock();
    int mine = now.made && pthread_equal(now.thread, pthread_self());
    dlc_status status = mine ? spoil(call) : DLC_OK;
    unlock();
    return status;
}

int is_recorded(const dlc_queue *queue) {
    return now.made && queue->lane >= 0;
}

/* ---- Making one -------------------------------------------------------------- */

static step *add_step(dlc_recording *r) {
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

/* Takes the work over, also when it fails. */
static dlc_status note(dlc_queue *queue, work *w, size_t waits) {
    step *added = add_step(now.made);
    if (!added) {
        work_free(w);
        return spoil("memory ran out");
    }
    *added = (step){.work = w, .lane = queue->lane, .waits = waits};
    if (w->signal) {
        w->signal->recording = now.made->number;
        w->signal->step = now.made->count;
    }
    return DLC_OK;
}

dlc_status record_work(dlc_queue *queue, work *w) {
    return note(queue, w, 0);
}

static dlc_status refuse(work *w, const char *why) {
    work_free(w);
    return now.made ? spoil(why) : host->fail(DLC_ERR_DEVICE, "%s", why);
}

dlc_status record_wait(dlc_queue *queue, work *w) {
    const point *p = w->wait;
    if (!p)
        return refuse(w, "a queue waits for an event that was never recorded");
    if (!now.made || p->recording != now.made->number)
        return refuse(w, p->recording > 0
                             ? "a queue waits for an event of a recording that ended"
                             : "a queue waits for an event from outside of it");
    if (queue->lane < 0) {
        if (now.made->lanes == LANES)
            return refuse(w, "too many queues");
        queue->lane = now.made->lanes++;
        now.lane[queue->lane] = queue;
    }
    return note(queue, w, p->step);
}

dlc_status record_begin(dlc_device *device, dlc_queue *queue) {
    if (!queue)
        return host->fail(DLC_ERR_CONFIG, "a recording needs a queue");
    dlc_recording *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    lock();
    if (now.made) {
        unlock();
        host->free(made);
        return host->fail(DLC_ERR_DEVICE, "there is a recording being made already");
    }
    made->device = device;
    made->number = ++begun;
    made->random = (device->seed + made->number) * UINT64_C(0x9E3779B97F4A7C15) | 1;
    made->refs = 1;
    made->lanes = 1;
    now.made = made;
    now.thread = pthread_self();
    now.spoiled = NULL;
    now.lane[0] = queue;
    queue->lane = 0;
    unlock();
    return DLC_OK;
}

/* The last step of `lane` before number `i`, counted from 1; 0: none. */
static size_t before(const dlc_recording *r, size_t i, int32_t lane) {
    while (i > 0 && r->steps[i - 1].lane != lane)
        i--;
    return i;
}

/* Does the end of lane 0 come after all work? */
static int all_came_back(const dlc_recording *r) {
    char *reached = calloc(r->count + 1, 1);
    if (!reached)
        return 0;
    reached[before(r, r->count, 0)] = 1;
    int all = 1;
    for (size_t i = r->count; i > 0; i--) {
        const step *s = &r->steps[i - 1];
        if (reached[i]) {
            reached[before(r, i - 1, s->lane)] = 1;
            reached[s->waits] = 1;
        } else if (s->work->run) {
            all = 0;
        }
    }
    free(reached);
    return all;
}

dlc_status record_end(dlc_device *device, dlc_queue *queue, dlc_recording **recording) {
    (void)device;
    lock();
    dlc_recording *made = now.made;
    if (!made || now.lane[0] != queue) {
        unlock();
        return host->fail(DLC_ERR_DEVICE, "no recording was begun with this queue");
    }
    const char *why = now.spoiled;
    for (int32_t i = 0; i < made->lanes; i++)
        now.lane[i]->lane = -1;
    now.made = NULL;
    if (!why && !all_came_back(made))
        why = "a queue did not come back to it";
    if (recording && !why)
        *recording = made;
    else
        let_go(made);
    unlock();
    return recording && why
               ? host->fail(DLC_ERR_DEVICE, "the recording is spoiled: %s", why)
               : DLC_OK;
}

/* ---- Running it -------------------------------------------------------------- */

typedef struct run_state {
    size_t next[LANES]; /* number of the lane's next step; 0: it is through */
    char *done;         /* own; by the step's number */
} run_state;

static size_t following(const dlc_recording *r, size_t i, int32_t lane) {
    for (; i < r->count; i++)
        if (r->steps[i].lane == lane)
            return i + 1;
    return 0;
}

static int is_ready(const dlc_recording *r, const run_state *s, int32_t lane) {
    size_t i = s->next[lane];
    if (i == 0)
        return 0;
    size_t waits = r->steps[i - 1].waits;
    return waits == 0 || s->done[waits];
}

/* A lane that can go on, each as likely; -1: none. */
static int32_t choose(dlc_recording *r, const run_state *s) {
    int32_t ready[LANES], count = 0;
    for (int32_t lane = 0; lane < r->lanes; lane++)
        if (is_ready(r, s, lane))
            ready[count++] = lane;
    return count > 0 ? ready[random_below(&r->random, (uint64_t)count)] : -1;
}

static dlc_status run_steps(dlc_recording *r) {
    run_state s = {.done = calloc(r->count + 1, 1)};
    dlc_status status = s.done ? DLC_OK : DLC_ERR_NOMEM;
    for (int32_t lane = 0; lane < r->lanes; lane++)
        s.next[lane] = following(r, 0, lane);
    for (int32_t lane; status == DLC_OK && (lane = choose(r, &s)) >= 0;) {
        size_t i = s.next[lane];
        const work *w = r->steps[i - 1].work;
        random_pause(&r->random, r->device->pause_us);
        if (w->run)
            status = w->run(w->args);
        s.done[i] = 1;
        s.next[lane] = following(r, i, lane);
    }
    free(s.done);
    return status;
}

static dlc_recording *recording_of(const void *args) {
    dlc_recording *r;
    memcpy(&r, args, sizeof(dlc_recording *));
    return r;
}

static dlc_status work_run(const void *args) {
    dlc_recording *r = recording_of(args);
    lock();
    while (r->running)
        (void)pthread_cond_wait(&later_done, &later_lock);
    r->running = 1;
    unlock();
    dlc_status status = run_steps(r);
    lock();
    r->running = 0;
    (void)pthread_cond_broadcast(&later_done);
    unlock();
    return status;
}

static void work_drop(const void *args) {
    let_go(recording_of(args));
}

dlc_status record_run(dlc_device *device, dlc_queue *queue, dlc_recording *recording) {
    (void)device;
    dlc_status status = must_not_record("record_run");
    if (status != DLC_OK || !queue)
        return status == DLC_OK ? work_run(&recording) : status;
    work *w = work_make(work_run, &recording, sizeof(dlc_recording *));
    if (!w)
        return DLC_ERR_NOMEM;
    lock();
    recording->refs++;
    unlock();
    w->drop = work_drop;
    work_append(queue, w);
    return DLC_OK;
}

void record_close(dlc_device *device, dlc_recording *recording) {
    (void)device;
    lock();
    let_go(recording);
    unlock();
}
