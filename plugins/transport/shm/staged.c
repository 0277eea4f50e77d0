/* Collectives through shared memory: every rank sums its own slice of everybody's.
 *
 * The buffer is cut into one slice a rank, a slice into chunks. In step k each rank
 *
 *     fills   copies chunk k of the others' slices into its window k,
 *     sums    chunk k of its own slice, from everybody's window in the pairwise order,
 *             into its buffer and, where it was found, into everybody's window,
 *     takes   chunk k of the others' slices back from its window.
 *
 * A window has room for a chunk of each rank; a rank's own is where it offers its slice
 * when there is nothing to sum. Fill, sum and take run one and two steps behind each
 * other, so that no rank waits for a chunk that was begun in the same round. Windows
 * are a ring of STEPS: the others' chunks of one may be filled again when all ranks
 * have summed it, its own when all have taken it.
 *
 * A small buffer takes one step: everybody reads all of everybody's, and sums it.
 */
#include <string.h>

#include "shm.h"

/* Bytes that one rank reads of all the others. One step waits for the others once,
 * three parts wait twice and move half as much: measured on Zen 4, two and four ranks.
 */
enum { SMALL = 512, SMALL_CROWDED = 64 << 10 };

/* A collective under way. */
typedef struct work {
    float *buffer;
    size_t count;
    size_t chunk; /* elements */
    uint64_t first;
    int reduce, gather;
} work;

static size_t slice_begin(const dlc_endpoint *e, const work *w, int32_t rank) {
    size_t ranks = (size_t)e->ranks, r = (size_t)rank;
    return w->count / ranks * r + w->count % ranks * r / ranks;
}

/* Chunk k of a rank's slice: its place in the buffer and its length. */
static size_t chunk_of(const dlc_endpoint *e, const work *w, int32_t rank, uint64_t k,
                       size_t *n) {
    size_t begin = slice_begin(e, w, rank) + k * w->chunk;
    size_t end = slice_begin(e, w, rank + 1);
    size_t left = begin < end ? end - begin : 0;
    *n = left < w->chunk ? left : w->chunk;
    return begin;
}

static dlc_status await(dlc_endpoint *e, uint32_t which, uint64_t steps) {
    return marks_await(e, which, steps, 0, e->ranks);
}

/* ... before the ring of steps comes round to `step` again. Since every step waits for
 * all ranks, none gets that far ahead; this keeps it so. */
static dlc_status await_room(dlc_endpoint *e, uint32_t which, uint64_t step) {
    return step < STEPS ? DLC_OK : await(e, which, step - STEPS + 1);
}

/* The chunk of `slice` in a rank's window. */
static float *window_at(const dlc_endpoint *e, int32_t rank, uint64_t step,
                        int32_t slice) {
    unsigned char *at = files_window(e, rank, step) + (size_t)slice * e->chunk_bytes;
    return (float *)(void *)at;
}

static void tell(dlc_endpoint *e, uint32_t which, uint64_t steps) {
    marks_tell(e, which, steps, 0, e->ranks);
}

/* ---- The three parts of a step --------------------------------------------- */

static dlc_status fill(dlc_endpoint *e, const work *w, uint64_t k) {
    uint64_t step = w->first + k;
    dlc_status status = w->reduce ? await_room(e, MARK_SUMMED, step) : DLC_OK;
    if (status != DLC_OK)
        return status;

    for (int32_t i = 1; w->reduce && i < e->ranks; i++) {
        int32_t r = (e->rank + i) % e->ranks; /* not all at the same time */
        size_t n = 0, at = chunk_of(e, w, r, k, &n);
        stage(&e->pace, window_at(e, e->rank, step, r), w->buffer + at,
              n * sizeof(float));
    }
    tell(e, MARK_FILLED, step + 1);
    return DLC_OK;
}

/* Everybody's chunk of my slice: into the buffer, and back to where it came from.
 * There, too, where nobody takes it: a window that was written to is filled faster, see
 * drain. */
static dlc_status sum(dlc_endpoint *e, const work *w, uint64_t k) {
    uint64_t step = w->first + k;
    size_t n = 0, at = chunk_of(e, w, e->rank, k, &n);
    dlc_status status = await(e, MARK_FILLED, step + 1);
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
        tell(e, MARK_SUMMED, step + 1);
    return status;
}

