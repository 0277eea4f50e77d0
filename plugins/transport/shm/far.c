/* Collectives through shared memory for a device whose memory the processor cannot
 * read: the device copies, the processor sums, and both at the same time.
 *
 * The buffer is cut into slices and chunks as in staged.c. In step k each rank
 *
 *     fetches  chunk k of all slices from the device into its window k,
 *     sums     chunk k of its own slice, from everybody's window in the pairwise order,
 *              into its own place in its own window,
 *     stores   chunk k of all slices to the device, each from its owner's window.
 *
 * The device copies in two lanes, and each rank is in five steps at once: while it sums
 * one chunk the next are fetched and those before are stored. Where nothing is summed
 * an owner fetches its slice only; a broadcast is that with one slice, the root's.
 *
 * Only its owner writes to a window. Another step gets it when all ranks have stored
 * what was in it, for which they have summed it, too.
 */
#include "shm.h"

/* A collective under way. */
typedef struct work {
    char *buffer;
    size_t count, unit; /* elements, and the bytes of one */
    size_t chunk;       /* elements */
    uint64_t first, steps;
    int32_t root; /* -1: each rank has a slice */
    int reduce, gather;
} work;

static size_t slice_begin(const dlc_endpoint *e, const work *w, int32_t rank) {
    size_t ranks = (size_t)e->ranks, r = (size_t)rank;
    if (w->root >= 0)
        return rank <= w->root ? 0 : w->count;
    return w->count / ranks * r + w->count % ranks * r / ranks;
}

/* Chunk k of a rank's slice: its place in the buffer and its bytes. */
static char *chunk_of(const dlc_endpoint *e, const work *w, int32_t rank, uint64_t k,
                      size_t *bytes) {
    size_t begin = slice_begin(e, w, rank) + k * w->chunk;
    size_t end = slice_begin(e, w, rank + 1);
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
    return marks_await(e, which, steps, 0, e->ranks);
}

static void tell(dlc_endpoint *e, uint32_t which, uint64_t steps) {
    marks_tell(e, which, steps, 0, e->ranks);
}

/* ---- The parts of a step ----------------------------------------------------- */

static dlc_status begin_fetch(dlc_endpoint *e, const work *w, uint64_t k) {
    uint64_t step = w->first + k;
    dlc_status status = DLC_OK;

    if (step >= e->windows)
        status = await(e, MARK_TAKEN, step - e->windows + 1);
    for (int32_t i = 0; i < e->ranks && status == DLC_OK; i++) {
        int32_t r = (e->rank + 1 + i) % e->ranks; /* not all the same one's first */
        size_t bytes = 0;
        const char *at = chunk_of(e, w, r, k, &bytes);
        if (w->reduce || r == e->rank)
            status = lane_copy(e, &e->fetch, window_at(e, e->rank, step, r), at, bytes);
    }
    return status == DLC_OK ? lane_mark(e, &e->fetch, step) : status;
}

static dlc_status end_fetch(dlc_endpoint *e, const work *w, uint64_t k) {
    uint64_t step = w->first + k;
    dlc_status status = lane_await(e, &e->fetch, step);

    if (status == DLC_OK)
        tell(e, w->reduce ? MARK_FILLED : MARK_SUMMED, step + 1);
    return status;
}

static dlc_status sum(dlc_endpoint *e, const work *w, uint64_t k) {
    uint64_t step = w->first + k;
    size_t bytes = 0;
    dlc_status status = await(e, MARK_FILLED, step + 1);

    if (status != DLC_OK)
        return status;
    (void)chunk_of(e, w, e->rank, k, &bytes);
    for (int32_t r = 0; r < e->ranks; r++)
        e->sources[r] = (const float *)(const void *)window_at(e, r, step, e->rank);
    pairwise_sum(bytes / sizeof(float), e->sources, e->ranks,
                 (float *)(void *)window_at(e, e->rank, step, e->rank));
    tell(e, MARK_SUMMED, step + 1);
    return DLC_OK;
}

static dlc_status begin_store(dlc_endpoint *e, const work *w, uint64_t k) {
    uint64_t step = w->first + k;
    dlc_status status = w->gather ? await(e, MARK_SUMMED, step + 1) : DLC_OK;

    for (int32_t i = 0; i < e->ranks && status == DLC_OK; i++) {
        int32_t r = (e->rank + i) % e->ranks;
        size_t bytes = 0;
        char *at = chunk_of(e, w, r, k, &bytes);
        if (r == e->rank ? w->reduce : w->gather)
            status = lane_copy(e, &e->store, at, window_at(e, r, step, r), bytes);
    }
    return status == DLC_OK ? lane_mark(e, &e->store, step) : status;
}

static dlc_status end_store(dlc_endpoint *e, const work *w, uint64_t k) {
    uint64_t step = w->first + k;
    dlc_status status = lane_await(e, &e->store, step);

    if (status == DLC_OK)
        tell(e, MARK_TAKEN, step + 1);
    return status;
}

/* ---- All of them -------------------------------------------------------------- */

typedef dlc_status part(dlc_endpoint *endpoint, const work *work, uint64_t k);

/* Each part is one step behind the one before, so that there is something to do while
 * the device copies and the others sum. What others wait for comes first. */
static dlc_status run_round(dlc_endpoint *e, const work *w, uint64_t round) {
    static const struct {
        part *run;
        uint64_t behind;
    } parts[] = {
        {end_store, 4}, {begin_fetch, 0}, {end_fetch, 1}, {sum, 2}, {begin_store, 3}};
    dlc_status status = DLC_OK;

    for (size_t i = 0; i < sizeof parts / sizeof *parts && status == DLC_OK; i++) {
        uint64_t behind = parts[i].behind;
        if (round < behind || round - behind >= w->steps ||
            (parts[i].run == sum && !w->reduce))
            continue;
        status = parts[i].run(e, w, round - behind);
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
    status = lane_settle(e, &e->fetch, status);
    return lane_settle(e, &e->store, status);
}

dlc_status far_reduce(dlc_endpoint *e, float *buffer, size_t count, int gather) {
    work w = {.buffer = (char *)buffer,
              .count = count,
              .unit = sizeof *buffer,
              .root = -1,
              .reduce = 1,
              .gather = gather};
    return run(e, &w);
}

dlc_status far_gather(dlc_endpoint *e, float *buffer, size_t count) {
    work w = {.buffer = (char *)buffer,
              .count = count,
              .unit = sizeof *buffer,
              .root = -1,
              .gather = 1};
    return run(e, &w);
}

dlc_status far_broadcast(dlc_endpoint *e, int32_t root, void *buffer, size_t bytes) {
    work w = {.buffer = buffer, .count = bytes, .unit = 1, .root = root, .gather = 1};
    return run(e, &w);
}
