/* The communication thread: all sends and receives of the model.
 *
 * A message is a header of fixed size; a slice, if any, follows with a tag of its own,
 * and the receiver posts its receive after it has read the header. A receive for the
 * next header of every rank is always posted, so a send never blocks for long. */
#include <stdarg.h>
#include <string.h>

#include "ssp.h"

enum { TAG_HEADER = 0, TAG_PUSH = 1, TAG_ANSWER = 2, TAGS = 2, CAPACITY_LEAST = 64 };

/* Seconds to wait for messages before looking for work from the training thread: long
 * where the core can wake this thread up, short where it cannot, and shorter while it
 * waits for a queue, which wakes nobody up. */
static const double long_wait = 0.1, short_wait = 0.0003, queue_wait = 0.0001;

/* ---- Requests ---------------------------------------------------------------- */

static dlc_status grow(ssp *s) {
    int32_t capacity = s->capacity ? 2 * s->capacity : CAPACITY_LEAST;
    dlc_request **request = host->alloc((size_t)capacity * sizeof(dlc_request *));
    pending_op *pending = host->alloc((size_t)capacity * sizeof *pending);
    if (!request || !pending) {
        host->free((void *)request);
        host->free(pending);
        return comm_fail(s, DLC_ERR_NOMEM, "out of memory for %d messages", capacity);
    }
    for (int32_t i = 0; i < s->in_flight; i++) {
        request[i] = s->request[i];
        pending[i] = s->pending[i];
    }
    host->free((void *)s->request);
    host->free(s->pending);
    s->request = request;
    s->pending = pending;
    s->capacity = capacity;
    return DLC_OK;
}

/* Room for one more operation is made before it starts: a request that is not recorded
 * could not be completed. */
static dlc_status reserve(ssp *s) {
    return s->in_flight < s->capacity ? DLC_OK : grow(s);
}

static void note(ssp *s, dlc_request *request, const pending_op *op) {
    s->request[s->in_flight] = request;
    s->pending[s->in_flight++] = *op;
}

static dlc_status send(ssp *s, int32_t to, dlc_tag tag, const void *from, size_t bytes,
                       const pending_op *op) {
    dlc_request *request = NULL;
    dlc_status status = reserve(s);
    if (status == DLC_OK)
        status = s->p2p->send(s->p2p->context, to, tag, from, bytes, &request);
    if (status == DLC_OK)
        note(s, request, op);
    return status;
}

static dlc_status receive(ssp *s, int32_t from, dlc_tag tag, void *to, size_t bytes,
                          const pending_op *op) {
    dlc_request *request = NULL;
    dlc_status status = reserve(s);
    if (status == DLC_OK)
        status = s->p2p->recv(s->p2p->context, from, tag, to, bytes, &request);
    if (status == DLC_OK)
        note(s, request, op);
    return status;
}

static void put_header(ssp *s, header *one) {
    *(header **)(void *)one = s->free_headers;
    s->free_headers = one;
}

/* Returns memory for a header, which the p2p channel can send; NULL: there is none. */
static header *take_header(ssp *s) {
    enum { AT_ONCE = 64, LINE = 64 };
    size_t bytes = (s->header_bytes + LINE - 1) / LINE * LINE;
    char *made = s->free_headers ? NULL : device_host_memory(s, AT_ONCE * bytes);
    for (size_t i = 0; made && i < AT_ONCE; i++)
        put_header(s, (header *)(void *)(made + i * bytes));
    header *one = s->free_headers;
    if (one)
        s->free_headers = *(header **)(void *)one;
    return one;
}

dlc_status comm_send_header(ssp *s, int32_t to, const header *one,
                            const int64_t *clocks) {
    header *copy = take_header(s);
    if (!copy)
        return comm_fail(s, DLC_ERR_NOMEM, "out of memory for a message");
    *copy = *one;
    memset(header_clocks(copy), 0, s->header_bytes - sizeof *copy);
    if (clocks)
        memcpy(header_clocks(copy), clocks, (size_t)s->workers * sizeof *clocks);
    pending_op op = {.what = HEADER_SENT, .peer = to, .header = copy};
    dlc_status status = send(s, to, TAG_HEADER, copy, s->header_bytes, &op);
    if (status != DLC_OK)
        put_header(s, copy);
    return status;
}

