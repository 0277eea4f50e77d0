/* What a worker pushes with staleness, for any rule; the training thread's arithmetic.
 *
 * The gradient g_w that worker w computed is weighted: its samples are the share p_w of
 * the batch, and the sum of all g_w is the gradient of the job. So g_w / p_w estimates
 * the same gradient from fewer samples. The worker applies the rule to that, from its
 * weights and with slots of its own, and pushes
 *
 *     p_w * (rule(g_w / p_w) - weight)
 *
 * Together the workers make the weighted mean of their steps. For a rule that is linear
 * in gradient and slots (sgd) this is exactly the step of the job. For others (Adam) it
 * keeps the length that the learning rate intends: if the rule were applied to g_w
 * itself, which Adam divides by its own magnitude, the workers would make n steps in
 * place of one.
 *
 * The slots of the job are the mean of the workers' with the same weights. They are put
 * together at a synchronization, from which every worker goes on with those of the job.
 *
 * Norms are those of the worker's own gradient, over its share, and of its weights: a
 * rule that takes them waits for all of the gradient, and pushes all buckets at its
 * end.
 *
 * Values of the learning rate's schedule and of the rule are those of the iteration
 * that the gradient is of, whenever an owner adds the step. */
#include "ssp.h"

dlc_status steps_alloc(ssp *s, int64_t staleness) {
    if (s->steps || s->alone || !staleness || !is_worker(s, s->me))
        return DLC_OK;
    return device_floats(s, s->trained, &s->steps);
}

dlc_status steps_update(ssp *s, int64_t iteration, span at, float grad_scale,
                        float *weights) {
    float *slots[DLC_MAX_SLOTS] = {NULL};
    dlc_rule_values values;
    dlc_status status = s->updater->values(s->updater->context, iteration, &values);
    if (status != DLC_OK || !at.count)
        return status;
    for (int32_t i = 0; i < s->slots; i++)
        slots[i] = s->slot[i] + at.begin;
    return s->updater->update(s->updater->context, s->queue, &values, at.begin,
                              at.count, grad_scale, s->gradients + at.begin, slots,
                              weights);
}

dlc_status steps_measure(ssp *s, int64_t iteration, float grad_scale) {
    dlc_rule_values values;
    if (!s->updater->needs_norms) /* others may have the rest of the model's gradient */
        return DLC_OK;
    dlc_status status = s->updater->values(s->updater->context, iteration, &values);
    return status == DLC_OK
               ? s->updater->measure(s->updater->context, s->queue, &values, grad_scale,
                                     s->gradients, s->slot, s->weights)
               : status;
}

/* to = share * (to - weights), and applies that to the weights. */
static dlc_status difference(ssp *s, span at, float *to) {
    float *weights = s->weights + at.begin;
    dlc_status status = s->ops->axpy(s->device, s->queue, at.count, -1, weights, to);
    if (status == DLC_OK && s->share < 1)
        status = s->ops->scale(s->device, s->queue, at.count, (float)s->share, to);
    return status == DLC_OK ? s->ops->add(s->device, s->queue, at.count, to, weights)
                            : status;
}

dlc_status steps_make(ssp *s, int64_t iteration, int32_t bucket) {
    span at = bucket_of(s, bucket);
    float *steps = s->steps + at.begin;
    size_t bytes = at.count * sizeof *steps;
    if (!at.count)
        return DLC_OK;
    if (s->share == 0) /* without samples there is no gradient, and no decay */
        return s->ops->fill(s->device, s->queue, steps, 0, bytes);
    dlc_status status = s->ops->copy(s->device, s->queue, steps, s->weights + at.begin,
                                     bytes);
    if (status == DLC_OK)
        status = steps_update(s, iteration, at, (float)(1 / s->share), steps);
    return status == DLC_OK ? difference(s, at, steps) : status;
}

dlc_status steps_share_slot(ssp *s, int32_t slot) {
    if (!s->trained)
        return DLC_OK;
    dlc_status status = s->ops->copy(s->device, s->queue, s->steps, s->slot[slot],
                                     s->trained * sizeof *s->steps);
    return status == DLC_OK ? s->ops->scale(s->device, s->queue, s->trained,
                                            (float)s->share, s->steps)
                            : status;
}
