/* Times small and large all-reduces and memory passes. */
#include "comm/comm_benchmark.h"

#include <math.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

enum {
    SMALL = 1024,        /* elements of the all-reduce that gives the latency */
    FIRST = 64 * 1024,   /* elements tried first for the bandwidth */
    LARGE = 1024 * 1024, /* elements for the bandwidth, unless FIRST takes long */
    ROUNDS = 5,
};
static const double LONG_SECONDS = 0.02;

static size_t at_most(size_t count, size_t limit) {
    return count < limit ? count : limit;
}

/* Gives the time of the fastest of some consecutive all-reduces of `size` elements.
 * They walk over the whole buffer, because gradients that backward wrote a while ago
 * are not in the cache either. */
static dlc_status time_all_reduce(dlc_comm *comm, float *zeros, size_t count,
                                  size_t size, int rounds, double *seconds) {
    size_t slots = size ? count / size : 1, slot = 0;
    *seconds = INFINITY;
    for (int i = 0; i < rounds; i++) {
        uint64_t since = dlc_now_ns();
        DLC_TRY(dlc_comm_all_reduce(comm, zeros + slot * size, size));
        *seconds = fmin(*seconds, dlc_since(since));
        slot = (slot + 1) % slots;
    }
    return DLC_OK;
}

dlc_status dlc_comm_max_seconds(dlc_comm *comm, double *seconds) {
    double *all = dlc_alloc((size_t)dlc_comm_ranks(comm), sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_comm_oob_all_gather(comm, seconds, sizeof *seconds, all);
    for (int32_t r = 0; status == DLC_OK && r < dlc_comm_ranks(comm); r++)
        *seconds = fmax(*seconds, all[r]);
    dlc_free(all);
    return status;
}

static dlc_status measure_all_reduce(dlc_comm *comm, float *zeros, size_t count,
                                     dlc_comm_cost *cost) {
    double small = 0, first = 0, large = 0;
    size_t size = at_most(count, FIRST);

    DLC_TRY(
        time_all_reduce(comm, zeros, count, at_most(count, SMALL), 2 * ROUNDS, &small));
    DLC_TRY(dlc_comm_max_seconds(comm, &small));
    DLC_TRY(time_all_reduce(comm, zeros, count, size, 2, &first));
    DLC_TRY(dlc_comm_max_seconds(comm, &first));
    large = first;
    if (first < LONG_SECONDS) {
        size = at_most(count, LARGE);
        DLC_TRY(time_all_reduce(comm, zeros, count, size, ROUNDS, &large));
        DLC_TRY(dlc_comm_max_seconds(comm, &large));
    }
    /* Where the two are alike, all that is known is that the bandwidth is high. */
    double rest = fmax(fmax(large - small, large / 10), 1e-9);
    cost->latency = small;
    cost->bandwidth = (double)(size * sizeof(float)) / rest;
    return DLC_OK;
}

/* Gives the time of the fastest of some additions of a buffer to another or to itself.
 */
static dlc_status time_add(const dlc_device_ops *ops, dlc_device *device, size_t count,
                           const float *from, float *to, double *seconds) {
    *seconds = INFINITY;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t since = dlc_now_ns();
        DLC_TRY(ops->add(device, NULL, count, from, to));
        *seconds = fmin(*seconds, dlc_since(since));
    }
    return DLC_OK;
}

/* Adding a buffer to itself reads and writes it. */
static dlc_status measure_in_place(dlc_comm *comm, const dlc_device_ops *ops,
                                   dlc_device *device, float *zeros, size_t count,
                                   dlc_comm_cost *cost) {
    size_t size = at_most(count, 16 * (size_t)LARGE);
    double seconds = 0;
    DLC_TRY(time_add(ops, device, size, zeros, zeros, &seconds));
    DLC_TRY(dlc_comm_max_seconds(comm, &seconds));
    cost->in_place = 2 * (double)(size * sizeof(float)) / fmax(seconds, 1e-9);
    return DLC_OK;
}

dlc_status dlc_comm_benchmark_memory(dlc_comm *comm, const dlc_device_ops *ops,
                                     dlc_device *device, float *buffer, size_t count,
                                     double *bandwidth) {
    size_t half = at_most(count, DLC_COMM_BENCHMARK_BYTES / sizeof(float)) / 2;
    double seconds = 0;
    DLC_TRY(time_add(ops, device, half, buffer, buffer + half, &seconds));
    DLC_TRY(dlc_comm_max_seconds(comm, &seconds));
    *bandwidth = 3 * (double)(half * sizeof(float)) /
                 fmax(seconds, 1e-9); /* reads both halves, writes one */
    return DLC_OK;
}

dlc_status dlc_comm_benchmark(dlc_comm *comm, const dlc_device_ops *ops,
                              dlc_device *device, float *zeros, size_t count,
                              dlc_comm_cost *cost) {
    DLC_TRY(measure_all_reduce(comm, zeros, count, cost));
    return measure_in_place(comm, ops, device, zeros, count, cost);
}