static dlc_tag tag_of(const pending_op *op) {
    int is_push = op->what == PUSH_SENT || op->what == PUSH_RECEIVED;
    return (dlc_tag)op->bucket * TAGS + (is_push ? TAG_PUSH : TAG_ANSWER);
}

dlc_status comm_send_slice(ssp *s, int32_t to, const float *from, size_t count,
                           const pending_op *op) {
    return send(s, to, tag_of(op), from, count * sizeof *from, op);
}

dlc_status comm_recv_slice(ssp *s, int32_t from, float *to, size_t count,
                           const pending_op *op) {
    return receive(s, from, tag_of(op), to, count * sizeof *to, op);
}

static dlc_status recv_header(ssp *s, int32_t from) {
    pending_op op = {.what = HEADER_RECEIVED, .peer = from};
    return receive(s, from, TAG_HEADER, s->inbox[from], s->header_bytes, &op);
}

/* ---- Incoming messages ------------------------------------------------------- */

static dlc_status check_header(ssp *s, const header *one, int32_t from) {
    int is_ours = one->kind <= REQUEST_SLOT ? s->owner >= 0 : 1;
    int is_theirs = one->kind != ANSWER ||
                    (from >= s->first_owner && from < s->first_owner + s->owners);
    int has_slot = !is_about_slot(one) || (one->slot >= 0 && one->slot < s->slots);
    if (one->bucket < 0 || one->bucket >= s->buckets || !is_ours || !is_theirs ||
        !has_slot)
        return comm_fail(s, DLC_ERR_INTERNAL,
                         "rank %d sent an invalid message (kind %u, bucket %d); do all "
                         "ranks run the same build?",
                         from, one->kind, one->bucket);
    return DLC_OK;
}

static dlc_status handle_header(ssp *s, int32_t from) {
    const header *one = s->inbox[from];
    dlc_status status = check_header(s, one, from);
    if (status != DLC_OK)
        return status;
    switch ((message_kind)one->kind) {
    case PUSH_GRADIENT:
    case PUSH_STEP:
    case PUSH_SLOT:
    case REQUEST_WEIGHTS:
    case REQUEST_SLOT:
        status = owner_header(s, one, from);
        break;
    case ANSWER:
        status = slices_answer_header(s, one, from - s->first_owner);
        break;
    case VOTE:
    case FREEZE:
    case FROZEN:
    case RELEASE:
        status = agree_message(s, one, from);
        break;
    case BARRIER_ENTER:
    case BARRIER_LEAVE:
        status = barrier_message(s, one);
        break;
    }
    return status == DLC_OK ? recv_header(s, from) : status;
}

static dlc_status complete(ssp *s, const pending_op *done) {
    switch (done->what) {
    case HEADER_RECEIVED:
        return handle_header(s, done->peer);
    case HEADER_SENT:
        put_header(s, done->header);
        return DLC_OK;
    case PUSH_SENT:
        slices_push_sent(s, done->bucket, done->peer);
        return DLC_OK;
    case ANSWER_SENT:
        return owner_answer_sent(s, done->bucket, done->peer);
    case PUSH_RECEIVED:
        return owner_push_received(s, done->bucket, done->peer);
    case ANSWER_RECEIVED:
        return slices_answer_received(s, done->bucket, done->peer);
    }
    return DLC_OK;
}

/* ---- The thread -------------------------------------------------------------- */

/* Takes the queued buckets whose data is complete; the others wait for their turn on
 * the queue, in the same order. Lock held. */
static dlc_status take_complete(ssp *s, int32_t *count) {
    dlc_status status = DLC_OK;
    int32_t taken = 0, done = 1;
    while (status == DLC_OK && done && taken < s->queued_count) {
        int32_t bucket = s->queued_bucket[taken];
        status = device_is_done(s, s->complete ? s->complete[bucket] : NULL, &done);
        if (status == DLC_OK && done)
            s->taken_bucket[taken++] = bucket;
    }
    s->queued_count -= taken;
    memmove(s->queued_bucket, s->queued_bucket + taken,
            (size_t)s->queued_count * sizeof *s->queued_bucket);
    *count = taken;
    return status;
}

