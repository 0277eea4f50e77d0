/* See sim.h. */
#include "sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/status.h"

struct dlc_request {
    dlc_request *next;          /* of those that wait */
    dlc_request *older, *newer; /* of the same rank */
    int is_send, done;
    int32_t from, to;
    dlc_tag tag;
    void *buffer;
    size_t bytes;
    uint64_t due; /* of a send: when it arrives */
};

double sim_random(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*state >> 11) * 0x1p-53;
}

static void append(dlc_request **list, dlc_request *request) {
    while (*list)
        list = &(*list)->next;
    *list = request;
}

/* With the lock held, as all below. */
static void keep(sim_rank *rank, dlc_request *request) {
    request->older = rank->made;
    if (rank->made)
        rank->made->newer = request;
    rank->made = request;
}

static void forget(sim_rank *rank, dlc_request *request) {
    if (request->newer)
        request->newer->older = request->older;
    else
        rank->made = request->older;
    if (request->older)
        request->older->newer = request->newer;
    free(request);
}

/* One in eight takes its time. */
static uint64_t arrival(sim_rank *rank, int32_t to) {
    const test_sim *job = rank->sim;
    double late = sim_random(&rank->random) * 8 - 7;
    double delay = late > 0 ? job->delay * late : 0;
    if (to == job->ranks - 1)
        delay += job->far;
    return delay > 0 ? dlc_now_ns() + (uint64_t)(1e9 * delay) : 0;
}

static dlc_status start(sim_rank *rank, dlc_request request, dlc_request **started) {
    test_sim *sim = rank->sim;
    dlc_request *made = malloc(sizeof *made);
    if (!made)
        return dlc_fail(DLC_ERR_NOMEM, "memory ran out");
    *made = request;
    pthread_mutex_lock(&sim->lock);
    made->due = arrival(rank, made->to);
    keep(rank, made);
    sim_rank *to = &sim->rank[made->to];
    append(made->is_send ? &to->sends : &to->recvs, made);
    to->sent += made->is_send ? made->bytes : 0;
    if (to != rank) /* who calls sees to its own */
        pthread_cond_signal(&to->moved);
    pthread_mutex_unlock(&sim->lock);
    *started = made;
    return DLC_OK;
}

static dlc_status sim_send(void *context, int32_t peer, dlc_tag tag, const void *buffer,
                           size_t bytes, dlc_request **request) {
    sim_rank *rank = context;
    return start(rank,
                 (dlc_request){.is_send = 1,
                               .from = rank->me,
                               .to = peer,
                               .tag = tag,
                               .buffer = (void *)(uintptr_t)buffer,
                               .bytes = bytes},
                 request);
}

static dlc_status sim_recv(void *context, int32_t peer, dlc_tag tag, void *buffer,
                           size_t bytes, dlc_request **request) {
    sim_rank *rank = context;
    return start(
        rank,
        (dlc_request){
            .from = peer, .to = rank->me, .tag = tag, .buffer = buffer, .bytes = bytes},
        request);
}

static dlc_request **match(sim_rank *rank, const dlc_request *recv) {
    dlc_request **send = &rank->sends;
    while (*send && ((*send)->from != recv->from || (*send)->tag != recv->tag))
        send = &(*send)->next;
    return send;
}

/* Lets arrive what is due; *next is when the next message is. */
static void progress(sim_rank *rank, uint64_t now, uint64_t *next) {
    dlc_request **at = &rank->recvs;
    while (*at) {
        dlc_request *recv = *at, **found = match(rank, recv), *send = *found;
        if (!send || send->due > now) {
            if (send && send->due < *next)
                *next = send->due;
            at = &recv->next;
            continue;
        }
        if (send->bytes != recv->bytes)
            abort();
        if (send->bytes)
            memcpy(recv->buffer, send->buffer, send->bytes);
        *found = send->next;
        *at = recv->next;
        send->done = recv->done = 1;
        pthread_cond_signal(&rank->sim->rank[send->from].moved);
    }
}

static dlc_status ended(const test_sim *sim) {
    return sim->ended ? dlc_fail(DLC_ERR_PEER, "the job is ending") : DLC_OK;
}

static dlc_status sim_check(void *context) {
    sim_rank *rank = context;
    pthread_mutex_lock(&rank->sim->lock);
    dlc_status status = ended(rank->sim);
    pthread_mutex_unlock(&rank->sim->lock);
    return status;
}

