/* Slices of the owners as this rank sees them: what it sends there and what comes back,
 * on the way between the two threads. */
#include <string.h>

#include "ssp.h"

/* ---- The train thread -------------------------------------------------------- */

void views_order(ssp *s, const letter *order) {
    int32_t bucket = order->bucket;
    int is_push = order->kind <= PUSH_VELOCITY;
    s->order[bucket] = *order;
    s->ordered[s->orders++] = bucket;
    for (int32_t o = 0; o < s->owners; o++) {
        view *one = view_at(s, bucket, o);
        if (!is_used(s, bucket, &one->at))
            continue;
        one->asked++;
        one->sending = is_push && o != s->owner && one->at.count > 0;
    }
}

dlc_status views_await(ssp *s, condition *holds, const view *of, int64_t iteration) {
    s->holds = holds;
    s->of = of;
    s->iteration = iteration;
    while (s->status == DLC_OK && !holds(s, of, iteration))
        pthread_cond_wait(&s->moved, &s->lock);
    s->holds = NULL;
    return s->status;
}

/* The mail's own word on it comes first: it knows who is lost. */
dlc_status views_broken(ssp *s) {
    dlc_status status = s->mail->check(s->mail->context);
    if (status != DLC_OK)
        return status;
    return host->fail(s->status, "%s",
                      s->text[0] ? s->text
                                 : "the messages between ranks of solver ssp failed");
}

static int is_settled(const ssp *s, const view *one, int64_t iteration) {
    (void)s, (void)iteration;
    return one->answered == one->asked && !one->sending;
}

void views_waited(ssp *s, const view *one, uint64_t since) {
    double waited = (double)(host->now_ns() - since) * 1e-9;
    s->stats.waited += waited;
    if (one->last >= 0 && one->last != s->me)
        s->waited_for[one->last] += waited;
}

/* With the lock held. */
static dlc_status settle(ssp *s, view *one) {
    if (is_settled(s, one, 0))
        return DLC_OK;
    uint64_t since = host->now_ns();
    dlc_status status = views_await(s, is_settled, one, 0);
    views_waited(s, one, since);
    return status;
}

dlc_status views_settled(ssp *s, int32_t bucket) {
    dlc_status status = DLC_OK;
    pthread_mutex_lock(&s->lock);
    for (int32_t o = 0; status == DLC_OK && o < s->owners; o++)
        status = settle(s, view_at(s, bucket, o));
    pthread_mutex_unlock(&s->lock);
    return status == DLC_OK ? DLC_OK : views_broken(s);
}

void views_release(ssp *s, view *one) {
    one->busy = 0;
    if (!one->late)
        return;
    s->late = 1;
    post_wake(s);
}

dlc_status views_copy(ssp *s, const view *one, float *to) {
    if (!one->at.count)
        return DLC_OK;
    return s->ops->copy(s->device, NULL, to + one->at.begin, s->pulled + one->at.begin,
                        one->at.count * sizeof *to);
}

/* ---- The mail thread --------------------------------------------------------- */

/* Only for what it waits for, and behind the lock: woken for less, or while the lock is
 * held, it would take this thread's core only to sleep again. */
void views_unlock(ssp *s) {
    int goes_on = s->holds && (s->status != DLC_OK || s->holds(s, s->of, s->iteration));
    pthread_mutex_unlock(&s->lock);
    if (goes_on)
        pthread_cond_signal(&s->moved);
}

/* Where a push takes its slices from. */
static const float *source_of(const ssp *s, uint32_t kind) {
    return kind == PUSH_GRADIENT              ? s->gradients
           : kind == PUSH_STEP && s->nesterov ? s->outbox
                                              : s->velocity;
}

static dlc_status send_to(ssp *s, const letter *order, int32_t owner) {
    const span *at = &view_at(s, order->bucket, owner)->at;
    const float *from = source_of(s, order->kind) + at->begin;
    if (owner == s->owner)
        return owner_own(s, order, from);
    int32_t to = s->first_owner + owner;
    dlc_status status = post_letter(s, to, order, NULL);
    if (status != DLC_OK || order->kind > PUSH_VELOCITY || !at->count)
        return status;
    errand then = {.what = SENT_PUSH, .peer = owner, .bucket = order->bucket};
    return post_slice(s, to, from, at->count, &then);
}

/* The order stays as it is until all its answers are there. */
dlc_status views_send(ssp *s, int32_t bucket) {
    dlc_status status = DLC_OK;
    for (int32_t i = 1; status == DLC_OK && i <= s->owners; i++) {
        int32_t owner = (s->me + i) % s->owners; /* not everybody to the same first */
        if (is_used(s, bucket, &view_at(s, bucket, owner)->at))
            status = send_to(s, &s->order[bucket], owner);
    }
    return status;
}

void views_sent(ssp *s, int32_t bucket, int32_t owner) {
    pthread_mutex_lock(&s->lock);
    view_at(s, bucket, owner)->sending = 0;
    views_unlock(s);
}

/* May `pulled` be written? Then what it had is no longer there to be taken. */
int views_claim(ssp *s, view *one) {
    pthread_mutex_lock(&s->lock);
    int free = !one->busy;
    one->late = !free;
    if (free)
        one->fresh = 0;
    pthread_mutex_unlock(&s->lock);
    return free;
}

static dlc_status let_come(ssp *s, int32_t bucket, int32_t owner) {
    view *one = view_at(s, bucket, owner);
    if (!one->at.count)
        return views_arrived(s, bucket, owner);
    if (!views_claim(s, one))
        return DLC_OK; /* until views_late */
    errand then = {.what = GOT_ANSWER, .peer = owner, .bucket = bucket};
    return post_expect(s, s->first_owner + owner, s->pulled + one->at.begin,
                       one->at.count, &then);
}

dlc_status views_letter(ssp *s, const letter *one, int32_t owner) {
    memcpy(view_at(s, one->bucket, owner)->coming, one, s->letter_bytes);
    return let_come(s, one->bucket, owner);
}

dlc_status views_late(ssp *s) {
    dlc_status status = DLC_OK;
    for (int32_t b = 0; status == DLC_OK && b < s->buckets; b++)
        for (int32_t o = 0; status == DLC_OK && o < s->owners; o++) {
            view *one = view_at(s, b, o);
            pthread_mutex_lock(&s->lock);
            int ready = one->late && !one->busy;
            one->late = one->late && !ready;
            pthread_mutex_unlock(&s->lock);
            if (ready)
                status = o == s->owner ? owner_answers(s, b) : let_come(s, b, o);
        }
    return status;
}

dlc_status views_arrived(ssp *s, int32_t bucket, int32_t owner) {
    view *one = view_at(s, bucket, owner);
    pthread_mutex_lock(&s->lock);
    memcpy(one->in, letter_in(one->coming), (size_t)s->workers * sizeof *one->in);
    one->last = one->coming->last;
    one->fresh = 1;
    one->answered++;
    if (bucket == s->buckets - 1 && owner == 0)
        s->loss = one->coming->loss;
    views_unlock(s);
    return DLC_OK;
}
