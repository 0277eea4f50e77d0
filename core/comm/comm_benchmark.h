/* The communication benchmark: measures a communicator's reductions and the memory of
 * its devices, from which core/plan chooses bucket sizes and sharded updates. Called
 * when a session plans its exchange, and by `dlcore plan`. */
#ifndef DLC_COMM_COMM_BENCHMARK_H
#define DLC_COMM_COMM_BENCHMARK_H

#include "comm/comm.h"

/* What communication and memory cost. */
typedef struct dlc_comm_cost {
    double latency;   /* seconds of a very small all-reduce */
    double bandwidth; /* bytes of a buffer that are reduced per second */
    double in_place;  /* bytes that a device reads and writes in place per second */
} dlc_comm_cost;

/* Collective: `zeros` are `count` elements of zeros on each rank, and stay zeros. Every
 * rank gets the numbers of the slowest. */
dlc_status dlc_comm_benchmark(dlc_comm *comm, const dlc_device_ops *ops,
                              dlc_device *device, float *zeros, size_t count,
                              dlc_comm_cost *cost);

/* What dlc_comm_benchmark_memory can use, more than caches hold. */
#define DLC_COMM_BENCHMARK_BYTES ((size_t)64 << 20)

/* Collective: the bytes per second that the slowest rank's device moves in a buffer of
 * `count` elements, 2 or more. Adds one half to the other. */
dlc_status dlc_comm_benchmark_memory(dlc_comm *comm, const dlc_device_ops *ops,
                                     dlc_device *device, float *buffer, size_t count,
                                     double *bandwidth);

/* Collective: replaces every rank's number by the largest. */
dlc_status dlc_comm_max_seconds(dlc_comm *comm, double *seconds);

#endif
