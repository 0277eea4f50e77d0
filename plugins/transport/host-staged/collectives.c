/* Collectives through shared memory: every rank sums its own slice of everybody's.
 *
 * The buffer is cut into one slice a rank, a slice into chunks. In step k each rank
 *
 *     fills   copies chunk k of the others' slices into its in[k],
 *     sums    chunk k of its own slice, from everybody's in[k] in the pairwise
 *             order, into its out[k],
 *     takes   chunk k of the others' slices from their out[k].
 *
 * Two ranks thus read each other's memory once a chunk, and none waits for a chunk
 * that was begun in the same round: fill, sum and take run one and two steps behind
 * each other. in[] and out[] are rings of STEPS: in[k] may be filled again when
 * everybody has summed step k - STEPS, out[k] when everybody has taken it.
 *
 * A small buffer takes one step: everybody reads all of everybody's, and sums it.
 */
#include <string.h>

#include "staged.h"

enum { SMALL = 64 << 10 /* bytes that one rank reads of all the others */ };

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

/* ---- How far the others are ------------------------------------------------ */

typedef enum mark { FILLED, SUMMED, TAKEN } mark;

typedef struct goal {
    mark mark;
    uint64_t steps;
} goal;

static _Atomic uint64_t *mark_of(head *h, mark which) {
    return which == FILLED ? &h->filled : which == SUMMED ? &h->summed : &h->taken;
}

static int reached(const dlc_endpoint *e, const void *what) {
    const goal *g = what;
    for (int32_t r = 0; r < e->ranks; r++)
        if (r != e->rank && atomic_load(mark_of(e->peers[r].head, g->mark)) < g->steps)
            return 0;
    return 1;
}

static dlc_status await(dlc_endpoint *e, mark which, uint64_t steps) {
    goal g = {which, steps};
    return wait_until(e, reached, &g);
}

/* ... before the ring of steps comes round to `step` again. Since every step waits for
 * all ranks, none gets that far ahead; this keeps it so. */
static dlc_status await_room(dlc_endpoint *e, mark which, uint64_t step) {
    return step < STEPS ? DLC_OK : await(e, which, step - STEPS + 1);
}

static void tell(dlc_endpoint *e, mark which, uint64_t steps) {
    atomic_store(mark_of(e->head, which), steps);
    for (int32_t r = 0; r < e->ranks; r++)
        if (r != e->rank)
            wake(e->peers[r].head);
}

/* ---- The three parts of a step --------------------------------------------- */

static dlc_status fill(dlc_endpoint *e, const work *w, uint64_t k) {
    uint64_t step = w->first + k;
    dlc_status status = w->reduce ? await_room(e, SUMMED, step) : DLC_OK;
    if (status != DLC_OK)
        return status;

    unsigned char *in = files_in(e, e->rank, step);
    for (int32_t i = 1; w->reduce && i < e->ranks; i++) {
        int32_t r = (e->rank + i) % e->ranks; /* not all at the same time */
        size_t n = 0;
        size_t at = chunk_of(e, w, r, k, &n);
        stage(&e->pace, in + (size_t)r * e->chunk_bytes, w->buffer + at,
              n * sizeof(float));
    }
    tell(e, FILLED, step + 1);
    return DLC_OK;
}

static dlc_status sum(dlc_endpoint *e, const work *w, uint64_t k) {
    const dlc_transport_args *args = e->args;
    uint64_t step = w->first + k;
    size_t n = 0;
    size_t at = chunk_of(e, w, e->rank, k, &n);
    float *mine = w->buffer + at, *out = (float *)(void *)files_out(e, e->rank, step);
    dlc_status status = w->reduce ? await(e, FILLED, step + 1) : DLC_OK;
    if (status == DLC_OK && w->gather)
        status = await_room(e, TAKEN, step);
    if (status != DLC_OK)
        return status;

    if (w->reduce && n > 0) {
        for (int32_t r = 0; r < e->ranks; r++)
            e->sources[r] = (const float *)(const void *)(files_in(e, r, step) +
                                                          (size_t)e->rank *
                                                              e->chunk_bytes);
        e->sources[e->rank] = mine;
        status = args->device_ops->sum(args->device, NULL, n, e->sources, e->ranks,
                                       mine);
        if (status != DLC_OK)
            return status;
    }
    if (w->gather)
        stage(&e->pace, out, mine, n * sizeof(float));
    tell(e, SUMMED, step + 1);
    return DLC_OK;
}

static dlc_status take(dlc_endpoint *e, const work *w, uint64_t k) {
    uint64_t step = w->first + k;
    dlc_status status = w->gather ? await(e, SUMMED, step + 1) : DLC_OK;
    if (status != DLC_OK)
        return status;

    for (int32_t i = 1; w->gather && i < e->ranks; i++) {
        int32_t r = (e->rank + i) % e->ranks;
        size_t n = 0;
        size_t at = chunk_of(e, w, r, k, &n);
        memcpy(w->buffer + at, files_out(e, r, step), n * sizeof(float));
    }
    tell(e, TAKEN, step + 1);
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
            status = sum(e, w, k - 1);
        if (status == DLC_OK && k >= 2)
            status = take(e, w, k - 2);
    }
    e->step += steps;
    return status;
}

static dlc_status run_small(dlc_endpoint *e, const work *w) {
    const dlc_transport_args *args = e->args;
    uint64_t step = w->first;
    dlc_status status = await_room(e, SUMMED, step);
    if (status != DLC_OK)
        return status;
    stage(&e->pace, files_in(e, e->rank, step), w->buffer, w->count * sizeof(float));
    tell(e, FILLED, step + 1);

    status = await(e, FILLED, step + 1);
    if (status != DLC_OK)
        return status;
    for (int32_t r = 0; r < e->ranks; r++)
        e->sources[r] = (const float *)(const void *)files_in(e, r, step);
    status = args->device_ops->sum(args->device, NULL, w->count, e->sources, e->ranks,
                                   w->buffer);
    if (status != DLC_OK)
        return status;
    atomic_store(&e->head->taken, step + 1);
    tell(e, SUMMED, step + 1);
    e->step++;
    return DLC_OK;
}

static dlc_status run(dlc_endpoint *e, float *buffer, size_t count, int reduce,
                      int gather) {
    work w = {buffer, count, 0, e->step, reduce, gather};
    size_t all = count * sizeof(float) * (size_t)(e->ranks - 1);

    if (!e->host_memory)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "this transport sums in the processor's memory only");
    if (e->ranks == 1 || count == 0)
        return DLC_OK;
    if (reduce && gather && count < SMALL && all <= SMALL &&
        count * sizeof(float) <= (size_t)e->ranks * e->chunk_bytes)
        return run_small(e, &w);
    return run_large(e, &w);
}

dlc_status collective_all_reduce(dlc_endpoint *e, float *buffer, size_t count) {
    return run(e, buffer, count, 1, 1);
}

dlc_status collective_reduce_scatter(dlc_endpoint *e, float *buffer, size_t count) {
    return run(e, buffer, count, 1, 0);
}

dlc_status collective_all_gather(dlc_endpoint *e, float *buffer, size_t count) {
    return run(e, buffer, count, 0, 1);
}
