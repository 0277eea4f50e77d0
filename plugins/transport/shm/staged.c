/* Collectives through shared memory: every rank reduces its own slice of all buffers.
 *
 * The buffer is cut into one slice per rank, a slice into chunks. In step k each rank
 *
 *     fills   copies chunk k of the other ranks' slices into its window k,
 *     sums    chunk k of its own slice, from all ranks' windows in the pairwise order,
 *             into its buffer and back into all ranks' windows,
 *     takes   chunk k of the other ranks' slices from its own window.
 *
 * A window has room for a chunk of each rank; a rank's own chunk is where it offers its
 * slice when nothing is reduced. Fill, sum and take run one and two steps behind each
 * other, so that no rank waits for a chunk that was begun in the same round. Windows
 * are a ring of STEPS: the other ranks' chunks may be overwritten when all ranks have
 * reduced them, a rank's own when all have taken it.
 *
 * A small buffer takes one step: every rank reads all buffers and sums them itself.
 */
#include <string.h>

#include "shm.h"

/* Bytes that a rank reads from all others. One step waits for the others once; three
 * phases wait twice and move half as much. Measured on Zen 4 with two and four ranks.
 */
enum { SMALL = 512, SMALL_OVERSUBSCRIBED = 64 << 10 };

/* A collective in progress. */
typedef struct work {
    float *buffer;
    size_t count;
    size_t chunk; /* elements */
    uint64_t first;
    int reduce, gather;
} work;

static size_t slice_start(const dlc_endpoint *e, const work *w, int32_t rank) {
    size_t ranks = (size_t)e->ranks, r = (size_t)rank;
    return w->count / ranks * r + w->count % ranks * r / ranks;
}

/* Chunk k of a rank's slice: returns its place in the buffer, and its length in *n. */
static size_t chunk_of(const dlc_endpoint *e, const work *w, int32_t rank, uint64_t k,
                       size_t *n) {
    size_t begin = slice_start(e, w, rank) + k * w->chunk;
    size_t end = slice_start(e, w, rank + 1);
    size_t left = begin < end ? end - begin : 0;
    *n = left < w->chunk ? left : w->chunk;
    return begin;
}

static dlc_status await(dlc_endpoint *e, uint32_t which, uint64_t steps) {
    return progress_wait(e, which, steps, 0, e->ranks);
}

/* Waits before the ring of windows wraps around to `step`. Every step waits for all
 * ranks, so none gets that far ahead; this guarantees it. */
static dlc_status await_room(dlc_endpoint *e, uint32_t which, uint64_t step) {
    return step < STEPS ? DLC_OK : await(e, which, step - STEPS + 1);
}

/* The chunk of `slice` in a rank's window. */
static float *window_at(const dlc_endpoint *e, int32_t rank, uint64_t step,
                        int32_t slice) {
    unsigned char *at = files_window(e, rank, step) + (size_t)slice * e->chunk_bytes;
    return (float *)(void *)at;
}

static void publish(dlc_endpoint *e, uint32_t which, uint64_t steps) {
    progress_publish(e, which, steps, 0, e->ranks);
}

/* ---- The three phases of a step ------------------------------------------------ */

static dlc_status fill(dlc_endpoint *e, const work *w, uint64_t k) {
    uint64_t step = w->first + k;
    dlc_status status = w->reduce ? await_room(e, PROGRESS_SUMMED, step) : DLC_OK;
    if (status != DLC_OK)
        return status;

    for (int32_t i = 1; w->reduce && i < e->ranks; i++) {
        int32_t r = (e->rank + i) % e->ranks; /* each rank starts with another one */
        size_t n = 0, at = chunk_of(e, w, r, k, &n);
        stage(&e->copy_cost, window_at(e, e->rank, step, r), w->buffer + at,
              n * sizeof(float));
    }
    publish(e, PROGRESS_FILLED, step + 1);
    return DLC_OK;
}

