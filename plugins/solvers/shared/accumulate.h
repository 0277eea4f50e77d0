/* Gradient accumulation, for solvers: an iteration of several micro-batches sums their
 * gradients in an arena of its own. */
#ifndef DLC_SOLVERS_SHARED_ACCUMULATE_H
#define DLC_SOLVERS_SHARED_ACCUMULATE_H

#include <dlcore/solver.h>

typedef struct accumulator {
    const dlc_device_ops *ops;
    dlc_device *device;
    dlc_queue *queue;
    int32_t steps;
    float *gradients;
    float *sum; /* laid out as `gradients`; holds all micro-batches but the last */
} accumulator;

/* Accumulates elements [begin, end) of micro-batch `micro_batch`: the first is copied
 * to `sum`, later ones are added to it; the last leaves the total in `gradients`.
 * Queued; nothing to do where begin >= end. */
dlc_status accumulate(const accumulator *of, int32_t micro_batch, size_t begin,
                      size_t end);

#endif
