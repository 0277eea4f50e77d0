/* Entering and leaving a collective in registered memory, with all ranks.
 *
 * Each rank publishes with its progress counter which collective it was called for. So
 * ranks whose calls differ get an error instead of a wrong sum. (Stream-ordered calls
 * synchronize by semaphores, which carry no such information.)
 */
#include <inttypes.h>

#include "p2p.h"

/* Bytes that a device works on at a time, in the direct schedule and in the tree. */
enum { PIECE = 8 << 20, TREE_PIECE = 1 << 20 };

static const char *const names[] = {"",           "all_reduce", "reduce_scatter",
                                    "all_gather", "broadcast",  "update"};

static void signature_of(const call *c, uint64_t *signature) {
    signature[0] = (uint64_t)c->kind << 32 | c->arena;
    signature[1] = c->offset;
    signature[2] = c->count;
}

static dlc_status differs(const dlc_endpoint *e, int32_t rank, const uint64_t *its,
                          const uint64_t *mine) {
    const size_t known = sizeof names / sizeof *names;
    const char *what = its[0] >> 32 < known ? names[its[0] >> 32] : "something else";
    return host->fail(DLC_ERR_CONFIG,
                      "rank %d calls %s of %" PRIu64 " at byte %" PRIu64
                      " of registered buffer %" PRIu64 ", rank %d calls %s of %" PRIu64
                      " at byte %" PRIu64 " of %" PRIu64
                      ": all ranks must make the same calls",
                      rank, what, its[2], its[1], its[0] & UINT32_MAX, e->rank,
                      names[mine[0] >> 32], mine[2], mine[1], mine[0] & UINT32_MAX);
}

dlc_status call_enter(dlc_endpoint *e, const call *c, int32_t first, int32_t end) {
    if (c->queue)
        return semaphores_barrier(e, c->queue, PHASE_ENTER);
    uint64_t calls = ++e->arenas->calls;
    uint64_t *mine = e->head->progress[PROGRESS_ENTERED].signature[calls % 2];

    signature_of(c, mine);
    progress_publish(e, PROGRESS_ENTERED, calls, 0, e->ranks);
    dlc_status status = progress_wait(e, PROGRESS_ENTERED, calls, first, end);
    for (int32_t r = first; r < end && status == DLC_OK; r++) {
        const uint64_t *its =
            e->peers[r].head->progress[PROGRESS_ENTERED].signature[calls % 2];
        if (its[0] != mine[0] || its[1] != mine[1] || its[2] != mine[2])
            status = differs(e, r, its, mine);
    }
    return status;
}

dlc_status call_leave(dlc_endpoint *e, const call *c, int32_t first, int32_t end) {
    if (c->queue)
        return semaphores_barrier(e, c->queue, PHASE_LEAVE);
    progress_publish(e, PROGRESS_LEFT, e->arenas->calls, 0, e->ranks);
    return progress_wait(e, PROGRESS_LEFT, e->arenas->calls, first, end);
}

dlc_status call_sync(dlc_endpoint *e) {
    copy_queue *q = &e->arenas->work;
    dlc_status status = copy_queue_record(e, q, 0);
    if (status == DLC_OK)
        status = copy_queue_wait(e, q, 0);
    return status == DLC_OK ? e->args->check(e->args->job) : status;
}

dlc_status call_finish(dlc_endpoint *e, const call *c, dlc_status status) {
    if (c->queue)
        return status;
    if (status == DLC_OK)
        status = call_sync(e);
    return copy_queue_drain(e, &e->arenas->work, status);
}

dlc_queue *call_queue(const dlc_endpoint *e, const call *c) {
    return c->queue ? c->queue : e->arenas->work.queue;
}

size_t call_slice(const dlc_endpoint *e, const call *c, int32_t rank) {
    size_t ranks = (size_t)e->ranks, r = (size_t)rank;
    return c->count / ranks * r + c->count % ranks * r / ranks;
}

/* The CPU works on what fits its cache. A device has a launch overhead: its chunks are
 * long enough to keep it busy while the next ones are launched and args->check is
 * called; those of the tree are short enough for its stages to overlap. A
 * stream-ordered call launches everything at once. */
size_t call_chunk(const dlc_endpoint *e, const call *c, int tree) {
    size_t chunk = e->chunk_bytes / sizeof(float);
    size_t most = e->host_memory ? SERIAL : (tree ? TREE_PIECE : PIECE) / sizeof(float);
    if (host->get_int(e->args->settings, "chunk_bytes") > 0)
        return chunk;
    if (c->queue && !tree)
        return c->count;
    return e->host_memory && chunk < most ? chunk : most;
}

/* The direct schedule takes the fewest steps, which is best for small buffers. */
dlc_status call_run(dlc_endpoint *e, const call *c) {
    if (e->arenas->tree && c->count > call_chunk(e, c, 1))
        return tree_run(e, c);
    return c->kind == ALL_GATHER ? direct_gather(e, c) : direct_reduce(e, c);
}
