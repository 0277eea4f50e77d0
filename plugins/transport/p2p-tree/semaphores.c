/* Synchronizes the ranks' device queues without the CPU: by semaphores in host memory
 * that the queues of all ranks write and wait for (queue_semaphores of
 * dlc_device_queue_ops).
 *
 * Shared events would do as well, but for two things: the CPU of the rank that records
 * it has to announce that an event was recorded before another queue can wait for it,
 * and they cannot be part of a captured graph. A semaphore needs neither; but a
 * captured graph writes the same values at every launch. So a semaphore goes back to 0
 * each time:
 *
 *     a rank signals     writes 1, 2, ... to its semaphore of a phase in another
 *                        rank's memory,
 *     the other waits    for these, and clears the semaphore after the last of them.
 *
 * This requires that a rank signals again in one phase only when the other has cleared
 * the semaphore. The order of phases ensures it: each collective begins with a barrier
 * ENTER and ends with a barrier LEAVE. A rank that comes to the next ENTER has seen the
 * others' LEAVE, which they signal after clearing everything before it; and a rank that
 * comes to LEAVE has seen their ENTER, which comes after their clearing of the last
 * LEAVE.
 *
 * When a rank is lost, its semaphores are never written, and a queue that waits for
 * them cannot be cancelled otherwise. So a thread writes them in its place, repeatedly,
 * until the queue has drained; the results are discarded.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "p2p.h"

enum {
    STRIDE = LINE / sizeof(uint32_t), /* each semaphore has a cache line of its own */
    CLEARED = 0,
    ENOUGH = INT32_MAX, /* ends any wait */
};

struct semaphores {
    dlc_memory memory; /* owned; registered as an arena, too */
    uint32_t arena;
    int32_t phases;
    dlc_semaphore_op *steps; /* owned; room for the operations of one call */
    int32_t count;
    dlc_status failed; /* first error of poll */
    pthread_t thread;
    int has_thread;
    atomic_int stop;
};

/* ---- Opening and closing -------------------------------------------------------- */

static int32_t count_phases(const dlc_endpoint *e) {
    int32_t levels = 0;
    while (1 << levels < e->ranks)
        levels++;
    return PHASE_STAGE + 2 * levels;
}

static size_t count_semaphores(const dlc_endpoint *e, const semaphores *w) {
    return (size_t)w->phases * (size_t)e->ranks * STRIDE;
}

static dlc_status make(const dlc_endpoint *e, semaphores **made) {
    const dlc_transport_args *args = e->args;
    if (!DLC_CAN(args->device_ops, queues) ||
        !DLC_CAN(args->device_ops->queues, queue_semaphores))
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "the device has no semaphores for queues");
    dlc_status status = args->device_ops->queues->queue_semaphores(args->device, NULL,
                                                                   NULL, 0);
    if (status != DLC_OK)
        return status;
    semaphores *w = *made = host->alloc(sizeof *w);
    if (!w)
        return DLC_ERR_NOMEM;
    w->phases = count_phases(e);
    w->memory.size = sizeof w->memory;
    w->steps = host->alloc(3 * (size_t)e->ranks * sizeof *w->steps);
    if (!w->steps)
        return DLC_ERR_NOMEM;
    return args->device_ops->alloc(args->device,
                                   count_semaphores(e, w) * sizeof(uint32_t),
                                   DLC_MEM_SHARED | DLC_MEM_STAGING, &w->memory);
}

