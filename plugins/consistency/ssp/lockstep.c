/* Staleness 0 with a rule that takes norms: no owner has whole tensors, so gradients
 * are not pushed but all-reduced, and every rank makes the whole step. The weights are
 * bitwise identical to those of synchronous training. The training thread calls it; the
 * communication thread has nothing to do. */
#include "ssp.h"

int lockstep_is_used(const ssp *s) {
    return s->updater->needs_norms && s->staleness == 0 && !s->alone;
}

dlc_status lockstep_ready(ssp *s, int32_t bucket) {
    return s->exchange->start(s->exchange->context, bucket);
}

/* A dedicated server has no gradients. */
static dlc_status start_empty(ssp *s) {
    dlc_status status = s->ops->fill(s->device, s->queue, s->gradients, 0,
                                     s->trained * sizeof *s->gradients);
    for (int32_t b = 0; status == DLC_OK && b < s->buckets; b++)
        status = lockstep_ready(s, b);
    return status;
}

dlc_status lockstep_finish(ssp *s, int64_t iteration) {
    dlc_status status = is_worker(s, s->me) ? DLC_OK : start_empty(s);
    for (int32_t b = 0; status == DLC_OK && b < s->buckets; b++)
        status = s->exchange->wait(s->exchange->context, b);
    if (status == DLC_OK)
        status = steps_measure(s, iteration, 1);
    if (status == DLC_OK)
        status = steps_update(s, iteration, (span){0, s->trained}, 1, s->weights);
    s->stats.reads++;
    s->stats.staleness[0]++;
    return status;
}
