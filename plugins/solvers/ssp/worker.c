/* The training thread during an iteration: pushes updates of the buckets that backward
 * has filled, and takes weights that are fresh enough. */
#include "../shared/accumulate.h"
#include "ssp.h"

/* ---- Steps ------------------------------------------------------------------- */

dlc_momentum worker_step(const ssp *s, int64_t iteration) {
    return (dlc_momentum){
        .size = sizeof(dlc_momentum),
        .nesterov = (uint32_t)s->nesterov,
        .learning_rate = (float)policy_learning_rate(&s->policy, iteration),
        .momentum = (float)s->momentum,
        .weight_decay = (float)s->weight_decay,
        .grad_scale = 1.0f / (float)s->accumulation_steps};
}

/* A job of one rank is plain momentum. */
static dlc_status step_alone(ssp *s, int64_t iteration, int32_t bucket) {
    dlc_momentum base = worker_step(s, iteration);
    dlc_status status = DLC_OK;
    for (size_t i = s->ranges.first[bucket];
         status == DLC_OK && i < s->ranges.first[bucket + 1]; i++) {
        const param_range *range = &s->ranges.at[i];
        dlc_momentum rule = base;
        rule.learning_rate *= range->lr_mult;
        rule.weight_decay *= range->decay_mult;
        status = s->ops->momentum(
            s->device, NULL, range->count, &rule, s->gradients + range->begin,
            s->velocity + range->begin, s->weights + range->begin);
    }
    return status;
}

/* A Nesterov step is not the velocity itself, so it needs memory of its own. */
static dlc_status nesterov_step(ssp *s, const dlc_momentum *base,
                                const param_range *range) {
    dlc_momentum rule = *base;
    float *gradient = s->gradients + range->begin;
    float decay = rule.weight_decay * range->decay_mult / (float)s->workers /
                  rule.grad_scale;
    rule.learning_rate *= range->lr_mult;
    rule.weight_decay = 0;
    if (decay > 0) {
        dlc_status status = s->ops->axpy(s->device, NULL, range->count, decay,
                                         s->weights + range->begin, gradient);
        if (status != DLC_OK)
            return status;
    }
    return s->ops->momentum(s->device, NULL, range->count, &rule, gradient,
                            s->velocity + range->begin, s->pushed_steps + range->begin);
}

/* This worker's part of the step: its velocity is that of its part of the gradient and
 * of the weight decay. The step is pushed, and applied here in the same pass. */
static dlc_status step_range(ssp *s, const dlc_momentum *base,
                             const param_range *range) {
    dlc_momentum rule = *base;
    if (s->nesterov)
        return nesterov_step(s, base, range);
    rule.learning_rate *= range->lr_mult;
    rule.weight_decay *= range->decay_mult / (float)s->workers;
    return s->ops->momentum(s->device, NULL, range->count, &rule,
                            s->gradients + range->begin, s->velocity + range->begin,
                            s->weights + range->begin);
}

static dlc_status make_step(ssp *s, int64_t iteration, int32_t bucket) {
    span all = bucket_of(s, bucket);
    dlc_momentum base = worker_step(s, iteration);
    dlc_status status = DLC_OK;
    if (!all.count)
        return DLC_OK;
    if (s->nesterov)
        status = s->ops->fill(s->device, NULL, s->pushed_steps + all.begin, 0,
                              all.count * sizeof(float));
    for (size_t i = s->ranges.first[bucket];
         status == DLC_OK && i < s->ranges.first[bucket + 1]; i++)
        status = step_range(s, &base, &s->ranges.at[i]);
    return status;
}

static dlc_status clear_velocity(ssp *s, size_t begin, size_t end) {
    return end > begin ? s->ops->fill(s->device, NULL, s->velocity + begin, 0,
                                      (end - begin) * sizeof(float))
                       : DLC_OK;
}

/* Elements that are never updated must have no velocity to push. */
static dlc_status clear_frozen_velocity(ssp *s, int32_t bucket) {
    span all = bucket_of(s, bucket);
    size_t at = all.begin;
    dlc_status status = DLC_OK;
    for (size_t i = s->ranges.first[bucket];
         status == DLC_OK && i < s->ranges.first[bucket + 1]; i++) {
        const param_range *range = &s->ranges.at[i];
        status = clear_velocity(s, at, range->begin);
        at = range->begin + range->count;
    }
    return status == DLC_OK ? clear_velocity(s, at, all.begin + all.count) : status;
}