static dlc_status sim_test(void *context, dlc_request *request, int *done) {
    sim_rank *rank = context;
    uint64_t next = UINT64_MAX;
    pthread_mutex_lock(&rank->sim->lock);
    dlc_status status = ended(rank->sim);
    progress(rank, dlc_now_ns(), &next);
    *done = status == DLC_OK && request->done;
    if (*done)
        forget(rank, request);
    pthread_mutex_unlock(&rank->sim->lock);
    return status;
}

static void sleep_until(sim_rank *rank, uint64_t until) {
    struct timespec at = {.tv_sec = (time_t)(until / 1000000000u),
                          .tv_nsec = (long)(until % 1000000000u)};
    (void)pthread_cond_clockwait(&rank->moved, &rank->sim->lock, CLOCK_MONOTONIC, &at);
}

static int32_t find_done(dlc_request *const *requests, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (requests[i] && requests[i]->done)
            return i;
    return -1;
}

static dlc_status sim_wait_any(void *context, dlc_request *const *requests,
                               int32_t count, double seconds, int32_t *which) {
    sim_rank *rank = context;
    uint64_t end = dlc_now_ns() + (uint64_t)(seconds * 1e9);
    dlc_status status;
    int32_t found = -1;
    pthread_mutex_lock(&rank->sim->lock);
    for (;;) {
        uint64_t now = dlc_now_ns(), next = end;
        status = ended(rank->sim);
        progress(rank, now, &next);
        found = find_done(requests, count);
        if (status != DLC_OK || found >= 0 || rank->awake || now >= end)
            break;
        sleep_until(rank, next);
    }
    rank->awake = 0;
    if (status == DLC_OK && found >= 0)
        forget(rank, requests[found]);
    pthread_mutex_unlock(&rank->sim->lock);
    if (status == DLC_OK)
        *which = found;
    return status;
}

static void sim_wake(void *context) {
    sim_rank *rank = context;
    pthread_mutex_lock(&rank->sim->lock);
    rank->awake = 1;
    pthread_cond_signal(&rank->moved);
    pthread_mutex_unlock(&rank->sim->lock);
}

static void take_out(dlc_request **list, const dlc_request *request) {
    while (*list && *list != request)
        list = &(*list)->next;
    if (*list)
        *list = request->next;
}

/* The other side of a send that is given up never gets it. */
static void sim_give_up(void *context) {
    sim_rank *rank = context;
    pthread_mutex_lock(&rank->sim->lock);
    dlc_request *older = rank->made;
    for (dlc_request *request = older; request; request = older) {
        sim_rank *to = &rank->sim->rank[request->to];
        older = request->older;
        take_out(request->is_send ? &to->sends : &to->recvs, request);
        free(request);
    }
    rank->made = NULL;
    pthread_mutex_unlock(&rank->sim->lock);
}

void sim_open(test_sim *sim, int32_t ranks, int32_t on_first, double delay) {
    memset(sim, 0, sizeof *sim);
    sim->ranks = ranks;
    sim->delay = delay;
    pthread_mutex_init(&sim->lock, NULL);
    for (int32_t r = 0; r < ranks; r++) {
        sim->node[r] = r >= on_first;
        sim->rank[r] = (sim_rank){.sim = sim, .me = r, .random = (uint64_t)r + 1};
        pthread_cond_init(&sim->rank[r].moved, NULL);
        sim->rank[r].mail = (dlc_mail){.size = sizeof(dlc_mail),
                                       .context = &sim->rank[r],
                                       .rank = r,
                                       .ranks = ranks,
                                       .node = sim->node,
                                       .send = sim_send,
                                       .recv = sim_recv,
                                       .test = sim_test,
                                       .wait_any = sim_wait_any,
                                       .check = sim_check,
                                       .wake = sim_wake,
                                       .give_up = sim_give_up};
    }
}

void sim_close(test_sim *sim) {
    for (int32_t r = 0; r < sim->ranks; r++)
        pthread_cond_destroy(&sim->rank[r].moved);
    pthread_mutex_destroy(&sim->lock);
}

void sim_end(test_sim *sim) {
    pthread_mutex_lock(&sim->lock);
    sim->ended = 1;
    for (int32_t r = 0; r < sim->ranks; r++)
        pthread_cond_signal(&sim->rank[r].moved);
    pthread_mutex_unlock(&sim->lock);
}
