/* See pace.h. */
#include "comm/pace.h"

#include <math.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

enum {
    SMALL = 1024,        /* elements */
    LARGE = 1024 * 1024, /* where that takes no longer than ... */
    FIRST = 64 * 1024,   /* ... some time, which this many tell */
    ROUNDS = 5,
    LEAST_BUCKET = 64 << 10, /* bytes */
};
static const double LONG = 0.02; /* seconds */
/* Seconds that a bucket takes from the threads that compute, however small it is, where
 * these sit on the same cores: threads are woken, find their peers late, sleep, are
 * woken again. Seen: 0.06 ms in memory, more over TCP. */
static const double HANDOVER = 200e-6;

static size_t at_most(size_t count, size_t limit) {
    return count < limit ? count : limit;
}

/* The shortest of some all-reduces, one behind the other, of `size` elements each: from
 * one end of all of them to the other, for a gradient that backward wrote a while ago
 * is in no cache either. */
static dlc_status time_sum(dlc_comm *comm, float *zeros, size_t count, size_t size,
                           int rounds, double *seconds) {
    size_t places = size ? count / size : 1, place = 0;
    *seconds = INFINITY;
    for (int i = 0; i < rounds; i++) {
        uint64_t since = dlc_now_ns();
        DLC_TRY(dlc_comm_all_reduce(comm, zeros + place * size, size));
        *seconds = fmin(*seconds, dlc_since(since));
        place = (place + 1) % places;
    }
    return DLC_OK;
}

dlc_status dlc_pace_slowest(dlc_comm *comm, double *seconds) {
    double *all = dlc_alloc((size_t)dlc_comm_ranks(comm), sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_comm_gather(comm, seconds, sizeof *seconds, all);
    for (int32_t r = 0; status == DLC_OK && r < dlc_comm_ranks(comm); r++)
        *seconds = fmax(*seconds, all[r]);
    dlc_free(all);
    return status;
}

static dlc_status measure_sums(dlc_comm *comm, float *zeros, size_t count,
                               dlc_pace *pace) {
    double small = 0, first = 0, large = 0;
    size_t size = at_most(count, FIRST);

    DLC_TRY(time_sum(comm, zeros, count, at_most(count, SMALL), 2 * ROUNDS, &small));
    DLC_TRY(dlc_pace_slowest(comm, &small));
    DLC_TRY(time_sum(comm, zeros, count, size, 2, &first));
    DLC_TRY(dlc_pace_slowest(comm, &first));
    large = first;
    if (first < LONG) {
        size = at_most(count, LARGE);
        DLC_TRY(time_sum(comm, zeros, count, size, ROUNDS, &large));
        DLC_TRY(dlc_pace_slowest(comm, &large));
    }
    double rest = fmax(large - small, 1e-9);
    pace->latency = small;
    pace->bandwidth = (double)(size * sizeof(float)) / rest;
    return DLC_OK;
}

/* The shortest of some additions of a buffer to another, or to itself. */
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

/* An update with momentum reads gradient, velocity and weight and writes two of them;
 * adding a buffer to itself reads and writes it: 5 moves against 2. */
static dlc_status measure_update(dlc_comm *comm, const dlc_device_ops *ops,
                                 dlc_device *device, float *zeros, size_t count,
                                 dlc_pace *pace) {
    size_t size = at_most(count, 16 * (size_t)LARGE);
    double seconds = 0;
    DLC_TRY(time_add(ops, device, size, zeros, zeros, &seconds));
    DLC_TRY(dlc_pace_slowest(comm, &seconds));
    pace->update = (double)(size * sizeof(float)) / fmax(seconds * 5 / 2, 1e-9);
    return DLC_OK;
}

dlc_status dlc_pace_memory(dlc_comm *comm, const dlc_device_ops *ops,
                           dlc_device *device, double *bandwidth) {
    const size_t half = 8 * (size_t)LARGE, bytes = 2 * half * sizeof(float);
    dlc_memory memory = {.size = sizeof memory};
    double seconds = 0;

    DLC_TRY(ops->alloc(device, bytes, 0, &memory));
    float *from = memory.base, *to = from + half;
    dlc_status status = time_add(ops, device, half, from, to, &seconds);
    ops->free(device, &memory);
    DLC_TRY(status);
    DLC_TRY(dlc_pace_slowest(comm, &seconds));
    *bandwidth = 1.5 * (double)bytes / fmax(seconds, 1e-9); /* one half twice */
    return DLC_OK;
}

dlc_status dlc_pace_measure(dlc_comm *comm, const dlc_device_ops *ops,
                            dlc_device *device, float *zeros, size_t count,
                            dlc_pace *pace) {
    DLC_TRY(measure_sums(comm, zeros, count, pace));
    return measure_update(comm, ops, device, zeros, count, pace);
}

size_t dlc_pace_bucket(const dlc_pace *pace, size_t bytes) {
    double each = pace->latency + HANDOVER;
    double best = sqrt((double)bytes * each * pace->bandwidth);
    return best > LEAST_BUCKET ? (size_t)best : LEAST_BUCKET;
}

int dlc_pace_shards(const dlc_pace *pace, int32_t ranks) {
    double spread = 0.5 / pace->bandwidth;
    double saved = (1.0 - 1.0 / ranks) / pace->update;
    return spread < saved;
}
