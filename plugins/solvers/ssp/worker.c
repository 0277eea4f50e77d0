/* The train thread in an iteration: pushes what backward has filled, and takes over
 * weights that are fresh enough. */
#include "../shared/micro.h"
#include "ssp.h"

/* ---- Steps ------------------------------------------------------------------- */

dlc_momentum worker_step(const ssp *s, int64_t iteration) {
    return (dlc_momentum){.size = sizeof(dlc_momentum),
                          .nesterov = (uint32_t)s->nesterov,
                          .rate = (float)policy_rate(&s->policy, iteration),
                          .momentum = (float)s->momentum,
                          .decay = (float)s->weight_decay,
                          .grad_scale = 1.0f / (float)s->micro_batches};
}

/* One rank alone is plain momentum. */
static dlc_status step_alone(ssp *s, int64_t iteration, int32_t bucket) {
    dlc_momentum base = worker_step(s, iteration);
    dlc_status status = DLC_OK;
    for (size_t i = s->pieces.first[bucket];
         status == DLC_OK && i < s->pieces.first[bucket + 1]; i++) {
        const stretch *piece = &s->pieces.at[i];
        dlc_momentum how = base;
        how.rate *= piece->rate;
        how.decay *= piece->decay;
        status = s->ops->momentum(
            s->device, NULL, piece->count, &how, s->gradients + piece->begin,
            s->velocity + piece->begin, s->weights + piece->begin);
    }
    return status;
}

/* Nesterov's is not the velocity itself, so it has memory of its own. */
static dlc_status look_ahead(ssp *s, const dlc_momentum *base, const stretch *piece) {
    dlc_momentum how = *base;
    float *gradient = s->gradients + piece->begin;
    float decay = how.decay * piece->decay / (float)s->workers / how.grad_scale;
    how.rate *= piece->rate;
    how.decay = 0;
    if (decay > 0) {
        dlc_status status = s->ops->axpy(s->device, NULL, piece->count, decay,
                                         s->weights + piece->begin, gradient);
        if (status != DLC_OK)
            return status;
    }
    return s->ops->momentum(s->device, NULL, piece->count, &how, gradient,
                            s->velocity + piece->begin, s->outbox + piece->begin);
}

/* This worker's share of the step: the velocity is that of its share of the gradient,
 * weight decay included. It is what is pushed, and done here at once: one pass. */
static dlc_status step_of_piece(ssp *s, const dlc_momentum *base,
                                const stretch *piece) {
    dlc_momentum how = *base;
    if (s->nesterov)
        return look_ahead(s, base, piece);
    how.rate *= piece->rate;
    how.decay *= piece->decay / (float)s->workers;
    return s->ops->momentum(s->device, NULL, piece->count, &how,
                            s->gradients + piece->begin, s->velocity + piece->begin,
                            s->weights + piece->begin);
}

static dlc_status make_step(ssp *s, int64_t iteration, int32_t bucket) {
    span all = bucket_of(s, bucket);
    dlc_momentum base = worker_step(s, iteration);
    dlc_status status = DLC_OK;
    if (!all.count)
        return DLC_OK;
    if (s->nesterov)
        status = s->ops->fill(s->device, NULL, s->outbox + all.begin, 0,
                              all.count * sizeof(float));
    for (size_t i = s->pieces.first[bucket];
         status == DLC_OK && i < s->pieces.first[bucket + 1]; i++)
        status = step_of_piece(s, &base, &s->pieces.at[i]);
    return status;
}

static dlc_status stop(ssp *s, size_t begin, size_t end) {
    return end > begin ? s->ops->fill(s->device, NULL, s->velocity + begin, 0,
                                      (end - begin) * sizeof(float))
                       : DLC_OK;
}

