/* Collectives through shared memory for a device whose memory the CPU cannot read: the
 * device copies while the CPU reduces.
 *
 * The buffer is cut into slices and chunks as in staged.c. In step k each rank
 *
 *     fetches  chunk k of all slices from the device into its window k,
 *     sums     chunk k of its own slice, from all ranks' windows in the pairwise
 *              order, into its own place in its own window,
 *     stores   chunk k of all slices to the device, each from its owner's window.
 *
 * The device copies in two queues, and a rank has five steps in flight: while it sums
 * one chunk, the next ones are fetched and the previous ones are stored. Where nothing
 * is reduced an owner fetches only its own slice; a broadcast is the case of a single
 * slice, the root's.
 *
 * Only its owner writes to a window. It is reused for another step when all ranks have
 * stored its contents, which they do after they have reduced it.
 */
#include "shm.h"

/* A collective in progress. */
typedef struct work {
    char *buffer;
    size_t count, unit; /* elements, and the bytes of one */
    size_t chunk;       /* elements */
    uint64_t first, steps;
    int32_t root; /* -1: each rank has a slice */
    int reduce, gather;
} work;

static size_t slice_start(const dlc_endpoint *e, const work *w, int32_t rank) {
    size_t ranks = (size_t)e->ranks, r = (size_t)rank;
    if (w->root >= 0)
        return rank <= w->root ? 0 : w->count;
    return w->count / ranks * r + w->count % ranks * r / ranks;
}

/* Chunk k of a rank's slice: returns its place in the buffer and its bytes. */
static char *chunk_of(const dlc_endpoint *e, const work *w, int32_t rank, uint64_t k,
                      size_t *bytes) {
    size_t begin = slice_start(e, w, rank) + k * w->chunk;
    size_t end = slice_start(e, w, rank + 1);
    size_t left = begin < end ? end - begin : 0;
    *bytes = (left < w->chunk ? left : w->chunk) * w->unit;
    return w->buffer + begin * w->unit;
}

/* The chunk of `slice` in a rank's window. */
static unsigned char *window_at(const dlc_endpoint *e, int32_t rank, uint64_t step,
                                int32_t slice) {
    return files_window(e, rank, step) + (size_t)slice * e->chunk_bytes;
}

static dlc_status await(dlc_endpoint *e, uint32_t which, uint64_t steps) {
    return progress_wait(e, which, steps, 0, e->ranks);
}

static void publish(dlc_endpoint *e, uint32_t which, uint64_t steps) {
    progress_publish(e, which, steps, 0, e->ranks);
}

/* ---- The phases of a step ----------------------------------------------------- */

static dlc_status begin_fetch(dlc_endpoint *e, const work *w, uint64_t k) {
    uint64_t step = w->first + k;
    dlc_status status = DLC_OK;

    if (step >= e->windows)
        status = await(e, PROGRESS_TAKEN, step - e->windows + 1);
    for (int32_t i = 0; i < e->ranks && status == DLC_OK; i++) {
        int32_t r = (e->rank + 1 + i) %
                    e->ranks; /* each rank starts with another one */
        size_t bytes = 0;
        const char *at = chunk_of(e, w, r, k, &bytes);
        if (w->reduce || r == e->rank)
            status = copy_queue_add(e, &e->fetch, window_at(e, e->rank, step, r), at,
                                    bytes);
    }
    return status == DLC_OK ? copy_queue_record(e, &e->fetch, step) : status;
}

static dlc_status end_fetch(dlc_endpoint *e, const work *w, uint64_t k) {
    uint64_t step = w->first + k;
    dlc_status status = copy_queue_wait(e, &e->fetch, step);

    if (status == DLC_OK)
        publish(e, w->reduce ? PROGRESS_FILLED : PROGRESS_SUMMED, step + 1);
    return status;
}