/* Reduces all ranks' chunks of this rank's slice, into the buffer and back into the
 * windows that they came from. This is done even for a reduce-scatter, where nobody
 * takes the result: a window that was written to is filled faster, see drain(). */
static dlc_status sum(dlc_endpoint *e, const work *w, uint64_t k) {
    uint64_t step = w->first + k;
    size_t n = 0, at = chunk_of(e, w, e->rank, k, &n);
    dlc_status status = await(e, PROGRESS_FILLED, step + 1);
    if (status != DLC_OK)
        return status;

    for (int32_t i = 0; i < e->ranks; i++) {
        int32_t r = (e->rank + i) % e->ranks;
        e->targets[i] = i == 0 ? w->buffer + at : window_at(e, r, step, e->rank);
        e->sources[r] = e->targets[i];
    }
    if (n > 0)
        status = sum_to(e, NULL, n, e->ranks);
    if (status == DLC_OK)
        publish(e, PROGRESS_SUMMED, step + 1);
    return status;
}

/* Nothing is reduced: publishes this rank's slice in its own place. */
static dlc_status offer(dlc_endpoint *e, const work *w, uint64_t k) {
    uint64_t step = w->first + k;
    size_t n = 0, at = chunk_of(e, w, e->rank, k, &n);
    dlc_status status = await_room(e, PROGRESS_TAKEN, step);
    if (status != DLC_OK)
        return status;
    stage(&e->copy_cost, window_at(e, e->rank, step, e->rank), w->buffer + at,
          n * sizeof(float));
    publish(e, PROGRESS_SUMMED, step + 1);
    return DLC_OK;
}

/* Reads a chunk that other ranks may read as well. */
static void read_offer(const dlc_endpoint *e, void *dst, void *offer, size_t bytes) {
    if (e->ranks == 2)
        drain(dst, offer, bytes);
    else
        memcpy(dst, offer, bytes);
}

static dlc_status take(dlc_endpoint *e, const work *w, uint64_t k) {
    uint64_t step = w->first + k;
    dlc_status status = w->gather ? await(e, PROGRESS_SUMMED, step + 1) : DLC_OK;
    if (status != DLC_OK)
        return status;

    for (int32_t i = 1; w->gather && i < e->ranks; i++) {
        int32_t r = (e->rank + i) % e->ranks;
        size_t n = 0, at = chunk_of(e, w, r, k, &n);
        if (w->reduce) /* from this rank's own window, which only it fills */
            memcpy(w->buffer + at, window_at(e, e->rank, step, r), n * sizeof(float));
        else
            read_offer(e, w->buffer + at, window_at(e, r, step, r), n * sizeof(float));
    }
    publish(e, PROGRESS_TAKEN, step + 1);
    return DLC_OK;
}

static dlc_status run_large(dlc_endpoint *e, work *w) {
    size_t slice = w->count / (size_t)e->ranks + (w->count % (size_t)e->ranks > 0);
    w->chunk = e->chunk_bytes / sizeof(float);
    uint64_t steps = (slice + w->chunk - 1) / w->chunk;
    dlc_status status = DLC_OK;

    for (uint64_t k = 0; k < steps + 2 && status == DLC_OK; k++) {
        if (k < steps)
            status = fill(e, w, k);
        if (status == DLC_OK && k >= 1 && k - 1 < steps)
            status = w->reduce ? sum(e, w, k - 1) : offer(e, w, k - 1);
        if (status == DLC_OK && k >= 2)
            status = take(e, w, k - 2);
    }
    e->step += steps;
    return status;
}

/* The whole window may be filled: every rank that has reduced two steps later has taken
 * this rank's chunk from it. */
