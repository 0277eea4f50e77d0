/* Iterations of several micro-batches: their gradients, gathered. */
#ifndef DLC_SHARED_MICRO_H
#define DLC_SHARED_MICRO_H

#include <dlcore/solver.h>

typedef struct micro_batches {
    const dlc_device_ops *ops;
    dlc_device *device;
    dlc_queue *queue;
    int32_t count;
    float *gradients;
    float *sum; /* of those before the last, laid out alike */
} micro_batches;

/* Takes in [begin, end) of micro-batch `micro`: the first is copied, the others are
 * added; with the last the sum comes back into the gradients. */
dlc_status micro_gather(const micro_batches *batches, int32_t micro, size_t begin,
                        size_t end);

#endif
