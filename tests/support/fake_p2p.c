/* The fake p2p channel: a send leaves a copy of the message and is complete at once; a
 * receive waits for that copy. */
#include "support/fake_p2p.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct fake_message {
    fake_message *next;
    dlc_tag tag;
    size_t bytes;
    unsigned char copy[];
};

/* A pending operation; a send has no buffer. */
struct dlc_request {
    void *buffer;
    size_t bytes;
    dlc_tag tag;
    int32_t peer;
};

static dlc_status send(void *context, int32_t peer, dlc_tag tag, const void *buffer,
                       size_t bytes, dlc_request **request) {
    fake_endpoint *endpoint = context;
    fake_message *message = malloc(sizeof *message + bytes);
    *request = calloc(1, sizeof **request);
    if (!message || !*request)
        abort();
    *message = (fake_message){.tag = tag, .bytes = bytes};
    memcpy(message->copy, buffer, bytes);
    pthread_mutex_lock(&endpoint->fabric->lock);
    fake_message **end = &endpoint->fabric->first[endpoint->rank][peer];
    while (*end)
        end = &(*end)->next;
    *end = message;
    endpoint->fabric->sent++;
    pthread_cond_broadcast(&endpoint->fabric->changed);
    pthread_mutex_unlock(&endpoint->fabric->lock);
    return DLC_OK;
}

static dlc_status receive(void *context, int32_t peer, dlc_tag tag, void *buffer,
                          size_t bytes, dlc_request **request) {
    (void)context;
    *request = calloc(1, sizeof **request);
    if (!*request)
        abort();
    **request = (dlc_request){buffer, bytes, tag, peer};
    return DLC_OK;
}

/* The oldest message with the tag, whose size must be that of the receive. */
static fake_message **find(fake_message **first, const dlc_request *request) {
    while (*first && (*first)->tag != request->tag)
        first = &(*first)->next;
    if (*first && (*first)->bytes != request->bytes)
        abort();
    return first;
}

/* Completes the operation if it can be. Called with the lock. */
static int try_receive(fake_endpoint *endpoint, dlc_request *request) {
    if (!request->buffer) {
        free(request);
        return 1;
    }
    fake_message **first = find(&endpoint->fabric->first[request->peer][endpoint->rank],
                                request);
    fake_message *message = *first;
    if (!message)
        return 0;
    memcpy(request->buffer, message->copy, message->bytes);
    *first = message->next;
    free(message);
    free(request);
    return 1;
}

static dlc_status test(void *context, dlc_request *request, int *done) {
    fake_endpoint *endpoint = context;
    pthread_mutex_lock(&endpoint->fabric->lock);
    *done = try_receive(endpoint, request);
    pthread_mutex_unlock(&endpoint->fabric->lock);
    return DLC_OK;
}

static dlc_status wait_any(void *context, dlc_request *const *requests, int32_t count,
                           double seconds, int32_t *which) {
    fake_endpoint *endpoint = context;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)seconds + 1;
    *which = -1;
    pthread_mutex_lock(&endpoint->fabric->lock);
    for (int timed_out = 0; *which < 0 && !timed_out;) {
        for (int32_t i = 0; i < count && *which < 0; i++)
            if (requests[i] && try_receive(endpoint, requests[i]))
                *which = i;
        if (*which < 0)
            timed_out = endpoint->woken ||
                        pthread_cond_timedwait(&endpoint->fabric->changed,
                                               &endpoint->fabric->lock, &until) != 0;
    }
    endpoint->woken = 0;
    pthread_mutex_unlock(&endpoint->fabric->lock);
    return DLC_OK;
}

static void wakeup(void *context) {
    fake_endpoint *endpoint = context;
    pthread_mutex_lock(&endpoint->fabric->lock);
    endpoint->woken = 1;
    pthread_cond_broadcast(&endpoint->fabric->changed);
    pthread_mutex_unlock(&endpoint->fabric->lock);
}

static dlc_status check(void *context) {
    (void)context;
    return DLC_OK;
}

void fake_p2p_open(fake_p2p *fabric, int32_t ranks) {
    memset(fabric, 0, sizeof *fabric);
    pthread_mutex_init(&fabric->lock, NULL);
    pthread_cond_init(&fabric->changed, NULL);
    fabric->ranks = ranks;
    for (int32_t r = 0; r < ranks; r++) {
        fake_endpoint *endpoint = &fabric->endpoint[r];
        endpoint->fabric = fabric;
        endpoint->rank = r;
        endpoint->p2p = (dlc_p2p_channel){.size = sizeof endpoint->p2p,
                                          .context = endpoint,
                                          .rank = r,
                                          .ranks = ranks,
                                          .node = endpoint->node,
                                          .send = send,
                                          .recv = receive,
                                          .test = test,
                                          .wait_any = wait_any,
                                          .check = check,
                                          .wakeup = wakeup};
    }
}

int fake_p2p_close(fake_p2p *fabric) {
    int left = 0;
    for (int32_t from = 0; from < fabric->ranks; from++)
        for (int32_t to = 0; to < fabric->ranks; to++)
            for (fake_message *message = fabric->first[from][to]; message; left++) {
                fake_message *next = message->next;
                free(message);
                message = next;
            }
    pthread_cond_destroy(&fabric->changed);
    pthread_mutex_destroy(&fabric->lock);
    return left;
}
