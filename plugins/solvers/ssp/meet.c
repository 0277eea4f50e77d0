/* Meetings: all ranks behind the same iteration, with the same weights. And in slot 0
 * the velocity of the job, so that a checkpoint is one of sgd, and a job that goes on
 * from it may have other ranks, servers, groups and another staleness. */
#include "ssp.h"

/* ---- The train thread -------------------------------------------------------- */

static dlc_status settle_all(ssp *s) {
    dlc_status status = DLC_OK;
    for (int32_t b = 0; status == DLC_OK && b < s->buckets; b++)
        status = views_settled(s, b);
    return status;
}

static void order_all(ssp *s, const letter *kind) {
    pthread_mutex_lock(&s->lock);
    for (int32_t b = 0; b < s->buckets; b++) {
        letter order = *kind;
        order.bucket = b;
        views_order(s, &order);
    }
    pthread_mutex_unlock(&s->lock);
    post_wake(s);
}

/* Nothing else comes meanwhile: no need to be seen busy. */
static dlc_status take_view(ssp *s, view *one, float *to) {
    pthread_mutex_lock(&s->lock);
    one->fresh = 0;
    for (int32_t w = 0; w < s->workers; w++)
        one->have[w] = one->in[w];
    pthread_mutex_unlock(&s->lock);
    return views_copy(s, one, to);
}

/* Asks everybody for everything, and waits for it. */
static dlc_status pull(ssp *s, const letter *kind, float *to) {
    dlc_status status = DLC_OK;
    order_all(s, kind);
    for (int32_t b = 0; status == DLC_OK && b < s->buckets; b++) {
        status = views_settled(s, b);
        for (int32_t o = 0; status == DLC_OK && o < s->owners; o++)
            if (is_used(s, b, &view_at(s, b, o)->at))
                status = take_view(s, view_at(s, b, o), to);
    }
    return status;
}

static dlc_status pull_weights(ssp *s, int64_t iteration) {
    letter ask = {.kind = ASK_WEIGHTS, .own = iteration - 1, .others = iteration - 1};
    return pull(s, &ask, s->weights);
}

/* In step the owners have it; else it is the sum of the workers'. */
static dlc_status pull_velocity(ssp *s, int64_t iteration) {
    letter ask = {.kind = ASK_VELOCITY, .clock = s->staleness ? iteration : INT64_MIN};
    if (s->staleness && is_worker(s, s->me))
        ask.kind = PUSH_VELOCITY;
    dlc_status status = pull(s, &ask, s->velocity);
    s->whole = 1;
    return status;
}

static int all_came(const ssp *s, const view *of, int64_t iteration) {
    (void)of;
    return s->left >= iteration;
}

/* Nobody leaves, and goes on to change things, before all have seen them. */
static dlc_status leave(ssp *s, int64_t iteration) {
    pthread_mutex_lock(&s->lock);
    s->arrived = iteration;
    post_wake(s);
    dlc_status status = views_await(s, all_came, NULL, iteration);
    pthread_mutex_unlock(&s->lock);
    return status == DLC_OK ? DLC_OK : views_broken(s);
}

dlc_status meet_all(ssp *s, int64_t iteration) {
    if (s->alone)
        return DLC_OK;
    dlc_status status = settle_all(s);
    if (status == DLC_OK && s->staleness && s->whole)
        status = worker_take_up(s);
    if (status == DLC_OK)
        status = pull_weights(s, iteration);
    if (status == DLC_OK)
        status = pull_velocity(s, iteration);
    return status == DLC_OK ? leave(s, iteration) : status;
}

/* ---- The mail thread --------------------------------------------------------- */

static dlc_status let_leave(ssp *s, int64_t iteration) {
    pthread_mutex_lock(&s->lock);
    s->left = iteration;
    views_unlock(s);
    return DLC_OK;
}

/* Rank 0 counts. */
static dlc_status count_in(ssp *s, int64_t iteration) {
    dlc_status status = DLC_OK;
    letter leave_it = {.kind = LEAVE, .clock = iteration};
    if (++s->come < s->ranks)
        return DLC_OK;
    s->come = 0;
    for (int32_t r = 1; status == DLC_OK && r < s->ranks; r++)
        status = post_letter(s, r, &leave_it, NULL);
    return status == DLC_OK ? let_leave(s, iteration) : status;
}

dlc_status meet_arrived(ssp *s, int64_t iteration) {
    letter arrived = {.kind = ARRIVED, .clock = iteration};
    s->told = iteration;
    return s->me ? post_letter(s, 0, &arrived, NULL) : count_in(s, iteration);
}

dlc_status meet_letter(ssp *s, const letter *one) {
    return one->kind == ARRIVED ? count_in(s, one->clock) : let_leave(s, one->clock);
}
