/* Synchronization: all ranks after the same iteration, with the same weights and the
 * slots of the whole job. So a checkpoint is like one of synchronous training, and a
 * job that resumes from it may have other ranks, servers, groups and another staleness.
 */
#include "ssp.h"

/* ---- The training thread ----------------------------------------------------- */

static dlc_status wait_idle_all(ssp *s) {
    dlc_status status = DLC_OK;
    for (int32_t b = 0; status == DLC_OK && b < s->buckets; b++)
        status = slices_wait_idle(s, b);
    return status;
}

static dlc_status queue_requests(ssp *s, const header *kind) {
    dlc_status status = DLC_OK;
    pthread_mutex_lock(&s->lock);
    for (int32_t b = 0; status == DLC_OK && b < s->buckets; b++) {
        header message = *kind;
        message.bucket = b;
        status = slices_queue_request(s, &message);
    }
    pthread_mutex_unlock(&s->lock);
    comm_wakeup(s);
    return status;
}

/* No other answer arrives before the next request is sent, which waits for what is on
 * the queue, so the slice needs no `busy` flag. */
static dlc_status take_slice(ssp *s, slice *one, float *to) {
    pthread_mutex_lock(&s->lock);
    one->fresh = 0;
    for (int32_t w = 0; w < s->workers; w++)
        one->held_clocks[w] = one->clocks[w];
    pthread_mutex_unlock(&s->lock);
    return slices_copy(s, one, to);
}

/* Sends one request to all owners and waits for all answers. */
static dlc_status request_all(ssp *s, const header *kind, float *to) {
    dlc_status status = queue_requests(s, kind);
    for (int32_t b = 0; status == DLC_OK && b < s->buckets; b++) {
        status = slices_wait_idle(s, b);
        for (int32_t o = 0; status == DLC_OK && o < s->owners; o++)
            if (is_used(s, b, &slice_at(s, b, o)->at))
                status = take_slice(s, slice_at(s, b, o), to);
    }
    return status;
}

static dlc_status pull_weights(ssp *s, int64_t iteration) {
    header request = {
        .kind = REQUEST_WEIGHTS, .own = iteration - 1, .others = iteration - 1};
    return request_all(s, &request, s->weights);
}

/* Without staleness the owners hold the slots; with it, they are the sum of the
 * workers' shares. */
static dlc_status pull_slot(ssp *s, int64_t iteration, int32_t slot) {
    header request = {.kind = REQUEST_SLOT,
                      .slot = slot,
                      .clock = s->staleness ? iteration : INT64_MIN};
    dlc_status status = DLC_OK;
    if (s->staleness && is_worker(s, s->me)) {
        request.kind = PUSH_SLOT;
        status = steps_share_slot(s, slot);
    }
    return status == DLC_OK ? request_all(s, &request, s->slot[slot]) : status;
}

static int barrier_is_open(const ssp *s, const slice *of, int64_t iteration) {
    (void)of;
    return s->barrier_passed >= iteration;
}

/* Barrier: no rank goes on to change weights before all ranks have read them. */
static dlc_status pass_barrier(ssp *s, int64_t iteration) {
    pthread_mutex_lock(&s->lock);
    s->barrier_entered = iteration;
    comm_wakeup(s);
    dlc_status status = slices_wait_until(s, barrier_is_open, NULL, iteration);
    pthread_mutex_unlock(&s->lock);
    return status == DLC_OK ? DLC_OK : slices_error(s);
}

dlc_status ssp_synchronize(ssp *s, int64_t iteration) {
    if (s->alone || lockstep_is_used(s))
        return DLC_OK; /* the ranks never differ */
    dlc_status status = wait_idle_all(s);
    if (status == DLC_OK)
        status = pull_weights(s, iteration);
    for (int32_t i = 0; status == DLC_OK && i < s->slots; i++)
        status = pull_slot(s, iteration, i);
    return status == DLC_OK ? pass_barrier(s, iteration) : status;
}

/* ---- The communication thread ------------------------------------------------ */

static dlc_status open_barrier(ssp *s, int64_t iteration) {
    pthread_mutex_lock(&s->lock);
    s->barrier_passed = iteration;
    slices_unlock(s);
    return DLC_OK;
}

/* Rank 0 counts the ranks that have entered the barrier. */
static dlc_status count_entered(ssp *s, int64_t iteration) {
    dlc_status status = DLC_OK;
    header release_all = {.kind = BARRIER_LEAVE, .clock = iteration};
    if (++s->barrier_count < s->ranks)
        return DLC_OK;
    s->barrier_count = 0;
    for (int32_t r = 1; status == DLC_OK && r < s->ranks; r++)
        status = comm_send_header(s, r, &release_all, NULL);
    return status == DLC_OK ? open_barrier(s, iteration) : status;
}

dlc_status barrier_enter(ssp *s, int64_t iteration) {
    header barrier_entered = {.kind = BARRIER_ENTER, .clock = iteration};
    s->barrier_announced = iteration;
    return s->me ? comm_send_header(s, 0, &barrier_entered, NULL)
                 : count_entered(s, iteration);
}

dlc_status barrier_message(ssp *s, const header *one) {
    return one->kind == BARRIER_ENTER ? count_entered(s, one->clock)
                                      : open_barrier(s, one->clock);
}
