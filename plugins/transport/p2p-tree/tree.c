/* The tree schedule: nearest ranks pair first, so that distant links carry least.
 *
 * Blocks of 1, 2, 4, ... neighbouring ranks hold sums of their members' buffers. At
 * each level two blocks join: the sums of both are added into the sum of the joined
 * block, the lower one's first, which is the pairwise order. A block's sum is
 * distributed over its members, by slices: member number (slice mod size of a full
 * block) owns it, and holds it in its own arena. So a slice stays with its owner or
 * moves to the same member of the other block, both read each other at the same time,
 * and in the end rank r owns slice r. Where a block has fewer members than a full one,
 * a number beyond them loses its highest bits until it names a member; that agrees with
 * the smaller blocks that it was made of. The all-gather runs the levels backwards, and
 * copies.
 *
 * Two levels inside a socket and one between two sockets thus cross the link between
 * them with one buffer each way, where the direct schedule takes a buffer for every two
 * ranks. Slices are cut into chunks that are pipelined through the levels: stage s of
 * chunk k begins when the ranks concerned have done stage s-1 of it.
 *
 * No rank writes what another reads. On the way up a rank writes, in its own arena,
 * slices that it owns in the joined block, while others of that block read slices from
 * it that it owned in its old block: none that it owns in the joined block but itself.
 * On the way down it writes slices that it owned in the old block and not in the joined
 * one, and others read those that it owns in the joined one.
 */
#include "p2p.h"

typedef struct tree {
    const call *call;
    int32_t levels, first, end; /* stages first .. end-1 of 2 * levels */
    size_t chunk;
    uint64_t chunks;
} tree;

/* A block of level l begins at a multiple of 2^l. */
static int32_t block_begin(int32_t rank, int32_t level) {
    return rank >> level << level;
}

static int32_t block_end(const dlc_endpoint *e, int32_t rank, int32_t level) {
    int32_t end = block_begin(rank, level) + (1 << level);
    return end < e->ranks ? end : e->ranks;
}

/* The rank that owns a slice in the block of `rank`. */
static int32_t owner_of(const dlc_endpoint *e, int32_t rank, int32_t level,
                        int32_t slice) {
    int32_t begin = block_begin(rank, level);
    int32_t members = block_end(e, rank, level) - begin;
    int32_t number = slice & ((1 << level) - 1);

    for (int32_t bit = 1 << level; number >= members; bit /= 2)
        number &= ~bit;
    return begin + number;
}

/* Chunk k of a slice: returns where it begins, and its length in *n. */
static size_t chunk_of(const dlc_endpoint *e, const tree *t, int32_t slice, uint64_t k,
                       size_t *n) {
    size_t begin = call_slice(e, t->call, slice) + k * t->chunk;
    size_t end = call_slice(e, t->call, slice + 1);
    size_t left = begin < end ? end - begin : 0;
    *n = left < t->chunk ? left : t->chunk;
    return begin;
}

/* Reduces: the block of this rank at `level` joins its neighbour. */
static dlc_status reduce_up(dlc_endpoint *e, const tree *t, int32_t level, uint64_t k) {
    const dlc_transport_args *args = e->args;
    int32_t low = block_begin(e->rank, level + 1), high = low + (1 << level);
    dlc_status status = DLC_OK;

    for (int32_t q = 0; q < e->ranks && high < e->ranks && status == DLC_OK; q++) {
        size_t n = 0, at = chunk_of(e, t, q, k, &n);
        if (n == 0 || owner_of(e, low, level + 1, q) != e->rank)
            continue;
        const float *pair[2] = {arenas_at(e, t->call, owner_of(e, low, level, q), at),
                                arenas_at(e, t->call, owner_of(e, high, level, q), at)};
        status = args->device_ops->sum(args->device, call_queue(e, t->call), n, pair, 2,
                                       arenas_at(e, t->call, e->rank, at));
    }
    return status;
}

/* Gathers: copies back the complete slices that this rank owned at `level`. */
static dlc_status gather_down(dlc_endpoint *e, const tree *t, int32_t level,
                              uint64_t k) {
    const dlc_transport_args *args = e->args;
    dlc_status status = DLC_OK;

    for (int32_t q = 0; q < e->ranks && status == DLC_OK; q++) {
        size_t n = 0, at = chunk_of(e, t, q, k, &n);
        int32_t from = owner_of(e, e->rank, level + 1, q);
        if (n == 0 || from == e->rank || owner_of(e, e->rank, level, q) != e->rank)
            continue;
        status = args->device_ops->copy(
            args->device, call_queue(e, t->call), arenas_at(e, t->call, e->rank, at),
            arenas_at(e, t->call, from, at), n * sizeof(float));
    }
    return status;
}

