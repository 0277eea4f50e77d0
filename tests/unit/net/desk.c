/* See desk.h. Who sends leaves a copy and is done; who receives waits for it. */
#include "desk.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct desk_letter {
    desk_letter *next;
    dlc_tag tag;
    size_t bytes;
    unsigned char copy[];
};

/* Of either kind; one that sends has no buffer. */
struct dlc_request {
    void *buffer;
    size_t bytes;
    dlc_tag tag;
    int32_t peer;
};

static dlc_status leave(void *context, int32_t peer, dlc_tag tag, const void *buffer,
                        size_t bytes, dlc_request **request) {
    desk_seat *seat = context;
    desk_letter *letter = malloc(sizeof *letter + bytes);
    *request = calloc(1, sizeof **request);
    if (!letter || !*request)
        abort();
    *letter = (desk_letter){.tag = tag, .bytes = bytes};
    memcpy(letter->copy, buffer, bytes);
    pthread_mutex_lock(&seat->desk->lock);
    desk_letter **end = &seat->desk->first[seat->rank][peer];
    while (*end)
        end = &(*end)->next;
    *end = letter;
    seat->desk->sent++;
    pthread_cond_broadcast(&seat->desk->news);
    pthread_mutex_unlock(&seat->desk->lock);
    return DLC_OK;
}

static dlc_status expect(void *context, int32_t peer, dlc_tag tag, void *buffer,
                         size_t bytes, dlc_request **request) {
    (void)context;
    *request = calloc(1, sizeof **request);
    if (!*request)
        abort();
    **request = (dlc_request){buffer, bytes, tag, peer};
    return DLC_OK;
}

/* The oldest of a tag, whose size must be as expected. */
static desk_letter **find(desk_letter **first, const dlc_request *request) {
    while (*first && (*first)->tag != request->tag)
        first = &(*first)->next;
    if (*first && (*first)->bytes != request->bytes)
        abort();
    return first;
}

/* With the lock: is it done? */
static int fetch(desk_seat *seat, dlc_request *request) {
    if (!request->buffer) {
        free(request);
        return 1;
    }
    desk_letter **first = find(&seat->desk->first[request->peer][seat->rank], request);
    desk_letter *letter = *first;
    if (!letter)
        return 0;
    memcpy(request->buffer, letter->copy, letter->bytes);
    *first = letter->next;
    free(letter);
    free(request);
    return 1;
}

static dlc_status test(void *context, dlc_request *request, int *done) {
    desk_seat *seat = context;
    pthread_mutex_lock(&seat->desk->lock);
    *done = fetch(seat, request);
    pthread_mutex_unlock(&seat->desk->lock);
    return DLC_OK;
}

static dlc_status wait_any(void *context, dlc_request *const *requests, int32_t count,
                           double seconds, int32_t *which) {
    desk_seat *seat = context;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)seconds + 1;
    *which = -1;
    pthread_mutex_lock(&seat->desk->lock);
    for (int late = 0; *which < 0 && !late;) {
        for (int32_t i = 0; i < count && *which < 0; i++)
            if (requests[i] && fetch(seat, requests[i]))
                *which = i;
        if (*which < 0)
            late = seat->woken ||
                   pthread_cond_timedwait(&seat->desk->news, &seat->desk->lock,
                                          &until) != 0;
    }
    seat->woken = 0;
    pthread_mutex_unlock(&seat->desk->lock);
    return DLC_OK;
}

static void wake(void *context) {
    desk_seat *seat = context;
    pthread_mutex_lock(&seat->desk->lock);
    seat->woken = 1;
    pthread_cond_broadcast(&seat->desk->news);
    pthread_mutex_unlock(&seat->desk->lock);
}

static dlc_status check(void *context) {
    (void)context;
    return DLC_OK;
}

void desk_open(desk *at, int32_t ranks) {
    memset(at, 0, sizeof *at);
    pthread_mutex_init(&at->lock, NULL);
    pthread_cond_init(&at->news, NULL);
    at->ranks = ranks;
    for (int32_t r = 0; r < ranks; r++) {
        desk_seat *seat = &at->seat[r];
        seat->desk = at;
        seat->rank = r;
        seat->mail = (dlc_mail){.size = sizeof seat->mail,
                                .context = seat,
                                .rank = r,
                                .ranks = ranks,
                                .node = seat->node,
                                .send = leave,
                                .recv = expect,
                                .test = test,
                                .wait_any = wait_any,
                                .check = check,
                                .wake = wake};
    }
}

int desk_close(desk *at) {
    int left = 0;
    for (int32_t from = 0; from < at->ranks; from++)
        for (int32_t to = 0; to < at->ranks; to++)
            for (desk_letter *letter = at->first[from][to]; letter; left++) {
                desk_letter *next = letter->next;
                free(letter);
                letter = next;
            }
    pthread_cond_destroy(&at->news);
    pthread_mutex_destroy(&at->lock);
    return left;
}
