/* Control words of consistency model ssp. The first control word, and those after the
 * votes, are sums of what all ranks gave last; at the beginning some of them stand for
 * all. A vote that one rank makes positive becomes positive on all ranks in the same
 * iteration, although the ranks are in different iterations: rank 0 asks every rank to
 * freeze, that is, not to end the iteration in progress, and to say which one that is.
 * The words take effect in the highest of these; until then the ranks go on.
 *
 * This cannot deadlock: a rank waits only at the end of its iteration, after all pushes
 * of the iteration, and the communication threads never wait.
 *
 * A request of the user, such as a signal, usually reaches all ranks, some of them a
 * moment later. Such a late duplicate is no second vote: a rank that learned of a vote
 * which it had not cast itself ignores its own vote in the iteration after the one in
 * which the words took effect. */
#include <string.h>

#include "ssp.h"

/* ---- The training thread ----------------------------------------------------- */

static dlc_status copy_control_words(ssp *s, void *to, const void *from) {
    return s->ops->copy(s->device, s->queue, to, from,
                        s->control_words * sizeof(float));
}

dlc_status agree_copy_words(ssp *s) {
    return copy_control_words(s, s->words_in, s->gradients + s->trained);
}

/* Is a vote of an iteration only about what the ranks have agreed on already? */
static int is_late(agreement *agree, size_t word, int64_t iteration) {
    if (agree->duplicate_at[word] == iteration)
        return 1;
    if (agree->effective_at[word] < iteration)
        return 0;
    /* The iteration has ended before the queue had read its words. So this rank did
     * vote, and its next vote is a new one. */
    agree->duplicate_at[word] = -1;
    return 1;
}

/* The last vote, if there are control words. */
static size_t last_vote(const ssp *s) {
    return s->control_words ? DLC_CONTROL_VOTES : 0;
}

control_sums agree_read_words(ssp *s, int64_t iteration) {
    agreement *agree = &s->agree;
    control_sums sums;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 1; i <= last_vote(s); i++) {
        uint32_t bit = 1u << i;
        int is_pending = (agree->pending & bit) != 0;
        if (!(s->words_in[i] > 0) || (!is_pending && is_late(agree, i, iteration)))
            continue;
        if (!is_pending)
            agree->vote |= bit;
        agree->pending |= bit;
        agree->voted |= bit;
    }
    pthread_mutex_unlock(&s->lock);
    for (int i = 0; i < CONTROL_SUMS; i++)
        sums.of[i] = s->words_in[control_sum_at(i)];
    return sums;
}

/* Lock held. */
static uint32_t take_scheduled(agreement *agree, int64_t iteration) {
    uint32_t words = 0;
    scheduled_words **at = &agree->scheduled;
    while (*at) {
        scheduled_words *one = *at;
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

static void end_words(ssp *s, int64_t iteration, float *control) {
    agreement *agree = &s->agree;
    uint32_t words = take_scheduled(agree, iteration);
    for (size_t i = 1; i <= last_vote(s); i++) {
        uint32_t bit = 1u << i;
        if (!(words & bit))
            continue;
        control[i] = 1;
        if (!(agree->voted & bit))
            agree->duplicate_at[i] = iteration + 1;
        agree->effective_at[i] = iteration;
        agree->pending &= ~bit;
        agree->voted &= ~bit;
    }
    agree->ended = iteration;
    for (int i = 0; i < CONTROL_SUMS; i++)
        control[control_sum_at(i)] = s->sums.of[i];
}

void agree_close(ssp *s) {
    (void)take_scheduled(&s->agree, INT64_MAX);
}

static int may_end(const ssp *s, const slice *of, int64_t iteration) {
    (void)of, (void)iteration;
    return !s->agree.frozen && (s->has_sums || !is_worker(s, s->me));
}

dlc_status agree_end_iteration(ssp *s, int64_t iteration) {
    float *control = s->words_out + iteration % WORD_SLOTS * MAX_CONTROL_WORDS;
    pthread_mutex_lock(&s->lock);
    dlc_status status = slices_wait_until(s, may_end, NULL, iteration);
    memset(control, 0, MAX_CONTROL_WORDS * sizeof *control);
    end_words(s, iteration, control);
    pthread_mutex_unlock(&s->lock);
    return status == DLC_OK ? copy_control_words(s, s->gradients + s->trained, control)
                            : slices_error(s);
}

/* ---- The communication thread ------------------------------------------------ */

static dlc_status send_to_all(ssp *s, const header *one) {
    dlc_status status = DLC_OK;
    for (int32_t r = 1; status == DLC_OK && r < s->ranks; r++)
        status = comm_send_header(s, r, one, NULL);
    return status == DLC_OK ? agree_message(s, one, 0) : status;
}

static dlc_status begin_round(ssp *s) {
    agreement *agree = &s->agree;
    agree->round = agree->queued;
    agree->queued = 0;
    agree->replies = 0;
    agree->highest = -1;
    memset(agree->replied, 0, (size_t)s->ranks);
    return send_to_all(s, &(header){.kind = FREEZE, .words = agree->round});
}

/* A vote cast before the rank knew of the round in progress belongs to that round. */
static dlc_status vote_received(ssp *s, int32_t from, uint32_t words) {
    agreement *agree = &s->agree;
    if (agree->round && !agree->replied[from])
        words &= ~agree->round;
    agree->queued |= words;
    return agree->queued && !agree->round ? begin_round(s) : DLC_OK;
}

static dlc_status end_round(ssp *s) {
    agreement *agree = &s->agree;
    header release = {.kind = RELEASE, .words = agree->round, .clock = agree->highest};
    agree->round = 0;
    dlc_status status = send_to_all(s, &release);
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
    s->agree.vote &= ~words; /* the round in progress is about these words */
    header reply = {.kind = FROZEN, .clock = s->agree.ended + 1};
    pthread_mutex_unlock(&s->lock);
    return s->me ? comm_send_header(s, 0, &reply, NULL) : replied(s, 0, reply.clock);
}

/* A rank that is far behind may have several of these for iterations to come. */
static dlc_status release(ssp *s, const header *one) {
    scheduled_words *agreed = host->alloc(sizeof *agreed);
    if (!agreed)
        return comm_fail(s, DLC_ERR_NOMEM, "out of memory for the votes of the ranks");
    pthread_mutex_lock(&s->lock);
    *agreed = (scheduled_words){s->agree.scheduled, one->clock, one->words};
    s->agree.scheduled = agreed;
    s->agree.frozen = 0;
    slices_unlock(s);
    return DLC_OK;
}

dlc_status agree_vote(ssp *s, uint32_t words) {
    header vote = {.kind = VOTE, .words = words};
    return s->me ? comm_send_header(s, 0, &vote, NULL) : vote_received(s, 0, words);
}

dlc_status agree_message(ssp *s, const header *one, int32_t from) {
    switch (one->kind) {
    case VOTE:
        return vote_received(s, from, one->words);
    case FREEZE:
        return freeze(s, one->words);
    case FROZEN:
        return replied(s, from, one->clock);
    default:
        return release(s, one);
    }
}