dlc_status worker_split_velocity(ssp *s) {
    dlc_status status = DLC_OK;
    for (int32_t b = 0; status == DLC_OK && b < s->buckets; b++) {
        for (int32_t w = 0; status == DLC_OK && w < s->workers; w++) {
            span part = part_of(s, b, w);
            if (w != s->me)
                status = clear_velocity(s, part.begin, part.begin + part.count);
        }
        if (status == DLC_OK)
            status = clear_frozen_velocity(s, b);
    }
    s->has_job_velocity = 0;
    return status;
}

/* ---- Pushing ----------------------------------------------------------------- */

static dlc_status accumulate_bucket(ssp *s, int32_t micro_batch, int32_t bucket) {
    const accumulator sums = {.ops = s->ops,
                              .device = s->device,
                              .steps = s->accumulation_steps,
                              .gradients = s->gradients,
                              .sum = s->sum};
    span all = bucket_of(s, bucket);
    return accumulate(&sums, micro_batch, all.begin, all.begin + all.count);
}

/* The clock through which iteration + 1 needs the other workers' updates. */
static int64_t needed_clock(const ssp *s, int64_t iteration) {
    return s->staleness == INT64_MAX ? INT64_MIN : iteration - s->staleness;
}

static dlc_status push(ssp *s, int64_t iteration, int32_t bucket) {
    header message = {.kind = s->staleness ? PUSH_STEP : PUSH_GRADIENT,
                      .bucket = bucket,
                      .clock = iteration,
                      .own = iteration,
                      .others = needed_clock(s, iteration)};
    dlc_status status = DLC_OK;
    if (bucket == s->buckets - 1)
        status = agree_read_words(s, iteration, &message.loss);
    if (status == DLC_OK && s->staleness)
        status = make_step(s, iteration, bucket);
    if (status != DLC_OK)
        return status;
    pthread_mutex_lock(&s->lock);
    slices_queue_request(s, &message);
    pthread_mutex_unlock(&s->lock);
    comm_wakeup(s);
    return DLC_OK;
}

dlc_status worker_ready(ssp *s, int64_t iteration, int32_t micro_batch,
                        int32_t bucket) {
    dlc_status status = DLC_OK;
    if (s->accumulation_steps > 1)
        status = accumulate_bucket(s, micro_batch, bucket);
    if (status != DLC_OK || micro_batch < s->accumulation_steps - 1 || s->alone)
        return status;
    if (s->staleness && s->has_job_velocity)
        status = worker_split_velocity(s);
    /* Wait for the answer to the previous push, so a rank never has two in flight. */
    if (status == DLC_OK)
        status = slices_wait_idle(s, bucket);
    return status == DLC_OK ? push(s, iteration, bucket) : status;
}

/* ---- Reading weights --------------------------------------------------------- */

static int has_group(const ssp *s) {
    return (s->me > 0 && s->group[s->me - 1] == s->group[s->me]) ||
           (s->me + 1 < s->workers && s->group[s->me + 1] == s->group[s->me]);
}

/* Can the next iteration compute with what is here of the slice? */
static int is_fresh(const ssp *s, const slice *one, int64_t iteration) {
    if (one->answered == one->requested)
        return 1;
    if (s->staleness == 0 || has_group(s))
        return 0; /* only the answer contains the updates that this rank must see */
    const int64_t *known = one->fresh ? one->clocks : one->held_clocks;
    for (int32_t w = 0; w < s->workers; w++)
        if (w != s->me && known[w] < needed_clock(s, iteration))
            return 0;
    return 1;
}

/* Lock held. */
static dlc_status wait_fresh(ssp *s, const slice *one, int64_t iteration,
                             int32_t bucket, int32_t owner) {
    if (is_fresh(s, one, iteration))
        return DLC_OK;
    uint64_t since = host->now_ns();
    trace_line(s, "wait", bucket, owner, iteration + 1, 0,
               one->fresh ? one->clocks : one->held_clocks);
    dlc_status status = slices_wait_until(s, is_fresh, one, iteration);
    slices_note_wait(s, one, since);
    return status;
}