/* Votes, which may have come with the buckets that were sent, and barriers. */
static dlc_status take_agreements(ssp *s) {
    dlc_status status = DLC_OK;
    pthread_mutex_lock(&s->lock);
    uint32_t vote = s->agree.vote;
    s->agree.vote = 0;
    int64_t barrier_entered = s->barrier_entered;
    s->polls = s->queued_count > 0 || s->has_deferred;
    pthread_mutex_unlock(&s->lock);
    if (vote)
        status = agree_vote(s, vote);
    if (status == DLC_OK && barrier_entered > s->barrier_announced)
        status = barrier_enter(s, barrier_entered);
    return status;
}

/* Takes and handles the work that the training thread has queued. */
static dlc_status take_queued(ssp *s, int *quit) {
    int32_t count = 0;
    pthread_mutex_lock(&s->lock);
    dlc_status status = take_complete(s, &count);
    int deferred = s->has_deferred;
    s->has_deferred = 0;
    *quit = s->quit;
    pthread_mutex_unlock(&s->lock);
    for (int32_t i = 0; status == DLC_OK && i < count; i++)
        status = slices_send(s, s->taken_bucket[i]);
    if (status == DLC_OK && deferred)
        status = slices_resume_deferred(s);
    return status == DLC_OK ? take_agreements(s) : status;
}

static double wait_seconds(const ssp *s) {
    return s->polls ? queue_wait : DLC_CAN(s->p2p, wakeup) ? long_wait : short_wait;
}

static dlc_status progress(ssp *s, int *quit) {
    int32_t which = -1;
    dlc_status status = take_queued(s, quit);
    if (status != DLC_OK || *quit)
        return status;
    status = s->p2p->wait_any(s->p2p->context, s->request, s->in_flight,
                              wait_seconds(s), &which);
    if (status != DLC_OK || which < 0 || which >= s->in_flight)
        return status;
    pending_op done = s->pending[which];
    s->in_flight--;
    s->request[which] = s->request[s->in_flight];
    s->pending[which] = s->pending[s->in_flight];
    return complete(s, &done);
}

static void *work(void *model) {
    ssp *s = model;
    dlc_status status = DLC_OK;
    int quit = 0;
    for (int32_t r = 0; status == DLC_OK && r < s->ranks; r++)
        if (r != s->me)
            status = recv_header(s, r);
    while (status == DLC_OK && !quit)
        status = progress(s, &quit);
    pthread_mutex_lock(&s->lock);
    if (status != DLC_OK && s->status == DLC_OK)
        s->status = status;
    slices_unlock(s);
    return NULL;
}

dlc_status comm_start(ssp *s) {
    s->inbox = host->alloc((size_t)s->ranks * sizeof *s->inbox);
    if (!s->inbox)
        return DLC_ERR_NOMEM;
    for (int32_t r = 0; r < s->ranks; r++)
        if (!(s->inbox[r] = take_header(s)))
            return DLC_ERR_NOMEM;
    int error = pthread_create(&s->thread, NULL, work, s);
    if (error)
        return host->fail(DLC_ERR_NOMEM,
                          "the communication thread could not be started: %s",
                          strerror(error));
    s->has_thread = 1;
    return DLC_OK;
}

/* Operations in flight would otherwise write to memory that is freed next. */
static void cancel_pending(ssp *s) {
    if (DLC_CAN(s->p2p, cancel))
        s->p2p->cancel(s->p2p->context);
}

void comm_stop(ssp *s) {
    if (s->has_thread) {
        pthread_mutex_lock(&s->lock);
        s->quit = 1;
        pthread_mutex_unlock(&s->lock);
        comm_wakeup(s);
        (void)pthread_join(s->thread, NULL);
        cancel_pending(s);
    }
    host->free((void *)s->inbox);
    host->free((void *)s->request);
    host->free(s->pending);
}

void comm_wakeup(const ssp *s) {
    if (DLC_CAN(s->p2p, wakeup))
        s->p2p->wakeup(s->p2p->context);
}

dlc_status comm_fail(ssp *s, dlc_status status, const char *format, ...) {
    va_list list;
    va_start(list, format);
    pthread_mutex_lock(&s->lock);
    if (!s->text[0])
        (void)vsnprintf(s->text, sizeof s->text, format, list);
    pthread_mutex_unlock(&s->lock);
    va_end(list);
    return status;
}
