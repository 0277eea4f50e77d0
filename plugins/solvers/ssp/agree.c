/* The tail: its first word is the sum of what all ranks gave last. Any other that one
 * rank makes positive becomes positive on all of them, in one and the same iteration,
 * though they are not in the same one: rank 0 asks every rank to freeze, that is, not
 * to end the iteration in progress, and which one that is; the highest is the one in
 * which all will see the words, and until there they go on.
 *
 * Nobody waits for a rank that is frozen but for the end of its iteration, and all its
 * pushes come before that; the mail threads never wait. So it ends.
 *
 * What one person asks for usually reaches all ranks, some of them a moment later. Such
 * an echo is no second wish: a rank that was told of a wish which it did not have
 * passes over its own in the iteration behind the one that met it.
 */
#include <string.h>

#include "ssp.h"

/* ---- The train thread -------------------------------------------------------- */

static dlc_status copy_tail(ssp *s, void *to, const void *from) {
    return s->ops->copy(s->device, NULL, to, from, s->tail * sizeof(float));
}

dlc_status agree_words(ssp *s, int64_t iteration, float *loss) {
    agreement *agree = &s->agree;
    float tail[WORDS] = {0};
    dlc_status status = copy_tail(s, tail, s->gradients + s->trained);
    if (status != DLC_OK)
        return status;
    *loss = tail[0];
    pthread_mutex_lock(&s->lock);
    for (size_t i = 1; i < s->tail; i++) {
        uint32_t bit = 1u << i;
        if (!(tail[i] > 0) || (!(agree->pending & bit) && agree->echo[i] == iteration))
            continue;
        if (!(agree->pending & bit))
            agree->wish |= bit;
        agree->pending |= bit;
        agree->mine |= bit;
    }
    int wishes = agree->wish != 0;
    pthread_mutex_unlock(&s->lock);
    if (wishes)
        post_wake(s);
    return DLC_OK;
}

/* With the lock held. */
static uint32_t take_due(agreement *agree, int64_t iteration) {
    uint32_t words = 0;
    due **at = &agree->due;
    while (*at) {
        due *one = *at;
        if (one->iteration > iteration) {
            at = &one->next;
            continue;
        }
        words |= one->words;
        *at = one->next;
        host->free(one);
    }
    return words;
}

static void end_words(ssp *s, int64_t iteration, float *tail) {
    agreement *agree = &s->agree;
    uint32_t words = take_due(agree, iteration);
    for (size_t i = 1; i < s->tail; i++) {
        uint32_t bit = 1u << i;
        if (!(words & bit))
            continue;
        tail[i] = 1;
        if (!(agree->mine & bit))
            agree->echo[i] = iteration + 1;
        agree->pending &= ~bit;
        agree->mine &= ~bit;
    }
    agree->ended = iteration;
    tail[0] = s->loss;
}

void agree_close(ssp *s) {
    (void)take_due(&s->agree, INT64_MAX);
}

static int may_end(const ssp *s, const view *of, int64_t iteration) {
    (void)of, (void)iteration;
    return !s->agree.frozen;
}

dlc_status agree_end(ssp *s, int64_t iteration) {
    float tail[WORDS] = {0};
    pthread_mutex_lock(&s->lock);
    dlc_status status = views_await(s, may_end, NULL, iteration);
    end_words(s, iteration, tail);
    pthread_mutex_unlock(&s->lock);
    return status == DLC_OK ? copy_tail(s, s->gradients + s->trained, tail)
                            : views_broken(s);
}

/* ---- The mail thread --------------------------------------------------------- */

static dlc_status tell_all(ssp *s, const letter *one) {
    dlc_status status = DLC_OK;
    for (int32_t r = 1; status == DLC_OK && r < s->ranks; r++)
        status = post_letter(s, r, one, NULL);
    return status == DLC_OK ? agree_letter(s, one, 0) : status;
}

static dlc_status begin_round(ssp *s) {
    agreement *agree = &s->agree;
    agree->round = agree->queued;
    agree->queued = 0;
    agree->replies = 0;
    agree->highest = -1;
    memset(agree->replied, 0, (size_t)s->ranks);
    return tell_all(s, &(letter){.kind = FREEZE, .words = agree->round});
}

/* What a rank wished for before it knew of the round is what the round is about. */
static dlc_status wished(ssp *s, int32_t from, uint32_t words) {
    agreement *agree = &s->agree;
    if (agree->round && !agree->replied[from])
        words &= ~agree->round;
    agree->queued |= words;
    return agree->queued && !agree->round ? begin_round(s) : DLC_OK;
}

static dlc_status end_round(ssp *s) {
    agreement *agree = &s->agree;
    letter release = {.kind = RELEASE, .words = agree->round, .clock = agree->highest};
    agree->round = 0;
    dlc_status status = tell_all(s, &release);
    return status == DLC_OK && agree->queued ? begin_round(s) : status;
}

static dlc_status replied(ssp *s, int32_t from, int64_t iteration) {
    agreement *agree = &s->agree;
    agree->replied[from] = 1;
    agree->highest = iteration > agree->highest ? iteration : agree->highest;
    return ++agree->replies == s->ranks ? end_round(s) : DLC_OK;
}

static dlc_status freeze(ssp *s, uint32_t words) {
    pthread_mutex_lock(&s->lock);
    s->agree.frozen = 1;
    s->agree.pending |= words;
    s->agree.wish &= ~words; /* this round is about them */
    letter reply = {.kind = FROZEN, .clock = s->agree.ended + 1};
    pthread_mutex_unlock(&s->lock);
    return s->me ? post_letter(s, 0, &reply, NULL) : replied(s, 0, reply.clock);
}

/* One that is far behind may have agreed on several iterations. */
static dlc_status release(ssp *s, const letter *one) {
    due *agreed = host->alloc(sizeof *agreed);
    if (!agreed)
        return post_fail(s, DLC_ERR_NOMEM, "memory ran out for what ranks agree on");
    pthread_mutex_lock(&s->lock);
    *agreed = (due){s->agree.due, one->clock, one->words};
    s->agree.due = agreed;
    s->agree.frozen = 0;
    views_unlock(s);
    return DLC_OK;
}

dlc_status agree_wish(ssp *s, uint32_t words) {
    letter wish = {.kind = WISH, .words = words};
    return s->me ? post_letter(s, 0, &wish, NULL) : wished(s, 0, words);
}

dlc_status agree_letter(ssp *s, const letter *one, int32_t from) {
    switch (one->kind) {
    case WISH:
        return wished(s, from, one->words);
    case FREEZE:
        return freeze(s, one->words);
    case FROZEN:
        return replied(s, from, one->clock);
    default:
        return release(s, one);
    }
}
