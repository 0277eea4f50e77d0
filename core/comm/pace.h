/* How fast a communicator sums, measured, and what follows for the buckets. */
#ifndef DLC_COMM_PACE_H
#define DLC_COMM_PACE_H

#include "comm/comm.h"

typedef struct dlc_pace {
    double latency;   /* seconds that the sum of next to nothing takes */
    double bandwidth; /* bytes of a buffer that are summed in a second */
    double update;    /* bytes of weights that an update goes through in a second */
} dlc_pace;

/* All ranks together, each with `count` elements of zeros that stay zeros; every rank
 * gets the same numbers, those of the slowest. */
dlc_status dlc_pace_measure(dlc_comm *comm, const dlc_device_ops *ops,
                            dlc_device *device, float *zeros, size_t count,
                            dlc_pace *pace);

/* All ranks together: how many bytes the devices move in a second, in memory, not in
 * their caches; of the slowest. */
dlc_status dlc_pace_memory(dlc_comm *comm, const dlc_device_ops *ops,
                           dlc_device *device, double *bandwidth);

/* All ranks together: every rank gets the largest of their numbers. */
dlc_status dlc_pace_slowest(dlc_comm *comm, double *seconds);

/* The size of buckets, in bytes, for an arena of `bytes`: what isn't hidden behind
 * backward is the price of every bucket, which is its latency and that of handing it
 * from thread to thread, and the last bucket's transfer,
 *     bytes / bucket * price + bucket / bandwidth,
 * which is least at sqrt(bytes * price * bandwidth). An arena that is summed faster
 * than a bucket is handed over is one bucket. */
size_t dlc_pace_bucket(const dlc_pace *pace, size_t bytes);

/* Does it pay to update shards? The sum of a bucket is then half of an all-reduce, and
 * hidden as before; the other half, which gives the weights out, isn't, but 1 - 1/ranks
 * of the update is saved. */
int dlc_pace_shards(const dlc_pace *pace, int32_t ranks);

#endif