/* Nothing to sum: my slice as it is, in my own place. */
static dlc_status offer(dlc_endpoint *e, const work *w, uint64_t k) {
    uint64_t step = w->first + k;
    size_t n = 0, at = chunk_of(e, w, e->rank, k, &n);
    dlc_status status = await_room(e, MARK_TAKEN, step);
    if (status != DLC_OK)
        return status;
    stage(&e->pace, window_at(e, e->rank, step, e->rank), w->buffer + at,
          n * sizeof(float));
    tell(e, MARK_SUMMED, step + 1);
    return DLC_OK;
}

/* What others may read, too. */
static void read_offer(const dlc_endpoint *e, void *dst, void *offer, size_t bytes) {
    if (e->ranks == 2)
        drain(dst, offer, bytes);
    else
        memcpy(dst, offer, bytes);
}

static dlc_status take(dlc_endpoint *e, const work *w, uint64_t k) {
    uint64_t step = w->first + k;
    dlc_status status = w->gather ? await(e, MARK_SUMMED, step + 1) : DLC_OK;
    if (status != DLC_OK)
        return status;

    for (int32_t i = 1; w->gather && i < e->ranks; i++) {
        int32_t r = (e->rank + i) % e->ranks;
        size_t n = 0, at = chunk_of(e, w, r, k, &n);
        if (w->reduce) /* out of my own window, which I fill */
            memcpy(w->buffer + at, window_at(e, e->rank, step, r), n * sizeof(float));
        else
            read_offer(e, w->buffer + at, window_at(e, r, step, r), n * sizeof(float));
    }
    tell(e, MARK_TAKEN, step + 1);
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

/* The window is all mine: nobody who has summed two steps on has still to take from my
 * own place in it. */
static dlc_status run_small(dlc_endpoint *e, const work *w) {
    uint64_t step = w->first;
    dlc_status status = await_room(e, MARK_SUMMED, step + 2);
    if (status != DLC_OK)
        return status;
    stage(&e->pace, files_window(e, e->rank, step), w->buffer,
          w->count * sizeof(float));
    tell(e, MARK_FILLED, step + 1);

    status = await(e, MARK_FILLED, step + 1);
    if (status != DLC_OK)
        return status;
    for (int32_t r = 0; r < e->ranks; r++)
        e->sources[r] = window_at(e, r, step, 0);
    e->targets[0] = w->buffer;
    status = sum_to(e, NULL, w->count, 1);
    if (status != DLC_OK)
        return status;
    atomic_store(&e->head->marks[MARK_TAKEN].steps, step + 1);
    tell(e, MARK_SUMMED, step + 1);
    e->step++;
    return DLC_OK;
}

int staged_is_small(const dlc_endpoint *e, size_t count) {
    size_t most = e->crowded ? SMALL_CROWDED : SMALL, ranks = (size_t)e->ranks;
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
        return reduce ? far_reduce(e, buffer, count, gather)
                      : far_gather(e, buffer, count);
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

/* One chunk of `n` bytes, from the root's window to everybody. The marks that this has
 * no use for move on with the others. */
static dlc_status pass_on(dlc_endpoint *e, int32_t root, unsigned char *at, size_t n) {
    uint64_t step = e->step;
    float *out = window_at(e, root, step, root);
    int is_root = e->rank == root;
    dlc_status status = is_root ? await_room(e, MARK_TAKEN, step)
                                : marks_await(e, MARK_SUMMED, step + 1, root, root + 1);

    if (status != DLC_OK)
        return status;
    if (is_root)
        stage(&e->pace, out, at, n);
    else
        read_offer(e, at, out, n);
    atomic_store(&e->head->marks[MARK_FILLED].steps, step + 1);
    atomic_store(&e->head->marks[is_root ? MARK_TAKEN : MARK_SUMMED].steps, step + 1);
    tell(e, is_root ? MARK_SUMMED : MARK_TAKEN, step + 1);
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
        return far_broadcast(e, root, buffer, bytes);
    for (size_t i = 0; e->ranks > 1 && i < bytes && status == DLC_OK;
         i += e->chunk_bytes) {
        size_t left = bytes - i;
        status = pass_on(e, root, at + i,
                         left < e->chunk_bytes ? left : e->chunk_bytes);
    }
    return status;
}