static dlc_status run_small(dlc_endpoint *e, const work *w) {
    uint64_t step = w->first;
    dlc_status status = await_room(e, PROGRESS_SUMMED, step + 2);
    if (status != DLC_OK)
        return status;
    stage(&e->copy_cost, files_window(e, e->rank, step), w->buffer,
          w->count * sizeof(float));
    publish(e, PROGRESS_FILLED, step + 1);

    status = await(e, PROGRESS_FILLED, step + 1);
    if (status != DLC_OK)
        return status;
    for (int32_t r = 0; r < e->ranks; r++)
        e->sources[r] = window_at(e, r, step, 0);
    e->targets[0] = w->buffer;
    status = sum_to(e, NULL, w->count, 1);
    if (status != DLC_OK)
        return status;
    atomic_store(&e->head->progress[PROGRESS_TAKEN].steps, step + 1);
    publish(e, PROGRESS_SUMMED, step + 1);
    e->step++;
    return DLC_OK;
}

int staged_is_small(const dlc_endpoint *e, size_t count) {
    size_t most = e->oversubscribed ? SMALL_OVERSUBSCRIBED : SMALL,
           ranks = (size_t)e->ranks;
    return e->host_memory && count < most &&
           count * sizeof(float) * (ranks - 1) <= most &&
           count * sizeof(float) <= ranks * e->chunk_bytes;
}

static dlc_status run(dlc_endpoint *e, float *buffer, size_t count, int reduce,
                      int gather) {
    work w = {buffer, count, 0, e->step, reduce, gather};

    if (e->ranks == 1 || count == 0)
        return DLC_OK;
    if (!e->host_memory)
        return reduce ? staged_device_reduce(e, buffer, count, gather)
                      : staged_device_gather(e, buffer, count);
    if (reduce && gather && staged_is_small(e, count))
        return run_small(e, &w);
    return run_large(e, &w);
}

dlc_status staged_all_reduce(dlc_endpoint *e, float *buffer, size_t count) {
    return run(e, buffer, count, 1, 1);
}

dlc_status staged_reduce_scatter(dlc_endpoint *e, float *buffer, size_t count) {
    return run(e, buffer, count, 1, 0);
}

dlc_status staged_all_gather(dlc_endpoint *e, float *buffer, size_t count) {
    return run(e, buffer, count, 0, 1);
}

/* ---- Broadcast ------------------------------------------------------------- */

/* Broadcasts one chunk of `n` bytes through the root's window. Counters that a
 * broadcast does not need advance with the others. */
static dlc_status pass_on(dlc_endpoint *e, int32_t root, unsigned char *at, size_t n) {
    uint64_t step = e->step;
    float *out = window_at(e, root, step, root);
    int is_root = e->rank == root;
    dlc_status status = is_root ? await_room(e, PROGRESS_TAKEN, step)
                                : progress_wait(e, PROGRESS_SUMMED, step + 1, root,
                                                root + 1);

    if (status != DLC_OK)
        return status;
    if (is_root)
        stage(&e->copy_cost, out, at, n);
    else
        read_offer(e, at, out, n);
    atomic_store(&e->head->progress[PROGRESS_FILLED].steps, step + 1);
    atomic_store(&e->head->progress[is_root ? PROGRESS_TAKEN : PROGRESS_SUMMED].steps,
                 step + 1);
    publish(e, is_root ? PROGRESS_SUMMED : PROGRESS_TAKEN, step + 1);
    e->step++;
    return DLC_OK;
}

dlc_status staged_broadcast(dlc_endpoint *e, int32_t root, void *buffer, size_t bytes) {
    unsigned char *at = buffer;
    dlc_status status = DLC_OK;

    if (root < 0 || root >= e->ranks)
        return host->fail(DLC_ERR_CONFIG, "there is no rank %d among %d", root,
                          e->ranks);
    if (!e->host_memory && e->ranks > 1)
        return staged_device_broadcast(e, root, buffer, bytes);
    for (size_t i = 0; e->ranks > 1 && i < bytes && status == DLC_OK;
         i += e->chunk_bytes) {
        size_t left = bytes - i;
        status = pass_on(e, root, at + i,
                         left < e->chunk_bytes ? left : e->chunk_bytes);
    }
    return status;
}