static void note_staleness(ssp *s, const slice *one, int64_t iteration) {
    for (int32_t w = 0; w < s->workers; w++)
        if (s->group[w] != s->group[s->me] &&
            iteration - one->held_clocks[w] > s->worst_staleness)
            s->worst_staleness = iteration - one->held_clocks[w];
}

/* Adds this rank's newest step to its weights. Plain momentum has already applied it,
 * except to weights that were just received (`fresh`). */
static dlc_status add_own(ssp *s, const slice *one, int fresh) {
    size_t n = one->at.count;
    float *weights = s->weights + one->at.begin;
    if (!n || (!fresh && !s->nesterov))
        return DLC_OK;
    return s->nesterov ? s->ops->add(s->device, NULL, n,
                                     s->pushed_steps + one->at.begin, weights)
                       : s->ops->axpy(s->device, NULL, n, -1,
                                      s->velocity + one->at.begin, weights);
}

/* Takes the newest weights that have arrived, and adds this rank's own step if they
 * lack it; where none have arrived, adds the step to those that are here. */
static dlc_status read_slice(ssp *s, int64_t iteration, int32_t bucket, int32_t owner) {
    slice *one = slice_at(s, bucket, owner);
    pthread_mutex_lock(&s->lock);
    dlc_status status = wait_fresh(s, one, iteration, bucket, owner);
    int fresh = one->fresh, behind = one->answered != one->requested;
    one->busy = fresh;
    one->fresh = 0;
    for (int32_t w = 0; fresh && w < s->workers; w++)
        one->held_clocks[w] = one->clocks[w];
    one->held_clocks[s->me] = iteration;
    pthread_mutex_unlock(&s->lock);
    if (status != DLC_OK)
        return slices_error(s);
    note_staleness(s, one, iteration);
    trace_line(s, "read", bucket, owner, iteration + 1, 0, one->held_clocks);
    if (fresh)
        status = slices_copy(s, one, s->weights);
    if (status == DLC_OK && behind && s->staleness)
        status = add_own(s, one, fresh);
    pthread_mutex_lock(&s->lock);
    if (fresh)
        slices_release(s, one);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static void note_read(ssp *s) {
    if (++s->buckets_read < s->buckets)
        return;
    int64_t most = DLC_STALENESS_BINS - 1;
    s->stats.staleness[s->worst_staleness < most ? s->worst_staleness : most]++;
    s->stats.reads++;
    s->buckets_read = 0;
    s->worst_staleness = 0;
}

static dlc_status read_bucket(ssp *s, int64_t iteration, int32_t bucket) {
    dlc_status status = DLC_OK;
    for (int32_t o = 0; status == DLC_OK && o < s->owners; o++)
        if (is_used(s, bucket, &slice_at(s, bucket, o)->at))
            status = read_slice(s, iteration, bucket, o);
    if (status == DLC_OK)
        note_read(s);
    return status;
}

static int is_applied(const ssp *s, const slice *of, int64_t iteration) {
    (void)of;
    return s->applied >= iteration;
}

/* A dedicated server computes nothing: its iteration ends when it has all updates. */
static dlc_status serve(ssp *s, int64_t iteration) {
    float ignored;
    dlc_status status = agree_read_words(s, iteration, &ignored);
    if (status != DLC_OK)
        return status;
    pthread_mutex_lock(&s->lock);
    status = slices_wait_until(s, is_applied, NULL, iteration);
    pthread_mutex_unlock(&s->lock);
    return status == DLC_OK ? DLC_OK : slices_error(s);
}

dlc_status worker_update(ssp *s, int64_t iteration, int32_t bucket) {
    int last = bucket == s->buckets - 1;
    dlc_status status = DLC_OK;
    if (s->alone)
        return step_alone(s, iteration, bucket);
    if (is_worker(s, s->me))
        status = read_bucket(s, iteration, bucket);
    else if (last)
        status = serve(s, iteration);
    return status == DLC_OK && last ? agree_end_iteration(s, iteration) : status;
}