/* What is never updated any more has no velocity to push. */
static dlc_status stop_between(ssp *s, int32_t bucket) {
    span all = bucket_of(s, bucket);
    size_t at = all.begin;
    dlc_status status = DLC_OK;
    for (size_t i = s->pieces.first[bucket];
         status == DLC_OK && i < s->pieces.first[bucket + 1]; i++) {
        const stretch *piece = &s->pieces.at[i];
        status = stop(s, at, piece->begin);
        at = piece->begin + piece->count;
    }
    return status == DLC_OK ? stop(s, at, all.begin + all.count) : status;
}

dlc_status worker_take_up(ssp *s) {
    dlc_status status = DLC_OK;
    for (int32_t b = 0; status == DLC_OK && b < s->buckets; b++) {
        for (int32_t w = 0; status == DLC_OK && w < s->workers; w++) {
            span part = part_of(s, b, w);
            if (w != s->me)
                status = stop(s, part.begin, part.begin + part.count);
        }
        if (status == DLC_OK)
            status = stop_between(s, b);
    }
    s->whole = 0;
    return status;
}

/* ---- Pushing ----------------------------------------------------------------- */

static dlc_status gather(ssp *s, int32_t micro, int32_t bucket) {
    const micro_batches batches = {.ops = s->ops,
                                   .device = s->device,
                                   .count = s->micro_batches,
                                   .gradients = s->gradients,
                                   .sum = s->sum};
    span all = bucket_of(s, bucket);
    return micro_gather(&batches, micro, all.begin, all.begin + all.count);
}

/* Updates of other workers that iteration c + 1 cannot do without. */
static int64_t needed(const ssp *s, int64_t iteration) {
    return s->staleness == INT64_MAX ? INT64_MIN : iteration - s->staleness;
}

static dlc_status push(ssp *s, int64_t iteration, int32_t bucket) {
    letter order = {.kind = s->staleness ? PUSH_STEP : PUSH_GRADIENT,
                    .bucket = bucket,
                    .clock = iteration,
                    .own = iteration,
                    .others = needed(s, iteration)};
    dlc_status status = DLC_OK;
    if (bucket == s->buckets - 1)
        status = agree_words(s, iteration, &order.loss);
    if (status == DLC_OK && s->staleness)
        status = make_step(s, iteration, bucket);
    if (status != DLC_OK)
        return status;
    pthread_mutex_lock(&s->lock);
    views_order(s, &order);
    pthread_mutex_unlock(&s->lock);
    post_wake(s);
    return DLC_OK;
}

dlc_status worker_ready(ssp *s, int64_t iteration, int32_t micro, int32_t bucket) {
    dlc_status status = DLC_OK;
    if (s->micro_batches > 1)
        status = gather(s, micro, bucket);
    if (status != DLC_OK || micro < s->micro_batches - 1 || s->alone)
        return status;
    if (s->staleness && s->whole)
        status = worker_take_up(s);
    /* The push before it has its answer: so no rank has more than one under way. */
    if (status == DLC_OK)
        status = views_settled(s, bucket);
    return status == DLC_OK ? push(s, iteration, bucket) : status;
}

/* ---- Taking over ------------------------------------------------------------- */

static int has_group(const ssp *s) {
    return (s->me > 0 && s->group[s->me - 1] == s->group[s->me]) ||
           (s->me + 1 < s->workers && s->group[s->me + 1] == s->group[s->me]);
}

/* May the iteration behind this one compute with what is known of the slice? */
static int is_fresh(const ssp *s, const view *one, int64_t iteration) {
    if (one->answered == one->asked)
        return 1;
    if (s->staleness == 0 || has_group(s))
        return 0; /* the answer alone has what others give to this clock */
    const int64_t *known = one->fresh ? one->in : one->have;
    for (int32_t w = 0; w < s->workers; w++)
        if (w != s->me && known[w] < needed(s, iteration))
            return 0;
    return 1;
}

/* With the lock held. */
static dlc_status stand(ssp *s, const view *one, int64_t iteration, int32_t bucket,
                        int32_t owner) {
    if (is_fresh(s, one, iteration))
        return DLC_OK;
    uint64_t since = host->now_ns();
    trace_line(s, "stand", bucket, owner, iteration + 1, 0,
               one->fresh ? one->in : one->have);
    dlc_status status = views_await(s, is_fresh, one, iteration);
    views_waited(s, one, since);
    return status;
}

