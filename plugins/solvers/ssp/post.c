/* The mail thread: what it sends and receives, one request after another.
 *
 * A message is a letter of fixed size; where a slice goes with it, it follows with a
 * tag of its own, and the receiver makes room for it when it has read the letter. A
 * letter from every rank is always waited for, so nobody's sends ever hang for long.
 */
#include <stdarg.h>
#include <string.h>

#include "ssp.h"

enum { TAG_LETTER = 0, TAG_PUSH = 1, TAG_ANSWER = 2, TAGS = 2, ROOM_LEAST = 64 };

/* For how long it waits for messages before it looks at what the train thread has:
 * until it is woken; or, by a core that cannot do that, not for long. */
static const double asleep = 0.1, dozing = 0.0003;

/* ---- Requests ---------------------------------------------------------------- */

static dlc_status grow(ssp *s) {
    int32_t room = s->room ? 2 * s->room : ROOM_LEAST;
    dlc_request **request = host->alloc((size_t)room * sizeof(dlc_request *));
    errand *errands = host->alloc((size_t)room * sizeof *errands);
    if (!request || !errands) {
        host->free((void *)request);
        host->free(errands);
        return post_fail(s, DLC_ERR_NOMEM, "memory ran out for %d messages", room);
    }
    for (int32_t i = 0; i < s->under_way; i++) {
        request[i] = s->request[i];
        errands[i] = s->errands[i];
    }
    host->free((void *)s->request);
    host->free(s->errands);
    s->request = request;
    s->errands = errands;
    s->room = room;
    return DLC_OK;
}

/* Room for one more comes first: a request that nobody knows is lost. */
static dlc_status make_room(ssp *s) {
    return s->under_way < s->room ? DLC_OK : grow(s);
}

static void note(ssp *s, dlc_request *request, const errand *then) {
    s->request[s->under_way] = request;
    s->errands[s->under_way++] = *then;
}

static dlc_status send(ssp *s, int32_t to, dlc_tag tag, const void *from, size_t bytes,
                       const errand *then) {
    dlc_request *request = NULL;
    dlc_status status = make_room(s);
    if (status == DLC_OK)
        status = s->mail->send(s->mail->context, to, tag, from, bytes, &request);
    if (status == DLC_OK)
        note(s, request, then);
    return status;
}

static dlc_status receive(ssp *s, int32_t from, dlc_tag tag, void *to, size_t bytes,
                          const errand *then) {
    dlc_request *request = NULL;
    dlc_status status = make_room(s);
    if (status == DLC_OK)
        status = s->mail->recv(s->mail->context, from, tag, to, bytes, &request);
    if (status == DLC_OK)
        note(s, request, then);
    return status;
}

dlc_status post_letter(ssp *s, int32_t to, const letter *one, const int64_t *in) {
    letter *copy = host->alloc(s->letter_bytes);
    if (!copy)
        return post_fail(s, DLC_ERR_NOMEM, "memory ran out for a message");
    *copy = *one;
    if (in)
        memcpy(letter_in(copy), in, (size_t)s->workers * sizeof *in);
    errand then = {.what = SENT_LETTER, .peer = to, .letter = copy};
    dlc_status status = send(s, to, TAG_LETTER, copy, s->letter_bytes, &then);
    if (status != DLC_OK)
        host->free(copy);
    return status;
}

static dlc_tag tag_of(const errand *then) {
    int is_push = then->what == SENT_PUSH || then->what == GOT_PUSH;
    return (dlc_tag)then->bucket * TAGS + (is_push ? TAG_PUSH : TAG_ANSWER);
}

dlc_status post_slice(ssp *s, int32_t to, const float *from, size_t count,
                      const errand *then) {
    return send(s, to, tag_of(then), from, count * sizeof *from, then);
}

dlc_status post_expect(ssp *s, int32_t from, float *to, size_t count,
                       const errand *then) {
    return receive(s, from, tag_of(then), to, count * sizeof *to, then);
}

static dlc_status expect_letter(ssp *s, int32_t from) {
    errand then = {.what = GOT_LETTER, .peer = from};
    return receive(s, from, TAG_LETTER, s->inbox[from], s->letter_bytes, &then);
}

/* ---- What comes -------------------------------------------------------------- */

static dlc_status check_letter(ssp *s, const letter *one, int32_t from) {
    int is_ours = one->kind <= ASK_VELOCITY ? s->owner >= 0 : 1;
    int is_theirs = one->kind != ANSWER ||
                    (from >= s->first_owner && from < s->first_owner + s->owners);
    if (one->bucket < 0 || one->bucket >= s->buckets || !is_ours || !is_theirs)
        return post_fail(s, DLC_ERR_INTERNAL,
                         "rank %d sent what makes no sense (kind %u, bucket %d); are "
                         "all ranks of one build?",
                         from, one->kind, one->bucket);
    return DLC_OK;
}

