/* Implements the fake p2p channels of fake_p2p.h with one lock and a list of requests
 * for each rank. */
#include "fake_p2p.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/status.h"

struct dlc_request {
    dlc_request *next;          /* in the list of requests without a match */
    dlc_request *older, *newer; /* other requests that the same rank made */
    int is_send, done;
    int32_t from, to;
    dlc_tag tag;
    void *buffer;
    size_t bytes;
    uint64_t due; /* of a send: when it arrives, in ns */
};

double fake_random(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*state >> 11) * 0x1p-53;
}

static void append(dlc_request **list, dlc_request *request) {
    while (*list)
        list = &(*list)->next;
    *list = request;
}

/* Lock held, as in all functions below. */
static void keep(fake_rank *rank, dlc_request *request) {
    request->older = rank->made;
    if (rank->made)
        rank->made->newer = request;
    rank->made = request;
}

static void forget(fake_rank *rank, dlc_request *request) {
    if (request->newer)
        request->newer->older = request->older;
    else
        rank->made = request->older;
    if (request->older)
        request->older->newer = request->newer;
    free(request);
}

/* One message in eight is delayed. */
static uint64_t arrival(fake_rank *rank, int32_t to) {
    const fake_p2p *job = rank->fake;
    double late = fake_random(&rank->random) * 8 - 7;
    double delay = late > 0 ? job->delay * late : 0;
    if (to == job->ranks - 1)
        delay += job->far;
    return delay > 0 ? dlc_now_ns() + (uint64_t)(1e9 * delay) : 0;
}

static dlc_status start(fake_rank *rank, dlc_request request, dlc_request **started) {
    fake_p2p *fake = rank->fake;
    dlc_request *made = malloc(sizeof *made);
    if (!made)
        return dlc_fail(DLC_ERR_NOMEM, "memory ran out");
    *made = request;
    pthread_mutex_lock(&fake->lock);
    made->due = arrival(rank, made->to);
    keep(rank, made);
    fake_rank *to = &fake->rank[made->to];
    append(made->is_send ? &to->sends : &to->recvs, made);
    to->sent += made->is_send ? made->bytes : 0;
    if (to != rank) /* a rank looks at its own messages itself */
        pthread_cond_signal(&to->moved);
    pthread_mutex_unlock(&fake->lock);
    *started = made;
    return DLC_OK;
}

static dlc_status fake_send(void *context, int32_t peer, dlc_tag tag,
                            const void *buffer, size_t bytes, dlc_request **request) {
    fake_rank *rank = context;
    return start(rank,
                 (dlc_request){.is_send = 1,
                               .from = rank->me,
                               .to = peer,
                               .tag = tag,
                               .buffer = (void *)(uintptr_t)buffer,
                               .bytes = bytes},
                 request);
}

static dlc_status fake_recv(void *context, int32_t peer, dlc_tag tag, void *buffer,
                            size_t bytes, dlc_request **request) {
    fake_rank *rank = context;
    return start(
        rank,
        (dlc_request){
            .from = peer, .to = rank->me, .tag = tag, .buffer = buffer, .bytes = bytes},
        request);
}

static dlc_request **match(fake_rank *rank, const dlc_request *recv) {
    dlc_request **send = &rank->sends;
    while (*send && ((*send)->from != recv->from || (*send)->tag != recv->tag))
        send = &(*send)->next;
    return send;
}

/* Delivers messages that are due; *next becomes the time of the next one. */
static void progress(fake_rank *rank, uint64_t now, uint64_t *next) {
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
        pthread_cond_signal(&rank->fake->rank[send->from].moved);
    }
}

static dlc_status ended(const fake_p2p *fake) {
    return fake->ended ? dlc_fail(DLC_ERR_PEER, "the job is ending") : DLC_OK;
}

static dlc_status fake_check(void *context) {
    fake_rank *rank = context;
    pthread_mutex_lock(&rank->fake->lock);
    dlc_status status = ended(rank->fake);
    pthread_mutex_unlock(&rank->fake->lock);
    return status;
}

