/* See courier.h. Parcels that were given wait in `due`; the thread takes them from
 * there to the mail, which only it calls. A ticket is a count of parcels ever given:
 * parcels are done in any order, so what counts is the oldest that is not. */
#include "net/courier.h"

#include <pthread.h>

#include "base/memory.h"
#include "base/thread.h"

/* How long a look for news may take where the mail cannot be woken. */
#define LOOK_S 0.05

struct dlc_courier {
    const dlc_mail *mail;
    int32_t most;

    /* The thread's own. */
    dlc_request **request; /* own; NULL: a free place */
    uint64_t *number;      /* own; of the parcel there */
    int32_t under_way;

    pthread_t thread;
    int has_thread;
    pthread_mutex_t lock;
    pthread_cond_t news; /* for the thread: parcels, or the end */
    pthread_cond_t done; /* for who awaits */

    /* Below: guarded by the lock. */
    dlc_parcel *due;       /* own; a ring of `most` */
    uint64_t given, taken; /* since open */
    uint64_t delivered;    /* all before this one are */
    int stop;
    dlc_status failed;
    char *detail; /* own */
};

/* ---- The thread ------------------------------------------------------------------ */

static dlc_status post(const dlc_courier *c, const dlc_parcel *parcel,
                       dlc_request **request) {
    const dlc_mail *mail = c->mail;
    return parcel->is_sent ? mail->send(mail->context, parcel->peer, parcel->tag,
                                        parcel->buffer, parcel->bytes, request)
                           : mail->recv(mail->context, parcel->peer, parcel->tag,
                                        parcel->buffer, parcel->bytes, request);
}

static int32_t free_place(const dlc_courier *c) {
    int32_t i = 0;
    while (i < c->most && c->request[i])
        i++;
    return i;
}

/* With the lock, which is given up meanwhile. */
static dlc_status take_due(dlc_courier *c) {
    dlc_status status = DLC_OK;
    while (status == DLC_OK && c->taken < c->given && c->under_way < c->most) {
        dlc_parcel parcel = c->due[c->taken % (uint64_t)c->most];
        int32_t at = free_place(c);
        c->number[at] = c->taken++;
        (void)pthread_mutex_unlock(&c->lock);
        status = post(c, &parcel, &c->request[at]);
        (void)pthread_mutex_lock(&c->lock);
        c->under_way += status == DLC_OK;
    }
    return status;
}

/* With the lock. */
static void note_delivered(dlc_courier *c) {
    uint64_t oldest = c->taken;
    for (int32_t i = 0; i < c->most; i++)
        if (c->request[i] && c->number[i] < oldest)
            oldest = c->number[i];
    if (oldest == c->delivered)
        return;
    c->delivered = oldest;
    (void)pthread_cond_broadcast(&c->done);
}

/* Until one is delivered, or there is news. With the lock, which is given up. */
static dlc_status deliver(dlc_courier *c) {
    const dlc_mail *mail = c->mail;
    int32_t which = -1;
    (void)pthread_mutex_unlock(&c->lock);
    dlc_status status = mail->wait_any(mail->context, c->request, c->most, LOOK_S,
                                       &which);
    (void)pthread_mutex_lock(&c->lock);
    if (status == DLC_OK && which >= 0) {
        c->request[which] = NULL;
        c->under_way--;
        note_delivered(c);
    }
    return status;
}

static void *thread_main(void *context) {
    dlc_courier *c = context;
    dlc_status status = DLC_OK;

    dlc_thread_take_short_turns();
    (void)pthread_mutex_lock(&c->lock);
    while (!c->stop && status == DLC_OK) {
        status = take_due(c);
        if (status == DLC_OK && c->under_way > 0)
            status = deliver(c);
        else if (status == DLC_OK && !c->stop)
            (void)pthread_cond_wait(&c->news, &c->lock);
    }
    if (status != DLC_OK) {
        c->failed = status;
        c->detail = dlc_strdup(dlc_detail());
        (void)pthread_cond_broadcast(&c->done);
    }
    (void)pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- Opening and closing --------------------------------------------------------- */

static dlc_status start_thread(dlc_courier *c) {
    DLC_TRY(dlc_thread_start(&c->thread, "dlc-courier", thread_main, c));
    c->has_thread = 1;
    return DLC_OK;
}

dlc_status dlc_courier_open(const dlc_mail *mail, int32_t most, dlc_courier **courier) {
    dlc_courier *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    (void)pthread_mutex_init(&made->lock, NULL);
    (void)pthread_cond_init(&made->news, NULL);
    (void)pthread_cond_init(&made->done, NULL);
    made->mail = mail;
    made->most = most;
    made->request = dlc_alloc((size_t)most, sizeof(dlc_request *));
    made->number = dlc_alloc((size_t)most, sizeof *made->number);
    made->due = dlc_alloc((size_t)most, sizeof *made->due);
    dlc_status status = made->request && made->number && made->due ? start_thread(made)
                                                                   : DLC_ERR_NOMEM;
    if (status != DLC_OK) {
        dlc_courier_close(made);
        return status;
    }
    *courier = made;
    return DLC_OK;
}

static void wake(const dlc_courier *c) {
    if (c->mail->wake)
        c->mail->wake(c->mail->context);
}

void dlc_courier_close(dlc_courier *courier) {
    if (!courier)
        return;
    if (courier->has_thread) {
        (void)pthread_mutex_lock(&courier->lock);
        courier->stop = 1;
        (void)pthread_cond_signal(&courier->news);
        (void)pthread_mutex_unlock(&courier->lock);
        wake(courier);
        (void)pthread_join(courier->thread, NULL);
    }
    (void)pthread_cond_destroy(&courier->done);
    (void)pthread_cond_destroy(&courier->news);
    (void)pthread_mutex_destroy(&courier->lock);
    dlc_free(courier->detail);
    dlc_free(courier->due);
    dlc_free(courier->number);
    dlc_free(courier->request);
    dlc_free(courier);
}

/* ---- The train thread ------------------------------------------------------------ */

/* With the lock. */
static dlc_status failure(const dlc_courier *c) {
    return c->failed == DLC_OK ? DLC_OK
                               : dlc_fail(c->failed, "%s", c->detail ? c->detail : "");
}

dlc_status dlc_courier_give(dlc_courier *courier, const dlc_parcel *parcel,
                            int32_t count, uint64_t *ticket) {
    (void)pthread_mutex_lock(&courier->lock);
    dlc_status status = failure(courier);
    if (status == DLC_OK &&
        courier->given + (uint64_t)count - courier->delivered > (uint64_t)courier->most)
        status = dlc_fail(DLC_ERR_INTERNAL, "more messages under way than planned");
    for (int32_t i = 0; status == DLC_OK && i < count; i++)
        courier->due[courier->given++ % (uint64_t)courier->most] = parcel[i];
    if (status == DLC_OK)
        *ticket = courier->given;
    (void)pthread_cond_signal(&courier->news);
    (void)pthread_mutex_unlock(&courier->lock);
    wake(courier);
    return status;
}

dlc_status dlc_courier_await(dlc_courier *courier, uint64_t ticket) {
    (void)pthread_mutex_lock(&courier->lock);
    while (courier->delivered < ticket && courier->failed == DLC_OK)
        (void)pthread_cond_wait(&courier->done, &courier->lock);
    dlc_status status = courier->delivered < ticket ? failure(courier) : DLC_OK;
    (void)pthread_mutex_unlock(&courier->lock);
    return status;
}