static dlc_status read_letter(ssp *s, int32_t from) {
    const letter *one = s->inbox[from];
    dlc_status status = check_letter(s, one, from);
    if (status != DLC_OK)
        return status;
    switch ((letter_kind)one->kind) {
    case PUSH_GRADIENT:
    case PUSH_STEP:
    case PUSH_VELOCITY:
    case ASK_WEIGHTS:
    case ASK_VELOCITY:
        status = owner_letter(s, one, from);
        break;
    case ANSWER:
        status = views_letter(s, one, from - s->first_owner);
        break;
    case WISH:
    case FREEZE:
    case FROZEN:
    case RELEASE:
        status = agree_letter(s, one, from);
        break;
    case ARRIVED:
    case LEAVE:
        status = meet_letter(s, one);
        break;
    }
    return status == DLC_OK ? expect_letter(s, from) : status;
}

static dlc_status run(ssp *s, const errand *done) {
    switch (done->what) {
    case GOT_LETTER:
        return read_letter(s, done->peer);
    case SENT_LETTER:
        host->free(done->letter);
        return DLC_OK;
    case SENT_PUSH:
        views_sent(s, done->bucket, done->peer);
        return DLC_OK;
    case SENT_ANSWER:
        return owner_sent(s, done->bucket, done->peer);
    case GOT_PUSH:
        return owner_pushed(s, done->bucket, done->peer);
    case GOT_ANSWER:
        return views_arrived(s, done->bucket, done->peer);
    }
    return DLC_OK;
}

/* ---- The thread -------------------------------------------------------------- */

/* What the train thread has for this one. */
static dlc_status take_orders(ssp *s, int *quit) {
    dlc_status status = DLC_OK;
    pthread_mutex_lock(&s->lock);
    int32_t count = s->orders;
    memcpy(s->taken_orders, s->ordered, (size_t)count * sizeof *s->ordered);
    s->orders = 0;
    int late = s->late;
    s->late = 0;
    uint32_t wish = s->agree.wish;
    s->agree.wish = 0;
    int64_t arrived = s->arrived;
    *quit = s->quit;
    pthread_mutex_unlock(&s->lock);
    for (int32_t i = 0; status == DLC_OK && i < count; i++)
        status = views_send(s, s->taken_orders[i]);
    if (status == DLC_OK && late)
        status = views_late(s);
    if (status == DLC_OK && wish)
        status = agree_wish(s, wish);
    if (status == DLC_OK && arrived > s->told)
        status = meet_arrived(s, arrived);
    return status;
}

static dlc_status turn(ssp *s, int *quit) {
    int32_t which = -1;
    dlc_status status = take_orders(s, quit);
    if (status != DLC_OK || *quit)
        return status;
    status = s->mail->wait_any(s->mail->context, s->request, s->under_way,
                               DLC_CAN(s->mail, wake) ? asleep : dozing, &which);
    if (status != DLC_OK || which < 0 || which >= s->under_way)
        return status;
    errand done = s->errands[which];
    s->under_way--;
    s->request[which] = s->request[s->under_way];
    s->errands[which] = s->errands[s->under_way];
    return run(s, &done);
}

static void *work(void *solver) {
    ssp *s = solver;
    dlc_status status = DLC_OK;
    int quit = 0;
    for (int32_t r = 0; status == DLC_OK && r < s->ranks; r++)
        if (r != s->me)
            status = expect_letter(s, r);
    while (status == DLC_OK && !quit)
        status = turn(s, &quit);
    pthread_mutex_lock(&s->lock);
    if (status != DLC_OK && s->status == DLC_OK)
        s->status = status;
    views_unlock(s);
    return NULL;
}

dlc_status post_start(ssp *s) {
    s->inbox = host->alloc((size_t)s->ranks * sizeof *s->inbox);
    if (!s->inbox)
        return DLC_ERR_NOMEM;
    for (int32_t r = 0; r < s->ranks; r++)
        if (!(s->inbox[r] = host->alloc(s->letter_bytes)))
            return DLC_ERR_NOMEM;
    int error = pthread_create(&s->thread, NULL, work, s);
    if (error)
        return host->fail(DLC_ERR_NOMEM, "no thread for messages: %s", strerror(error));
    s->has_thread = 1;
    return DLC_OK;
}

/* What is still under way would come to memory that is freed. */
static void give_up(ssp *s) {
    if (DLC_CAN(s->mail, give_up))
        s->mail->give_up(s->mail->context);
}

void post_stop(ssp *s) {
    if (s->has_thread) {
        pthread_mutex_lock(&s->lock);
        s->quit = 1;
        pthread_mutex_unlock(&s->lock);
        post_wake(s);
        (void)pthread_join(s->thread, NULL);
        give_up(s);
    }
    for (int32_t i = 0; i < s->under_way; i++)
        if (s->errands[i].what == SENT_LETTER)
            host->free(s->errands[i].letter);
    for (int32_t r = 0; s->inbox && r < s->ranks; r++)
        host->free(s->inbox[r]);
    host->free((void *)s->inbox);
    host->free((void *)s->request);
    host->free(s->errands);
}

void post_wake(const ssp *s) {
    if (DLC_CAN(s->mail, wake))
        s->mail->wake(s->mail->context);
}

dlc_status post_fail(ssp *s, dlc_status status, const char *format, ...) {
    va_list list;
    va_start(list, format);
    pthread_mutex_lock(&s->lock);
    if (!s->text[0])
        (void)vsnprintf(s->text, sizeof s->text, format, list);
    pthread_mutex_unlock(&s->lock);
    va_end(list);
    return status;
}
