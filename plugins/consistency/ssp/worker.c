/* The training thread during an iteration: pushes updates of the buckets that backward
 * has filled, and takes weights that are fresh enough. */
#include "ssp.h"

/* ---- Pushing ----------------------------------------------------------------- */

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
        status = agree_copy_words(s);
    if (status == DLC_OK && s->staleness)
        status = steps_make(s, iteration, bucket);
    if (status != DLC_OK)
        return status;
    pthread_mutex_lock(&s->lock);
    status = slices_queue_request(s, &message);
    pthread_mutex_unlock(&s->lock);
    comm_wakeup(s);
    return status;
}

/* Waits for the answer to the previous push, so a rank never has two in flight. */
static dlc_status push_next(ssp *s, int64_t iteration, int32_t bucket) {
    dlc_status status = slices_wait_idle(s, bucket);
    return status == DLC_OK ? push(s, iteration, bucket) : status;
}

/* With norms all buckets are pushed when the last one is filled. */
dlc_status worker_ready(ssp *s, int64_t iteration, int32_t bucket) {
    int norms = s->updater->needs_norms;
    if (lockstep_is_used(s))
        return lockstep_ready(s, bucket);
    if (norms ? bucket < s->buckets - 1 : s->alone)
        return DLC_OK;
    dlc_status status = DLC_OK;
    if (s->share > 0 || s->alone)
        status = steps_measure(s, iteration, s->alone ? 1 : (float)(1 / s->share));
    for (int32_t b = norms ? 0 : bucket; status == DLC_OK && !s->alone && b <= bucket;
         b++)
        status = push_next(s, iteration, b);
    return status;
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

/* Adds this rank's newest step to weights that were just received. */
static dlc_status add_own(ssp *s, const slice *one) {
    size_t begin = one->at.begin, n = one->at.count;
    return n ? s->ops->add(s->device, s->queue, n, s->steps + begin, s->weights + begin)
             : DLC_OK;
}

/* Takes the newest weights that have arrived, and adds this rank's own step if they
 * lack it. Where none have arrived, those that are here have it already. */
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
    if (status == DLC_OK && fresh && behind)
        status = add_own(s, one);
    if (status == DLC_OK && fresh)
        status = device_record(s, one->read);
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
    dlc_status status = agree_copy_words(s);
    if (status == DLC_OK && s->queue)
        status = s->ops->queues->queue_sync(s->device, s->queue);
    if (status != DLC_OK)
        return status;
    (void)agree_read_words(s, iteration);
    comm_wakeup(s); /* it may be a vote */
    pthread_mutex_lock(&s->lock);
    status = slices_wait_until(s, is_applied, NULL, iteration);
    pthread_mutex_unlock(&s->lock);
    return status == DLC_OK ? DLC_OK : slices_error(s);
}

/* A job of one rank trains synchronously. */
static dlc_status update_alone(ssp *s, int64_t iteration, int32_t bucket) {
    span all = bucket_of(s, bucket);
    return steps_update(s, iteration, all, 1, s->weights + all.begin);
}

dlc_status worker_update(ssp *s, int64_t iteration, int32_t bucket) {
    int last = bucket == s->buckets - 1;
    dlc_status status = DLC_OK;
    if (s->alone)
        return update_alone(s, iteration, bucket);
    if (is_worker(s, s->me))
        status = read_bucket(s, iteration, bucket);
    else if (last)
        status = serve(s, iteration);
    return status == DLC_OK && last ? agree_end_iteration(s, iteration) : status;
}
