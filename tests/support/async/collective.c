/* Passes of collective layers (dlc_layer_group). A layer of the cpu's family gathers in
 * the middle of a call, which here runs on a queue's thread; a layer of a device with
 * queues gathers while it submits work. So such a call has a thread of its own, one for
 * each net, and is two pieces of work on the queue: up to the gather, and from there
 * on. Between them the gather is submitted.
 *
 * Where in its scratch memory a layer gathers is learned from its first pass, for which
 * the submitting thread waits; later ones can be captured.
 */
#include <pthread.h>
#include <string.h>

#include "async.h"

typedef enum state { IDLE, RUNNING, GATHERING } state;

struct layer_thread {
    dlc_device *device;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    int started;

    /* Guarded by the lock: */
    int stop;
    state state;
    work_fn *run;
    void *args; /* own; of the call that runs */
    char *values;
    size_t bytes;
    dlc_status status; /* of the last call */
};

/* ---- The thread of the calls ----------------------------------------------------- */

static void set_state(layer_thread *c, state now) {
    c->state = now;
    (void)pthread_cond_broadcast(&c->changed);
}

/* Call with the lock held. */
static void wait_while(layer_thread *c, state now) {
    while (c->state == now && !c->stop)
        (void)pthread_cond_wait(&c->changed, &c->lock);
}

static void *call_main(void *context) {
    layer_thread *c = context;
    device_use_threads(c->device);
    (void)pthread_mutex_lock(&c->lock);
    for (;;) {
        wait_while(c, IDLE);
        if (c->state == IDLE)
            break;
        (void)pthread_mutex_unlock(&c->lock);
        dlc_status status = c->run(c->args);
        (void)pthread_mutex_lock(&c->lock);
        host->free(c->args);
        c->args = NULL;
        c->status = status;
        set_state(c, IDLE);
    }
    (void)pthread_mutex_unlock(&c->lock);
    return NULL;
}

dlc_status layer_thread_gather(void *context, void *values, size_t bytes) {
    layer_thread *c = context;
    (void)pthread_mutex_lock(&c->lock);
    c->values = values;
    c->bytes = bytes;
    set_state(c, GATHERING);
    wait_while(c, GATHERING);
    int is_done = c->state == RUNNING;
    c->state = RUNNING;
    (void)pthread_mutex_unlock(&c->lock);
    return is_done ? DLC_OK : host->fail(DLC_ERR_CANCELLED, "the net is being closed");
}

dlc_status layer_thread_open(dlc_device *device, layer_thread **made) {
    layer_thread *c = host->alloc(sizeof *c);
    if (!c)
        return DLC_ERR_NOMEM;
    c->device = device;
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->changed, NULL);
    *made = c;
    return DLC_OK;
}

void layer_thread_close(layer_thread *c) {
    if (!c)
        return;
    (void)pthread_mutex_lock(&c->lock);
    c->stop = 1;
    (void)pthread_cond_broadcast(&c->changed);
    (void)pthread_mutex_unlock(&c->lock);
    if (c->started)
        (void)pthread_join(c->thread, NULL);
    (void)pthread_cond_destroy(&c->changed);
    (void)pthread_mutex_destroy(&c->lock);
    host->free(c);
}

/* ---- The two pieces of work ------------------------------------------------------ */

typedef struct first_piece {
    layer_thread *c;
    work_fn *run;
    size_t bytes;
    gather_place expected;
    const char *scratch;
    _Alignas(16) unsigned char args[];
} first_piece;

/* Call with the lock held, with the call at its gather or at its end. */
static gather_place find_place(const layer_thread *c, const char *scratch) {
    if (c->state != GATHERING)
        return (gather_place){.is_known = 1};
    return (gather_place){.is_known = 1,
                          .gathers = 1,
                          .offset = (size_t)(c->values - scratch),
                          .bytes = c->bytes};
}

static int is_same_place(const gather_place *a, const gather_place *b) {
    return a->gathers == b->gathers && a->offset == b->offset && a->bytes == b->bytes;
}

static dlc_status run_first(const void *args) {
    const first_piece *w = args;
    layer_thread *c = w->c;
    void *copy = host->alloc(w->bytes);
    if (!copy)
        return DLC_ERR_NOMEM;
    memcpy(copy, w->args, w->bytes);
    (void)pthread_mutex_lock(&c->lock);
    c->run = w->run;
    c->args = copy;
    set_state(c, RUNNING);
    wait_while(c, RUNNING);
    dlc_status status = c->state == IDLE ? c->status : DLC_OK;
    gather_place place = find_place(c, w->scratch);
    (void)pthread_mutex_unlock(&c->lock);
    if (status == DLC_OK && w->expected.is_known &&
        !is_same_place(&place, &w->expected))
        return host->fail(DLC_ERR_INTERNAL, "a layer gathers otherwise than before");
    return status;
}

static dlc_status run_second(const void *args) {
    layer_thread *c = *(layer_thread *const *)args;
    (void)pthread_mutex_lock(&c->lock);
    set_state(c, RUNNING);
    wait_while(c, RUNNING);
    dlc_status status = c->state == IDLE
                            ? c->status
                            : host->fail(DLC_ERR_INTERNAL, "a layer gathers twice");
    (void)pthread_mutex_unlock(&c->lock);
    return status;
}

static dlc_status submit_first(layer_thread *c, dlc_queue *queue,
                               const collective_call *call,
                               const gather_place *expected) {
    first_piece *w = host->alloc(sizeof *w + call->bytes);
    if (!w)
        return DLC_ERR_NOMEM;
    *w = (first_piece){.c = c,
                       .run = call->run,
                       .bytes = call->bytes,
                       .expected = *expected,
                       .scratch = call->scratch};
    memcpy(w->args, call->args, call->bytes);
    dlc_status status = work_submit(queue, run_first, w, sizeof *w + call->bytes);
    host->free(w);
    return status;
}

static dlc_status start(layer_thread *c) {
    if (c->started)
        return DLC_OK;
    int error = pthread_create(&c->thread, NULL, call_main, c);
    if (error)
        return host->fail(DLC_ERR_NOMEM, "cannot start a thread: %s", strerror(error));
    c->started = 1;
    return DLC_OK;
}

static dlc_status learn(layer_thread *c, dlc_queue *queue, const char *scratch,
                        gather_place *place) {
    dlc_status status = queue_sync(c->device, queue);
    if (status != DLC_OK)
        return status;
    (void)pthread_mutex_lock(&c->lock);
    *place = find_place(c, scratch);
    (void)pthread_mutex_unlock(&c->lock);
    return DLC_OK;
}

dlc_status collective_pass(layer_thread *c, dlc_queue *queue,
                           const dlc_layer_group *group, const collective_call *call,
                           gather_place *place) {
    dlc_status status = start(c);
    if (status == DLC_OK)
        status = submit_first(c, queue, call, place);
    if (status == DLC_OK && !place->is_known)
        status = learn(c, queue, call->scratch, place);
    if (status != DLC_OK || !place->gathers)
        return status;
    status = group->all_gather(
        group->context, to_device_address(call->scratch + place->offset), place->bytes);
    return status == DLC_OK ? work_submit(queue, run_second, &c, sizeof(layer_thread *))
                            : status;
}
