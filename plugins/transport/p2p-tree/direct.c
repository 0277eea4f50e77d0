/* The direct schedule: each rank reduces its own slice of all ranks' buffers, chunk by
 * chunk, and stores it to all of them while it is in the cache. A device with queues is
 * given all chunks, and waited for once. Each byte of each arena is read once and
 * written once; ranks wait for each other only at the beginning and at the end. */
#include "p2p.h"

/* Reduces a chunk of this rank's slice into all ranks' arenas (or only into its own).
 */
static dlc_status sum_chunk(dlc_endpoint *e, const call *c, size_t at, size_t n) {
    for (int32_t i = 0; i < e->ranks; i++) {
        int32_t r = (e->rank + i) % e->ranks;
        e->targets[i] = arenas_at(e, c, r, at);
        e->sources[r] = e->targets[i];
    }
    return sum_to(e, call_queue(e, c), n, c->kind == ALL_REDUCE ? e->ranks : 1);
}

dlc_status direct_reduce(dlc_endpoint *e, const call *c) {
    size_t at = call_slice(e, c, e->rank), end = call_slice(e, c, e->rank + 1);
    size_t chunk = call_chunk(e, c, 0);
    dlc_status status = call_enter(e, c, 0, e->ranks);

    for (; at < end && status == DLC_OK; at += chunk) {
        status = sum_chunk(e, c, at, end - at < chunk ? end - at : chunk);
        if (status == DLC_OK)
            status = e->args->check(e->args->job);
    }
    status = call_finish(e, c, status);
    return status == DLC_OK ? call_leave(e, c, 0, e->ranks) : status;
}

/* Copies from rank `source` to this rank: elements (in a broadcast bytes) at .. end-1.
 */
static dlc_status fetch(dlc_endpoint *e, const call *c, int32_t source, size_t at,
                        size_t end) {
    const dlc_transport_args *args = e->args;
    size_t unit = c->kind == BROADCAST ? 1 : sizeof(float);
    size_t from = at * unit, to = end * unit,
           chunk = call_chunk(e, c, 0) * sizeof(float);
    char *mine = (char *)arenas_at(e, c, e->rank, 0);
    const char *its = (const char *)arenas_at(e, c, source, 0);
    dlc_status status = DLC_OK;

    for (; from < to && status == DLC_OK; from += chunk) {
        status = args->device_ops->copy(args->device, call_queue(e, c), mine + from,
                                        its + from,
                                        to - from < chunk ? to - from : chunk);
        if (status == DLC_OK)
            status = args->check(args->job);
    }
    return status;
}

dlc_status direct_gather(dlc_endpoint *e, const call *c) {
    dlc_status status = call_enter(e, c, 0, e->ranks);

    for (int32_t i = 1; i < e->ranks && status == DLC_OK; i++) {
        int32_t r = (e->rank + i) % e->ranks; /* each rank starts with another one */
        status = fetch(e, c, r, call_slice(e, c, r), call_slice(e, c, r + 1));
    }
    status = call_finish(e, c, status);
    return status == DLC_OK ? call_leave(e, c, 0, e->ranks) : status;
}

/* The other ranks wait only for the root; the root waits for all of them. */
dlc_status direct_broadcast(dlc_endpoint *e, const call *c, int32_t root) {
    int is_root = e->rank == root;
    dlc_status status = call_enter(e, c, root, root + 1);

    if (status == DLC_OK && !is_root)
        status = fetch(e, c, root, 0, c->count);
    if (!is_root)
        status = call_finish(e, c, status);
    if (status == DLC_OK)
        status = call_leave(e, c, 0, is_root ? e->ranks : 0);
    return status;
}

/* Elements of a range updated at a time: long enough for streaming stores to pay, short
 * enough between two calls of args->check. */
enum { UPDATE_PIECE = 1 << 20 };

/* Updates all ranks' weights from the gradients, which are reduced here unless they are
 * already. */
static dlc_status update_piece(dlc_endpoint *e, const update *u,
                               const dlc_update_range *step, size_t at, size_t n) {
    const dlc_transport_args *args = e->args;
    float *slots[DLC_MAX_SLOTS];
    for (int k = 0; k < DLC_MAX_SLOTS; k++)
        slots[k] = step->slots[k] ? step->slots[k] + at : NULL;
    for (int32_t i = 0; i < e->ranks; i++) {
        int32_t r = (e->rank + i) % e->ranks;
        e->sources[r] = arenas_at(e, &u->gradients, r, step->begin + at);
        e->targets[i] = arenas_at(e, &u->weights, r, step->begin + at);
    }
    return args->device_ops->update_to(
        args->device, NULL, n, step->update, e->sources + (u->is_reduced ? e->rank : 0),
        u->is_reduced ? 1 : e->ranks, slots, e->targets, e->ranks);
}

static dlc_status update_step(dlc_endpoint *e, const update *u,
                              const dlc_update_range *step) {
    dlc_status status = DLC_OK;
    for (size_t at = 0; at < step->count && status == DLC_OK; at += UPDATE_PIECE) {
        size_t left = step->count - at;
        status = update_piece(e, u, step, at,
                              left < UPDATE_PIECE ? left : UPDATE_PIECE);
        if (status == DLC_OK)
            status = e->args->check(e->args->job);
    }
    return status;
}

dlc_status direct_update(dlc_endpoint *e, const update *u) {
    const dlc_update_range *step = u->steps;
    dlc_status status = call_enter(e, &u->gradients, 0, e->ranks);

    for (int32_t i = 0; i < u->count && status == DLC_OK; i++, step = DLC_NEXT(step))
        status = update_step(e, u, step);
    return status == DLC_OK ? call_leave(e, &u->gradients, 0, e->ranks) : status;
}
