/* An exponential moving average of the weights (Polyak averaging, with the decay of
 * TensorFlow's ExponentialMovingAverage): ema = decay * ema + (1 - decay) * weight
 * after each iteration. Its arena is laid out as the weights and allocated with the
 * slots.
 *
 * Threads: the train thread. */
#ifndef DLC_SOLVER_EMA_H
#define DLC_SOLVER_EMA_H

#include <dlcore/consistency.h>

/* Owns nothing. A zeroed one averages nothing. */
typedef struct dlc_ema {
    const dlc_device_ops *ops;
    dlc_device *device;
    dlc_queue *queue; /* of the updates of the weights; NULL: work is done on return */
    double decay;
    size_t count; /* elements */
    const dlc_exchange
        *shards; /* of the average; NULL, or without shards: it is whole */
    float *weights, *average;
    float *gradients; /* of as many elements; not needed between iterations */
} dlc_ema;

/* Begins with the weights as they are. */
dlc_status dlc_ema_begin(const dlc_ema *ema);

/* Elements [begin, end) of the weights, or those of them that there are, were updated.
 * With shards all of this rank's are averaged. */
dlc_status dlc_ema_update(const dlc_ema *ema, size_t begin, size_t end);

/* Puts the average, or this rank's shards of it, in the place of the weights, which are
 * kept in the arena of the
 * gradients, and puts them back, which leaves gradients of 0. Between iterations only,
 * while no peer reads this rank's arenas and nothing is left on the queue. */
dlc_status dlc_ema_put(const dlc_ema *ema);
dlc_status dlc_ema_put_back(const dlc_ema *ema);

#endif