/* Do all ranks have semaphores? */
static dlc_status all_can(const dlc_endpoint *e, dlc_status mine, int *can) {
    const dlc_transport_args *args = e->args;
    dlc_status *all = host->alloc((size_t)e->ranks * sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = args->oob_all_gather(args->job, &mine, sizeof mine, all);
    *can = 1;
    for (int32_t r = 0; status == DLC_OK && r < e->ranks; r++)
        *can &= all[r] == DLC_OK;
    host->free(all);
    return status;
}

dlc_status semaphores_open(dlc_endpoint *e) {
    semaphores *w = NULL;
    int can = 0;
    if (e->host_memory || e->ranks == 1)
        return DLC_OK;
    dlc_status mine = make(e, &w);
    e->arenas->semaphores = w;
    dlc_status status = all_can(e, mine, &can);
    if (status == DLC_OK && can && w) {
        w->arena = e->arenas->count;
        mine = arenas_register(e, &w->memory); /* on all ranks or on none */
        can = mine == DLC_OK;
        status = e->args->check(e->args->job);
    }
    if (status != DLC_OK || can)
        return status;
    if (mine != DLC_OK)
        host->log(DLC_LOG_DEBUG, "p2p-tree: this device has no semaphores for its "
                                 "queues: the CPU waits between steps");
    semaphores_close(e);
    return DLC_OK;
}

void semaphores_close(dlc_endpoint *e) {
    semaphores *w = e->arenas->semaphores;
    if (!w)
        return;
    if (w->has_thread) {
        atomic_store(&w->stop, 1);
        (void)pthread_join(w->thread, NULL);
    }
    if (w->memory.base)
        e->args->device_ops->free(e->args->device, &w->memory);
    host->free(w->steps);
    host->free(w);
    e->arenas->semaphores = NULL;
}

/* ---- Signal, wait, barrier ------------------------------------------------------ */

/* The semaphore in the memory of `rank` that `sender` writes. */
static uint32_t *semaphore_at(const dlc_endpoint *e, int32_t rank, int32_t phase,
                              int32_t sender) {
    const semaphores *w = e->arenas->semaphores;
    uint32_t *all = e->arenas->list[w->arena].memory[rank].base;
    return all + ((size_t)phase * (size_t)e->ranks + (size_t)sender) * STRIDE;
}

static void add(semaphores *w, dlc_semaphore_kind kind, uint32_t *semaphore,
                uint32_t value) {
    w->steps[w->count++] = (dlc_semaphore_op){kind, value, semaphore};
}

static void add_signal(const dlc_endpoint *e, const span *to, uint32_t value) {
    for (int32_t r = to->first; r < to->end; r++)
        if (r != e->rank)
            add(e->arenas->semaphores, DLC_SEMAPHORE_WRITE,
                semaphore_at(e, r, to->phase, e->rank), value);
}

static void add_wait(const dlc_endpoint *e, const span *from, uint32_t value,
                     int is_last) {
    for (int32_t r = from->first; r < from->end; r++)
        if (r != e->rank)
            add(e->arenas->semaphores, DLC_SEMAPHORE_WAIT,
                semaphore_at(e, e->rank, from->phase, r), value);
    for (int32_t r = from->first; r < from->end && is_last; r++)
        if (r != e->rank)
            add(e->arenas->semaphores, DLC_SEMAPHORE_WRITE,
                semaphore_at(e, e->rank, from->phase, r), CLEARED);
}

static dlc_status submit(const dlc_endpoint *e, dlc_queue *order) {
    const dlc_transport_args *args = e->args;
    semaphores *w = e->arenas->semaphores;
    int32_t count = w->count;
    w->count = 0;
    if (count == 0)
        return DLC_OK;
    return args->device_ops->queues->queue_semaphores(args->device, order, w->steps,
                                                      count);
}

dlc_status semaphores_signal(const dlc_endpoint *e, dlc_queue *order, const span *to,
                             uint32_t value) {
    add_signal(e, to, value);
    return submit(e, order);
}

dlc_status semaphores_wait(const dlc_endpoint *e, dlc_queue *order, const span *from,
                           uint32_t value, int is_last) {
    add_wait(e, from, value, is_last);
    return submit(e, order);
}

dlc_status semaphores_barrier(const dlc_endpoint *e, dlc_queue *order, int32_t phase) {
    span all = {phase, 0, e->ranks};
    add_signal(e, &all, 1);
    add_wait(e, &all, 1, 1);
    return submit(e, order);
}

/* ---- Cancelling after a failure ------------------------------------------------- */

static void *release_main(void *context) {
    const struct timespec pause = {.tv_nsec = 100000};
    const dlc_endpoint *e = context;
    semaphores *w = e->arenas->semaphores;
    while (!atomic_load(&w->stop)) {
        for (int32_t phase = 0; phase < w->phases; phase++)
            for (int32_t r = 0; r < e->ranks; r++)
                __atomic_store_n(semaphore_at(e, e->rank, phase, r), ENOUGH,
                                 __ATOMIC_SEQ_CST);
        (void)nanosleep(&pause, NULL);
    }
    return NULL;
}

dlc_status semaphores_poll(dlc_endpoint *e) {
    semaphores *w = e->arenas->semaphores;
    if (!w)
        return e->args->check(e->args->job);
    if (w->failed != DLC_OK)
        return host->fail(w->failed, "this transport has failed before");
    dlc_status status = e->args->check(e->args->job);
    if (status == DLC_OK)
        return DLC_OK;
    w->failed = status;
    int error = pthread_create(&w->thread, NULL, release_main, e);
    w->has_thread = error == 0;
    if (error != 0)
        host->log(DLC_LOG_ERROR,
                  "cannot start the thread that cancels waits on the device: %s",
                  strerror(error));
    return status;
}
