/* The owners' slices as this rank sees them: requests go to the owners and answers come
 * back, passed between the training thread and the communication thread. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "ssp.h"

/* How often the training thread calls the job while it waits. */
#define CHECK_NS 100000000L

/* ---- The training thread ----------------------------------------------------- */

dlc_status slices_queue_request(ssp *s, const header *message) {
    int32_t bucket = message->bucket;
    int is_push = message->kind <= PUSH_SLOT;
    dlc_status status = device_record(s, s->complete ? s->complete[bucket] : NULL);
    if (status != DLC_OK)
        return status;
    s->message[bucket] = *message;
    s->queued_bucket[s->queued_count++] = bucket;
    for (int32_t o = 0; o < s->owners; o++) {
        slice *one = slice_at(s, bucket, o);
        if (!is_used(s, bucket, &one->at))
            continue;
        one->requested++;
        one->sending = is_push && o != s->owner && one->at.count > 0;
    }
    return DLC_OK;
}

/* The job learns from the check, whose error the communication thread reports, that
 * this thread waits. */
static void wait_a_moment(ssp *s) {
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += CHECK_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_cond_clockwait(&s->changed, &s->lock, CLOCK_MONOTONIC, &until) ==
        ETIMEDOUT)
        (void)s->p2p->check(s->p2p->context);
}

dlc_status slices_wait_until(ssp *s, condition *holds, const slice *of,
                             int64_t iteration) {
    s->holds = holds;
    s->of = of;
    s->iteration = iteration;
    while (s->status == DLC_OK && !holds(s, of, iteration))
        wait_a_moment(s);
    s->holds = NULL;
    return s->status;
}

/* The channel's own error comes first: it names the lost rank. */
dlc_status slices_error(ssp *s) {
    dlc_status status = s->p2p->check(s->p2p->context);
    if (status != DLC_OK)
        return status;
    return host->fail(
        s->status, "%s",
        s->text[0]
            ? s->text
            : "the communication between the ranks of consistency model ssp failed");
}

static int is_idle(const ssp *s, const slice *one, int64_t iteration) {
    (void)s, (void)iteration;
    return one->answered == one->requested && !one->sending;
}

void slices_note_wait(ssp *s, const slice *one, uint64_t since) {
    double waited = (double)(host->now_ns() - since) * 1e-9;
    s->stats.wait_seconds += waited;
    if (one->last >= 0 && one->last != s->me)
        s->waited_for[one->last] += waited;
}

/* Lock held. */
static dlc_status wait_slice_idle(ssp *s, slice *one) {
    if (is_idle(s, one, 0))
        return DLC_OK;
    uint64_t since = host->now_ns();
    dlc_status status = slices_wait_until(s, is_idle, one, 0);
    slices_note_wait(s, one, since);
    return status;
}

dlc_status slices_wait_idle(ssp *s, int32_t bucket) {
    dlc_status status = DLC_OK;
    pthread_mutex_lock(&s->lock);
    for (int32_t o = 0; status == DLC_OK && o < s->owners; o++)
        status = wait_slice_idle(s, slice_at(s, bucket, o));
    pthread_mutex_unlock(&s->lock);
    return status == DLC_OK ? DLC_OK : slices_error(s);
}

void slices_release(ssp *s, slice *one) {
    one->busy = 0;
    if (!one->deferred)
        return;
    s->has_deferred = 1;
    comm_wakeup(s);
}

dlc_status slices_copy(ssp *s, const slice *one, float *to) {
    if (!one->at.count)
        return DLC_OK;
    return s->ops->copy(s->device, s->queue, to + one->at.begin,
                        s->pulled + one->at.begin, one->at.count * sizeof *to);
}

/* ---- The communication thread ------------------------------------------------ */

/* Signals only if the training thread's condition holds, and after unlocking: woken
 * earlier, it would take this thread's core only to sleep again. */
void slices_unlock(ssp *s) {
    int goes_on = s->holds && (s->status != DLC_OK || s->holds(s, s->of, s->iteration));
    pthread_mutex_unlock(&s->lock);
    if (goes_on)
        pthread_cond_signal(&s->changed);
}

static dlc_status send_to(ssp *s, const header *message, int32_t owner) {
    const span *at = &slice_at(s, message->bucket, owner)->at;
    int is_push = message->kind <= PUSH_SLOT;
    const float *arena = message->kind == PUSH_GRADIENT ? s->gradients : s->steps;
    const float *from = is_push ? arena + at->begin : NULL;
    if (owner == s->owner)
        return owner_own(s, message, from);
    int32_t to = s->first_owner + owner;
    dlc_status status = comm_send_header(s, to, message, NULL);
    if (status != DLC_OK || !is_push || !at->count)
        return status;
    pending_op op = {.what = PUSH_SENT, .peer = owner, .bucket = message->bucket};
    return comm_send_slice(s, to, from, at->count, &op);
}