static dlc_status sum(dlc_endpoint *e, const work *w, uint64_t k) {
    uint64_t step = w->first + k;
    size_t bytes = 0;
    dlc_status status = await(e, PROGRESS_FILLED, step + 1);

    if (status != DLC_OK)
        return status;
    (void)chunk_of(e, w, e->rank, k, &bytes);
    for (int32_t r = 0; r < e->ranks; r++)
        e->sources[r] = (const float *)(const void *)window_at(e, r, step, e->rank);
    pairwise_sum(bytes / sizeof(float), e->sources, e->ranks,
                 (float *)(void *)window_at(e, e->rank, step, e->rank));
    publish(e, PROGRESS_SUMMED, step + 1);
    return DLC_OK;
}

static dlc_status begin_store(dlc_endpoint *e, const work *w, uint64_t k) {
    uint64_t step = w->first + k;
    dlc_status status = w->gather ? await(e, PROGRESS_SUMMED, step + 1) : DLC_OK;

    for (int32_t i = 0; i < e->ranks && status == DLC_OK; i++) {
        int32_t r = (e->rank + i) % e->ranks;
        size_t bytes = 0;
        char *at = chunk_of(e, w, r, k, &bytes);
        if (r == e->rank ? w->reduce : w->gather)
            status = copy_queue_add(e, &e->store, at, window_at(e, r, step, r), bytes);
    }
    return status == DLC_OK ? copy_queue_record(e, &e->store, step) : status;
}

static dlc_status end_store(dlc_endpoint *e, const work *w, uint64_t k) {
    uint64_t step = w->first + k;
    dlc_status status = copy_queue_wait(e, &e->store, step);

    if (status == DLC_OK)
        publish(e, PROGRESS_TAKEN, step + 1);
    return status;
}

/* ---- The pipeline of steps ---------------------------------------------------- */

typedef dlc_status phase(dlc_endpoint *endpoint, const work *work, uint64_t k);

/* Each phase runs one step behind the previous one, so that there is work to do while
 * the device copies and other ranks sum. Phases that other ranks wait for come first.
 */
static dlc_status run_round(dlc_endpoint *e, const work *w, uint64_t round) {
    static const struct {
        phase *run;
        uint64_t lag;
    } phases[] = {
        {end_store, 4}, {begin_fetch, 0}, {end_fetch, 1}, {sum, 2}, {begin_store, 3}};
    dlc_status status = DLC_OK;

    for (size_t i = 0; i < sizeof phases / sizeof *phases && status == DLC_OK; i++) {
        uint64_t lag = phases[i].lag;
        if (round < lag || round - lag >= w->steps ||
            (phases[i].run == sum && !w->reduce))
            continue;
        status = phases[i].run(e, w, round - lag);
    }
    return status;
}

static dlc_status run(dlc_endpoint *e, work *w) {
    size_t ranks = w->root >= 0 ? 1 : (size_t)e->ranks;
    size_t slice = w->count / ranks + (w->count % ranks > 0);
    dlc_status status = DLC_OK;

    w->chunk = e->chunk_bytes / w->unit;
    w->first = e->step;
    w->steps = (slice + w->chunk - 1) / w->chunk;
    for (uint64_t round = 0; round < w->steps + 4 && status == DLC_OK; round++) {
        status = run_round(e, w, round);
        if (status == DLC_OK)
            status = e->args->check(e->args->job);
    }
    e->step += w->steps;
    status = copy_queue_drain(e, &e->fetch, status);
    return copy_queue_drain(e, &e->store, status);
}

dlc_status staged_device_reduce(dlc_endpoint *e, float *buffer, size_t count,
                                int gather) {
    work w = {.buffer = (char *)buffer,
              .count = count,
              .unit = sizeof *buffer,
              .root = -1,
              .reduce = 1,
              .gather = gather};
    return run(e, &w);
}

dlc_status staged_device_gather(dlc_endpoint *e, float *buffer, size_t count) {
    work w = {.buffer = (char *)buffer,
              .count = count,
              .unit = sizeof *buffer,
              .root = -1,
              .gather = 1};
    return run(e, &w);
}

dlc_status staged_device_broadcast(dlc_endpoint *e, int32_t root, void *buffer,
                                   size_t bytes) {
    work w = {.buffer = buffer, .count = bytes, .unit = 1, .root = root, .gather = 1};
    return run(e, &w);
}
