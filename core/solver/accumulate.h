/* Gradient accumulation: an iteration of several micro-batches sums their gradients in
 * an arena of its own, before a consistency model sees them. Called by the session and
 * by `dlcore time`.
 *
 * Threads: the train thread. */
#ifndef DLC_SOLVER_ACCUMULATE_H
#define DLC_SOLVER_ACCUMULATE_H

#include <dlcore/device.h>

/* Initialize with {0}: nothing is accumulated. */
typedef struct dlc_accumulator {
    const dlc_device_ops *ops;
    dlc_device *device;
    dlc_queue *queue;
    int32_t steps; /* micro-batches of an iteration */
    float *gradients;
    size_t count;   /* elements of the gradients, without control words */
    dlc_memory sum; /* own, laid out as the gradients: all micro-batches but the last */
} dlc_accumulator;

/* Allocates the arena of the sum, if there are several steps; the fields above it must
 * be set. */
dlc_status dlc_accumulator_open(dlc_accumulator *accumulator);
void dlc_accumulator_close(dlc_accumulator *accumulator); /* a zeroed one is allowed */

/* Accumulates the elements [begin, end) of micro-batch `micro_batch`: the first is
 * copied to the sum, later ones are added to it, and the last leaves the total in the
 * gradients. Queued; does nothing with one step. Elements from `count` on are left
 * alone. */
dlc_status dlc_accumulate(const dlc_accumulator *accumulator, int32_t micro_batch,
                          size_t begin, size_t end);

#endif
