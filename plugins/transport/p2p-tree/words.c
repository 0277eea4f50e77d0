/* Ranks that keep step in their queues, without the processor: by words of host memory
 * that the queues of all ranks write and wait for (dlc_device_ops.queue_words).
 *
 * Events that processes share would do as well, but for two things: somebody's
 * processor has to say that they were recorded before another queue waits for them,
 * and they are no part of a recording. A word needs neither; but in a recording its
 * values are the same at every run. So a word goes back to 0 each time:
 *
 *     a rank tells       writes 1, 2, ... to its word of a turn in another's memory,
 *     the other awaits   these, and clears the word behind the last of them.
 *
 * That is enough where a rank tells again, in the same turn, only when it knows that
 * the other has cleared it. Turns make sure of it: each collective begins in ENTER and
 * ends in LEAVE, where all wait for all. Who comes to the next ENTER has seen the
 * others' LEAVE, which they tell after they have cleared all before it; and who comes
 * to LEAVE has seen their ENTER, which comes after their clearing of the last LEAVE.
 *
 * When a rank is lost, the words that it owes are never written, and a queue that waits
 * for them can't be told otherwise. So a thread writes them in its place, again and
 * again, until the queue has run empty: what it computes then is nobody's. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "p2p.h"

enum {
    STRIDE = LINE / sizeof(uint32_t), /* each word is on a line of its own */
    CLEARED = 0,
    ENOUGH = INT32_MAX, /* ends any wait */
};

struct words {
    dlc_memory memory; /* own; an arena, too */
    uint32_t arena;
    int32_t turns;
    dlc_word_step *steps; /* own; room for those of one call */
    int32_t count;
    dlc_status failed; /* poll's first error */
    pthread_t thread;
    int has_thread;
    atomic_int stop;
};

/* ---- Opening and closing -------------------------------------------------------- */

static int32_t count_turns(const dlc_endpoint *e) {
    int32_t levels = 0;
    while (1 << levels < e->ranks)
        levels++;
    return TURN_STAGE + 2 * levels;
}

static size_t count_words(const dlc_endpoint *e, const words *w) {
    return (size_t)w->turns * (size_t)e->ranks * STRIDE;
}

static dlc_status make(const dlc_endpoint *e, words **made) {
    const dlc_transport_args *args = e->args;
    if (!DLC_CAN(args->device_ops, queue_words))
        return host->fail(DLC_ERR_UNSUPPORTED, "the device has no words for queues");
    dlc_status status = args->device_ops->queue_words(args->device, NULL, NULL, 0);
    if (status != DLC_OK)
        return status;
    words *w = *made = host->alloc(sizeof *w);
    if (!w)
        return DLC_ERR_NOMEM;
    w->turns = count_turns(e);
    w->memory.size = sizeof w->memory;
    w->steps = host->alloc(3 * (size_t)e->ranks * sizeof *w->steps);
    if (!w->steps)
        return DLC_ERR_NOMEM;
    return args->device_ops->alloc(args->device, count_words(e, w) * sizeof(uint32_t),
                                   DLC_MEM_SHARED | DLC_MEM_STAGING, &w->memory);
}