static int32_t level_of(const tree *t, int32_t stage) {
    return stage < t->levels ? stage : 2 * t->levels - 1 - stage;
}

/* The ranks that take part in a stage with this one. */
static span partners(const dlc_endpoint *e, const tree *t, int32_t stage) {
    int32_t level = level_of(t, stage) + 1;
    return (span){PHASE_STAGE + stage - 1, block_begin(e->rank, level),
                  block_end(e, e->rank, level)};
}

/* Signals the ranks of the next stage, which wait for this one. */
static dlc_status publish_stage(dlc_endpoint *e, const tree *t, int32_t stage,
                                uint64_t k) {
    if (!t->call->queue) {
        progress_publish(e, PROGRESS_STAGE + (uint32_t)stage, e->arenas->chunks + k + 1,
                         0, e->ranks);
        return DLC_OK;
    }
    if (stage + 1 == t->end)
        return DLC_OK;
    span to = partners(e, t, stage + 1);
    return semaphores_signal(e, t->call->queue, &to, (uint32_t)k + 1);
}

static dlc_status await_stage_before(dlc_endpoint *e, const tree *t, int32_t stage,
                                     uint64_t k) {
    span from = partners(e, t, stage);
    if (t->call->queue)
        return semaphores_wait(e, t->call->queue, &from, (uint32_t)k + 1,
                               k + 1 == t->chunks);
    return progress_wait(e, PROGRESS_STAGE + (uint32_t)stage - 1,
                         e->arenas->chunks + k + 1, from.first, from.end);
}

/* Must the CPU wait for the device before it publishes what the device has done? */
static int must_sync_first(const dlc_endpoint *e, const tree *t) {
    return e->arenas->work.queue && !t->call->queue;
}

static dlc_status run_stage(dlc_endpoint *e, const tree *t, int32_t stage, uint64_t k) {
    int32_t level = level_of(t, stage);
    dlc_status status = stage > t->first ? await_stage_before(e, t, stage, k) : DLC_OK;

    if (status == DLC_OK)
        status = stage < t->levels ? reduce_up(e, t, level, k)
                                   : gather_down(e, t, level, k);
    if (status != DLC_OK || must_sync_first(e, t))
        return status;
    status = e->args->check(e->args->job);
    return status == DLC_OK ? publish_stage(e, t, stage, k) : status;
}

/* Runs each stage on the chunk that has come to it. A device with queues is given all
 * of them and waited for once; a stream-ordered call never waits. */
static dlc_status run_round(dlc_endpoint *e, const tree *t, uint64_t round) {
    uint64_t stages = (uint64_t)(t->end - t->first);
    uint64_t begin = round < t->chunks ? 0 : round - t->chunks + 1;
    uint64_t end = round < stages ? round + 1 : stages;
    dlc_status status = DLC_OK;

    for (uint64_t s = begin; s < end && status == DLC_OK; s++)
        status = run_stage(e, t, t->first + (int32_t)s, round - s);
    if (status != DLC_OK || !must_sync_first(e, t))
        return status;
    status = call_sync(e);
    for (uint64_t s = begin; s < end && status == DLC_OK; s++)
        status = publish_stage(e, t, t->first + (int32_t)s, round - s);
    return status;
}

dlc_status tree_run(dlc_endpoint *e, const call *c) {
    tree t = {.call = c, .chunk = call_chunk(e, c, 1)};
    size_t longest = c->count / (size_t)e->ranks + (c->count % (size_t)e->ranks > 0);

    while (1 << t.levels < e->ranks)
        t.levels++;
    t.first = c->kind == ALL_GATHER ? t.levels : 0;
    t.end = c->kind == REDUCE_SCATTER ? t.levels : 2 * t.levels;
    t.chunks = (longest + t.chunk - 1) / t.chunk;

    dlc_status status = call_enter(e, c, 0, e->ranks);
    uint64_t rounds = t.chunks + (uint64_t)(t.end - t.first) - 1;
    for (uint64_t i = 0; i < rounds && status == DLC_OK; i++)
        status = run_round(e, &t, i);
    if (!c->queue) {
        e->arenas->chunks += t.chunks;
        status = copy_queue_drain(e, &e->arenas->work, status);
    }
    return status == DLC_OK ? call_leave(e, c, 0, e->ranks) : status;
}