static dlc_status fake_test(void *context, dlc_request *request, int *done) {
    fake_rank *rank = context;
    uint64_t next = UINT64_MAX;
    pthread_mutex_lock(&rank->fake->lock);
    dlc_status status = ended(rank->fake);
    progress(rank, dlc_now_ns(), &next);
    *done = status == DLC_OK && request->done;
    if (*done)
        forget(rank, request);
    pthread_mutex_unlock(&rank->fake->lock);
    return status;
}

static void sleep_until(fake_rank *rank, uint64_t until) {
    struct timespec at = {.tv_sec = (time_t)(until / 1000000000u),
                          .tv_nsec = (long)(until % 1000000000u)};
    (void)pthread_cond_clockwait(&rank->moved, &rank->fake->lock, CLOCK_MONOTONIC, &at);
}

static int32_t find_done(dlc_request *const *requests, int32_t count) {
    for (int32_t i = 0; i < count; i++)
        if (requests[i] && requests[i]->done)
            return i;
    return -1;
}

static dlc_status fake_wait_any(void *context, dlc_request *const *requests,
                                int32_t count, double seconds, int32_t *which) {
    fake_rank *rank = context;
    uint64_t end = dlc_now_ns() + (uint64_t)(seconds * 1e9);
    dlc_status status;
    int32_t found = -1;
    pthread_mutex_lock(&rank->fake->lock);
    for (;;) {
        uint64_t now = dlc_now_ns(), next = end;
        status = ended(rank->fake);
        progress(rank, now, &next);
        found = find_done(requests, count);
        if (status != DLC_OK || found >= 0 || rank->awake || now >= end)
            break;
        sleep_until(rank, next);
    }
    rank->awake = 0;
    if (status == DLC_OK && found >= 0)
        forget(rank, requests[found]);
    pthread_mutex_unlock(&rank->fake->lock);
    if (status == DLC_OK)
        *which = found;
    return status;
}

static void fake_wake(void *context) {
    fake_rank *rank = context;
    pthread_mutex_lock(&rank->fake->lock);
    rank->awake = 1;
    pthread_cond_signal(&rank->moved);
    pthread_mutex_unlock(&rank->fake->lock);
}

static void take_out(dlc_request **list, const dlc_request *request) {
    while (*list && *list != request)
        list = &(*list)->next;
    if (*list)
        *list = request->next;
}

/* The receiver never gets a send that was cancelled. */
static void fake_give_up(void *context) {
    fake_rank *rank = context;
    pthread_mutex_lock(&rank->fake->lock);
    dlc_request *older = rank->made;
    for (dlc_request *request = older; request; request = older) {
        fake_rank *to = &rank->fake->rank[request->to];
        older = request->older;
        take_out(request->is_send ? &to->sends : &to->recvs, request);
        free(request);
    }
    rank->made = NULL;
    pthread_mutex_unlock(&rank->fake->lock);
}

void fake_open(fake_p2p *fake, int32_t ranks, int32_t on_first, double delay) {
    memset(fake, 0, sizeof *fake);
    fake->ranks = ranks;
    fake->delay = delay;
    pthread_mutex_init(&fake->lock, NULL);
    for (int32_t r = 0; r < ranks; r++) {
        fake->node[r] = r >= on_first;
        fake->rank[r] = (fake_rank){.fake = fake, .me = r, .random = (uint64_t)r + 1};
        pthread_cond_init(&fake->rank[r].moved, NULL);
        fake->rank[r].p2p = (dlc_p2p_channel){.size = sizeof(dlc_p2p_channel),
                                              .context = &fake->rank[r],
                                              .rank = r,
                                              .ranks = ranks,
                                              .node = fake->node,
                                              .send = fake_send,
                                              .recv = fake_recv,
                                              .test = fake_test,
                                              .wait_any = fake_wait_any,
                                              .check = fake_check,
                                              .wakeup = fake_wake,
                                              .cancel = fake_give_up};
    }
}

void fake_close(fake_p2p *fake) {
    for (int32_t r = 0; r < fake->ranks; r++)
        pthread_cond_destroy(&fake->rank[r].moved);
    pthread_mutex_destroy(&fake->lock);
}

void fake_end(fake_p2p *fake) {
    pthread_mutex_lock(&fake->lock);
    fake->ended = 1;
    for (int32_t r = 0; r < fake->ranks; r++)
        pthread_cond_signal(&fake->rank[r].moved);
    pthread_mutex_unlock(&fake->lock);
}
