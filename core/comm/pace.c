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
    LEAST_BUCKET = 64 << 10, /* bytes: below, waking threads costs more than bytes */
    ENOUGH = 1 << 20,        /* bytes that are never too few */
    BUCKETS = 6,             /* that little is spread over, to have something to hide */
};
static const double LONG = 0.02; /* seconds */

static size_t at_most(size_t count, size_t limit) {
    return count < limit ? count : limit;
}

/* The shortest of some all-reduces, one behind the other. */
static dlc_status time_sum(dlc_comm *comm, float *zeros, size_t count, int rounds,
                           double *seconds) {
    *seconds = INFINITY;
    for (int i = 0; i < rounds; i++) {
        uint64_t since = dlc_now_ns();
        DLC_TRY(dlc_comm_all_reduce(comm, zeros, count));
        *seconds = fmin(*seconds, dlc_since(since));
    }
    return DLC_OK;
}

/* The slowest rank's time counts. */
static dlc_status slowest(dlc_comm *comm, double *seconds) {
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

    DLC_TRY(time_sum(comm, zeros, at_most(count, SMALL), 2 * ROUNDS, &small));
    DLC_TRY(slowest(comm, &small));
    DLC_TRY(time_sum(comm, zeros, size, 2, &first));
    DLC_TRY(slowest(comm, &first));
    large = first;
    if (first < LONG) {
        size = at_most(count, LARGE);
        DLC_TRY(time_sum(comm, zeros, size, ROUNDS, &large));
        DLC_TRY(slowest(comm, &large));
    }
    double rest = fmax(large - small, 1e-9);
    pace->latency = small;
    pace->bandwidth = (double)(size * sizeof(float)) / rest;
    return DLC_OK;
}

/* An update with momentum reads gradient, velocity and weight and writes two of them;
 * adding a buffer to itself reads and writes it: 5 moves against 2. */
static dlc_status measure_update(dlc_comm *comm, const dlc_device_ops *ops,
                                 dlc_device *device, float *zeros, size_t count,
                                 dlc_pace *pace) {
    size_t size = at_most(count, 16 * (size_t)LARGE);
    double seconds = INFINITY;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t since = dlc_now_ns();
        DLC_TRY(ops->add(device, NULL, size, zeros, zeros));
        seconds = fmin(seconds, dlc_since(since));
    }
    DLC_TRY(slowest(comm, &seconds));
    pace->update = (double)(size * sizeof(float)) / fmax(seconds * 5 / 2, 1e-9);
    return DLC_OK;
}

dlc_status dlc_pace_measure(dlc_comm *comm, const dlc_device_ops *ops,
                            dlc_device *device, float *zeros, size_t count,
                            dlc_pace *pace) {
    DLC_TRY(measure_sums(comm, zeros, count, pace));
    return measure_update(comm, ops, device, zeros, count, pace);
}

size_t dlc_pace_bucket(const dlc_pace *pace, size_t bytes) {
    double best = sqrt((double)bytes * pace->latency * pace->bandwidth);
    size_t least = at_most(bytes / BUCKETS, ENOUGH);
    if (least < LEAST_BUCKET)
        least = LEAST_BUCKET;
    return best > (double)least ? (size_t)best : least;
}

int dlc_pace_shards(const dlc_pace *pace, int32_t ranks) {
    double spread = 0.5 / pace->bandwidth;
    double saved = (1.0 - 1.0 / ranks) / pace->update;
    return spread < saved;
}
