/* Coming to a collective in attached memory and leaving it, together.
 *
 * Each rank tells with its mark what it was called for. So ranks that don't make the
 * same calls are told so, where they would else sum one thing into another. (Calls for
 * a queue meet by words, which tell no more than that somebody has come.)
 */
#include <inttypes.h>

#include "p2p.h"

/* Bytes that a device works on at a time, by the direct schedule and the tree. */
enum { PIECE = 8 << 20, TREE_PIECE = 1 << 20 };

static const char *const names[] = {"",           "all_reduce", "reduce_scatter",
                                    "all_gather", "broadcast",  "update"};

static void note_of(const call *c, uint64_t *note) {
    note[0] = (uint64_t)c->kind << 32 | c->arena;
    note[1] = c->offset;
    note[2] = c->count;
}

static dlc_status differs(const dlc_endpoint *e, int32_t rank, const uint64_t *its,
                          const uint64_t *mine) {
    const size_t known = sizeof names / sizeof *names;
    const char *what = its[0] >> 32 < known ? names[its[0] >> 32] : "something else";
    return host->fail(DLC_ERR_CONFIG,
                      "rank %d calls %s of %" PRIu64 " at byte %" PRIu64
                      " of attached memory %" PRIu64 ", rank %d calls %s of %" PRIu64
                      " at byte %" PRIu64 " of %" PRIu64
                      ": all ranks must make the same calls",
                      rank, what, its[2], its[1], its[0] & UINT32_MAX, e->rank,
                      names[mine[0] >> 32], mine[2], mine[1], mine[0] & UINT32_MAX);
}

dlc_status call_enter(dlc_endpoint *e, const call *c, int32_t first, int32_t end) {
    if (c->queue)
        return words_meet(e, c->queue, TURN_ENTER);
    uint64_t calls = ++e->arenas->calls;
    uint64_t *mine = e->head->marks[MARK_ENTERED].note[calls % 2];

    note_of(c, mine);
    marks_tell(e, MARK_ENTERED, calls, 0, e->ranks);
    dlc_status status = marks_await(e, MARK_ENTERED, calls, first, end);
    for (int32_t r = first; r < end && status == DLC_OK; r++) {
        const uint64_t *its = e->peers[r].head->marks[MARK_ENTERED].note[calls % 2];
        if (its[0] != mine[0] || its[1] != mine[1] || its[2] != mine[2])
            status = differs(e, r, its, mine);
    }
    return status;
}

dlc_status call_leave(dlc_endpoint *e, const call *c, int32_t first, int32_t end) {
    if (c->queue)
        return words_meet(e, c->queue, TURN_LEAVE);
    marks_tell(e, MARK_LEFT, e->arenas->calls, 0, e->ranks);
    return marks_await(e, MARK_LEFT, e->arenas->calls, first, end);
}

dlc_status call_sync(dlc_endpoint *e) {
    lane *l = &e->arenas->lane;
    dlc_status status = lane_mark(e, l, 0);
    if (status == DLC_OK)
        status = lane_await(e, l, 0);
    return status == DLC_OK ? e->args->check(e->args->job) : status;
}

dlc_status call_finish(dlc_endpoint *e, const call *c, dlc_status status) {
    if (c->queue)
        return status;
    if (status == DLC_OK)
        status = call_sync(e);
    return lane_settle(e, &e->arenas->lane, status);
}

dlc_queue *call_queue(const dlc_endpoint *e, const call *c) {
    return c->queue ? c->queue : e->arenas->lane.queue;
}

size_t call_slice(const dlc_endpoint *e, const call *c, int32_t rank) {
    size_t ranks = (size_t)e->ranks, r = (size_t)rank;
    return c->count / ranks * r + c->count % ranks * r / ranks;
}

/* The processor does what stays in its cache. A device wants to be told little: its
 * pieces are so long that they keep it busy while the next is told, and the job is
 * asked whether it goes on; those of the tree so short that its stages overlap. A
 * queue takes all at once. */
size_t call_chunk(const dlc_endpoint *e, const call *c, int tree) {
    size_t chunk = e->chunk_bytes / sizeof(float);
    size_t most = e->host_memory ? SERIAL : (tree ? TREE_PIECE : PIECE) / sizeof(float);
    if (host->get_int(e->args->settings, "chunk_bytes") > 0)
        return chunk;
    if (c->queue && !tree)
        return c->count;
    return e->host_memory && chunk < most ? chunk : most;
}

/* The fewest steps where it is small. */
dlc_status call_run(dlc_endpoint *e, const call *c) {
    if (e->arenas->tree && c->count > call_chunk(e, c, 1))
        return tree_run(e, c);
    return c->kind == ALL_GATHER ? direct_gather(e, c) : direct_reduce(e, c);
}