static void note_staleness(ssp *s, const view *one, int64_t iteration) {
    for (int32_t w = 0; w < s->workers; w++)
        if (s->group[w] != s->group[s->me] && iteration - one->have[w] > s->worst)
            s->worst = iteration - one->have[w];
}

/* This rank's newest step on top of its weights: `fresh`, of those that came just now;
 * else they may have it already. */
static dlc_status add_own(ssp *s, const view *one, int fresh) {
    size_t n = one->at.count;
    float *weights = s->weights + one->at.begin;
    if (!n || (!fresh && !s->nesterov))
        return DLC_OK;
    return s->nesterov
               ? s->ops->add(s->device, NULL, n, s->outbox + one->at.begin, weights)
               : s->ops->axpy(s->device, NULL, n, -1, s->velocity + one->at.begin,
                              weights);
}

/* The newest weights that have come, with the step that they don't have yet; or, where
 * none have, the step on top of those that are here. */
static dlc_status take(ssp *s, int64_t iteration, int32_t bucket, int32_t owner) {
    view *one = view_at(s, bucket, owner);
    pthread_mutex_lock(&s->lock);
    dlc_status status = stand(s, one, iteration, bucket, owner);
    int fresh = one->fresh, behind = one->answered != one->asked;
    one->busy = fresh;
    one->fresh = 0;
    for (int32_t w = 0; fresh && w < s->workers; w++)
        one->have[w] = one->in[w];
    one->have[s->me] = iteration;
    pthread_mutex_unlock(&s->lock);
    if (status != DLC_OK)
        return views_broken(s);
    note_staleness(s, one, iteration);
    trace_line(s, "read", bucket, owner, iteration + 1, 0, one->have);
    if (fresh)
        status = views_copy(s, one, s->weights);
    if (status == DLC_OK && behind && s->staleness)
        status = add_own(s, one, fresh);
    pthread_mutex_lock(&s->lock);
    if (fresh)
        views_release(s, one);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static void note_read(ssp *s) {
    if (++s->taken < s->buckets)
        return;
    int64_t most = DLC_STALENESS_BINS - 1;
    s->stats.staleness[s->worst < most ? s->worst : most]++;
    s->stats.reads++;
    s->taken = 0;
    s->worst = 0;
}

static dlc_status take_all(ssp *s, int64_t iteration, int32_t bucket) {
    dlc_status status = DLC_OK;
    for (int32_t o = 0; status == DLC_OK && o < s->owners; o++)
        if (is_used(s, bucket, &view_at(s, bucket, o)->at))
            status = take(s, iteration, bucket, o);
    if (status == DLC_OK)
        note_read(s);
    return status;
}

static int is_served(const ssp *s, const view *of, int64_t iteration) {
    (void)of;
    return s->served >= iteration;
}

/* A server computes nothing: its iteration ends when it has everybody's updates. */
static dlc_status serve(ssp *s, int64_t iteration) {
    float ignored;
    dlc_status status = agree_words(s, iteration, &ignored);
    if (status != DLC_OK)
        return status;
    pthread_mutex_lock(&s->lock);
    status = views_await(s, is_served, NULL, iteration);
    pthread_mutex_unlock(&s->lock);
    return status == DLC_OK ? DLC_OK : views_broken(s);
}

dlc_status worker_update(ssp *s, int64_t iteration, int32_t bucket) {
    int last = bucket == s->buckets - 1;
    dlc_status status = DLC_OK;
    if (s->alone)
        return step_alone(s, iteration, bucket);
    if (is_worker(s, s->me))
        status = take_all(s, iteration, bucket);
    else if (last)
        status = serve(s, iteration);
    return status == DLC_OK && last ? agree_end(s, iteration) : status;
}