/* Can all ranks? */
static dlc_status all_can(const dlc_endpoint *e, dlc_status mine, int *can) {
    const dlc_transport_args *args = e->args;
    dlc_status *all = host->alloc((size_t)e->ranks * sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = args->allgather(args->job, &mine, sizeof mine, all);
    *can = 1;
    for (int32_t r = 0; status == DLC_OK && r < e->ranks; r++)
        *can &= all[r] == DLC_OK;
    host->free(all);
    return status;
}

dlc_status words_open(dlc_endpoint *e) {
    words *w = NULL;
    int can = 0;
    if (e->host_memory || e->ranks == 1)
        return DLC_OK;
    dlc_status mine = make(e, &w);
    e->arenas->words = w;
    dlc_status status = all_can(e, mine, &can);
    if (status == DLC_OK && can && w) {
        w->arena = e->arenas->count;
        mine = arenas_attach(e, &w->memory); /* by all, or none */
        can = mine == DLC_OK;
        status = e->args->check(e->args->job);
    }
    if (status != DLC_OK || can)
        return status;
    if (mine != DLC_OK)
        host->log(DLC_LOG_DEBUG, "p2p-tree: queues can't keep step with the other "
                                 "ranks': the processor does");
    words_close(e);
    return DLC_OK;
}

void words_close(dlc_endpoint *e) {
    words *w = e->arenas->words;
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
    e->arenas->words = NULL;
}

/* ---- Telling and waiting -------------------------------------------------------- */

/* In the memory of `rank`, what `sender` writes. */
static uint32_t *word_at(const dlc_endpoint *e, int32_t rank, int32_t turn,
                         int32_t sender) {
    const words *w = e->arenas->words;
    uint32_t *all = e->arenas->list[w->arena].memory[rank].base;
    return all + ((size_t)turn * (size_t)e->ranks + (size_t)sender) * STRIDE;
}

static void add(words *w, dlc_word_kind kind, uint32_t *word, uint32_t value) {
    w->steps[w->count++] = (dlc_word_step){kind, value, word};
}

static void add_tell(const dlc_endpoint *e, const span *to, uint32_t value) {
    for (int32_t r = to->first; r < to->end; r++)
        if (r != e->rank)
            add(e->arenas->words, DLC_WORD_WRITE, word_at(e, r, to->turn, e->rank),
                value);
}

static void add_await(const dlc_endpoint *e, const span *from, uint32_t value,
                      int is_last) {
    for (int32_t r = from->first; r < from->end; r++)
        if (r != e->rank)
            add(e->arenas->words, DLC_WORD_WAIT, word_at(e, e->rank, from->turn, r),
                value);
    for (int32_t r = from->first; r < from->end && is_last; r++)
        if (r != e->rank)
            add(e->arenas->words, DLC_WORD_WRITE, word_at(e, e->rank, from->turn, r),
                CLEARED);
}

static dlc_status give(const dlc_endpoint *e, dlc_queue *order) {
    const dlc_transport_args *args = e->args;
    words *w = e->arenas->words;
    int32_t count = w->count;
    w->count = 0;
    if (count == 0)
        return DLC_OK;
    return args->device_ops->queue_words(args->device, order, w->steps, count);
}

dlc_status words_tell(const dlc_endpoint *e, dlc_queue *order, const span *to,
                      uint32_t value) {
    add_tell(e, to, value);
    return give(e, order);
}

dlc_status words_await(const dlc_endpoint *e, dlc_queue *order, const span *from,
                       uint32_t value, int is_last) {
    add_await(e, from, value, is_last);
    return give(e, order);
}

dlc_status words_meet(const dlc_endpoint *e, dlc_queue *order, int32_t turn) {
    span all = {turn, 0, e->ranks};
    add_tell(e, &all, 1);
    add_await(e, &all, 1, 1);
    return give(e, order);
}

/* ---- Giving up ------------------------------------------------------------------ */

static void *release_main(void *context) {
    const struct timespec pause = {.tv_nsec = 100000};
    const dlc_endpoint *e = context;
    words *w = e->arenas->words;
    while (!atomic_load(&w->stop)) {
        for (int32_t turn = 0; turn < w->turns; turn++)
            for (int32_t r = 0; r < e->ranks; r++)
                __atomic_store_n(word_at(e, e->rank, turn, r), ENOUGH,
                                 __ATOMIC_SEQ_CST);
        (void)nanosleep(&pause, NULL);
    }
    return NULL;
}

dlc_status words_poll(dlc_endpoint *e) {
    words *w = e->arenas->words;
    if (!w)
        return e->args->check(e->args->job);
    if (w->failed != DLC_OK)
        return host->fail(w->failed, "this transport has ended");
    dlc_status status = e->args->check(e->args->job);
    if (status == DLC_OK)
        return DLC_OK;
    w->failed = status;
    int error = pthread_create(&w->thread, NULL, release_main, e);
    w->has_thread = error == 0;
    if (error != 0)
        host->log(DLC_LOG_ERROR, "no thread to end what waits on the device: %s",
                  strerror(error));
    return status;
}