static int has_words(const ssp *s, const header *message) {
    return message->bucket == s->buckets - 1 &&
           (message->kind == PUSH_GRADIENT || message->kind == PUSH_STEP);
}

/* Until others are heard of, this rank's samples stand for all. */
static void send_words(ssp *s, header *message) {
    message->sums = agree_read_words(s, message->clock);
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < CONTROL_SUMS && !s->has_sums && s->share > 0; i++)
        s->sums.of[i] = (float)(message->sums.of[i] / s->share);
    s->has_sums = 1;
    slices_unlock(s);
}

/* The request is not overwritten until all its answers have arrived. */
dlc_status slices_send(ssp *s, int32_t bucket) {
    dlc_status status = DLC_OK;
    header *message = &s->message[bucket];
    if (has_words(s, message))
        send_words(s, message);
    for (int32_t i = 1; status == DLC_OK && i <= s->owners; i++) {
        int32_t owner = (s->me + i) %
                        s->owners; /* start at another owner on each rank */
        if (is_used(s, bucket, &slice_at(s, bucket, owner)->at))
            status = send_to(s, message, owner);
    }
    return status;
}

void slices_push_sent(ssp *s, int32_t bucket, int32_t owner) {
    pthread_mutex_lock(&s->lock);
    slice_at(s, bucket, owner)->sending = 0;
    slices_unlock(s);
}

/* Has everything been read that the training thread wants to read of `pulled`? Lock
 * held. */
static dlc_status is_read(ssp *s, const slice *one, int *yes) {
    *yes = 0;
    if (one->busy)
        return DLC_OK; /* slices_release will tell */
    dlc_status status = device_is_done(s, one->read, yes);
    s->has_deferred |= !*yes; /* nobody tells: ask again soon */
    return status;
}

/* May `pulled` be overwritten? If so, the answer in it can no longer be read. */
dlc_status slices_claim(ssp *s, slice *one, int *is_free) {
    pthread_mutex_lock(&s->lock);
    dlc_status status = is_read(s, one, is_free);
    one->deferred = !*is_free;
    if (*is_free)
        one->fresh = 0;
    pthread_mutex_unlock(&s->lock);
    return status;
}

static dlc_status receive_answer(ssp *s, int32_t bucket, int32_t owner) {
    slice *one = slice_at(s, bucket, owner);
    if (!one->at.count)
        return slices_answer_received(s, bucket, owner);
    int is_free = 0;
    dlc_status status = slices_claim(s, one, &is_free);
    if (status != DLC_OK || !is_free)
        return status; /* until slices_resume_deferred */
    pending_op op = {.what = ANSWER_RECEIVED, .peer = owner, .bucket = bucket};
    return comm_recv_slice(s, s->first_owner + owner, s->pulled + one->at.begin,
                           one->at.count, &op);
}

dlc_status slices_answer_header(ssp *s, const header *one, int32_t owner) {
    memcpy(slice_at(s, one->bucket, owner)->incoming, one, s->header_bytes);
    return receive_answer(s, one->bucket, owner);
}

dlc_status slices_resume_deferred(ssp *s) {
    dlc_status status = DLC_OK;
    for (int32_t b = 0; status == DLC_OK && b < s->buckets; b++)
        for (int32_t o = 0; status == DLC_OK && o < s->owners; o++) {
            slice *one = slice_at(s, b, o);
            int ready = 0;
            pthread_mutex_lock(&s->lock);
            if (one->deferred)
                status = is_read(s, one, &ready);
            one->deferred = one->deferred && !ready;
            pthread_mutex_unlock(&s->lock);
            if (status == DLC_OK && ready)
                status = o == s->owner ? owner_answer_all(s, b)
                                       : receive_answer(s, b, o);
        }
    return status;
}

dlc_status slices_answer_received(ssp *s, int32_t bucket, int32_t owner) {
    slice *one = slice_at(s, bucket, owner);
    pthread_mutex_lock(&s->lock);
    memcpy(one->clocks, header_clocks(one->incoming),
           (size_t)s->workers * sizeof *one->clocks);
    one->last = one->incoming->last;
    one->fresh = 1;
    one->answered++;
    if (bucket == s->buckets - 1 && owner == 0)
        s->sums = one->incoming->sums;
    slices_unlock(s);
    return DLC_OK;
}
