/* The communication benchmark: measures a communicator's reductions, and the cost model
 * that chooses bucket sizes and sharded updates from the result. Called when a session
 * plans its exchange, and by `dlcore plan --measure`. */
#ifndef DLC_COMM_COMM_BENCHMARK_H
#define DLC_COMM_COMM_BENCHMARK_H

#include "comm/comm.h"

/* What communication and updates cost. */
typedef struct dlc_comm_cost {
    double latency;          /* seconds of a very small all-reduce */
    double bandwidth;        /* bytes of a buffer that are reduced per second */
    double update_bandwidth; /* bytes of weights that are updated per second */
} dlc_comm_cost;

/* Collective: `zeros` are `count` elements of zeros on each rank, and stay zeros; the
 * solver's rule has `slots`. Every rank gets the numbers of the slowest. */
dlc_status dlc_comm_benchmark(dlc_comm *comm, const dlc_device_ops *ops,
                              dlc_device *device, int32_t slots, float *zeros,
                              size_t count, dlc_comm_cost *cost);

/* Collective: the bytes per second that the slowest rank's device moves in memory, not
 * in its caches. */
dlc_status dlc_comm_benchmark_memory(dlc_comm *comm, const dlc_device_ops *ops,
                                     dlc_device *device, double *bandwidth);

/* Collective: replaces every rank's number by the largest. */
dlc_status dlc_comm_max_seconds(dlc_comm *comm, double *seconds);

/* The best bucket size, in bytes, for an arena of `bytes`. What backward doesn't hide
 * is the cost of each bucket (its latency, and handing it from thread to thread) and
 * the transfer of the last one, bytes / bucket * cost + bucket / bandwidth, which is
 * least at sqrt(bytes * cost * bandwidth). If an arena is reduced faster than a bucket
 * is handed over it is one bucket. */
size_t dlc_comm_cost_bucket_bytes(const dlc_comm_cost *cost, size_t bytes);

/* Whether sharded updates pay. A bucket's reduce-scatter takes half as long as an
 * all-reduce and is hidden as before; the all-gather of the weights takes the other
 * half and isn't hidden, but 1 - 1/ranks of the update is saved. */
int dlc_comm_cost_favors_sharding(const dlc_comm_cost *cost, int32_t ranks);

#endif
