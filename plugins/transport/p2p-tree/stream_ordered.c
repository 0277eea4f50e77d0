/* Stream-ordered collectives: work for a queue of the device, by the same schedules as
 * the blocking ones, whose steps wait for each other in the queues (semaphores.c). They
 * return at once, and may be captured. */
#include "p2p.h"

enum { BOUNCE_FLOATS = BOUNCE_BYTES / sizeof(float) };

static dlc_status copy(const dlc_endpoint *e, dlc_queue *order, float *dst,
                       const float *src, size_t n) {
    const dlc_transport_args *args = e->args;
    if (n == 0)
        return DLC_OK;
    return args->device_ops->copy(args->device, order, dst, src, n * sizeof *dst);
}

/* ---- Memory that is not registered: through the bounce buffer ------------ */

/* The bounce buffer, with at most BOUNCE_FLOATS. All ranks have left it before it is
 * filled again. */
static call in_bounce(call_kind kind, dlc_queue *order, size_t floats) {
    return (call){.kind = kind, .queue = order, .count = floats};
}

/* Each piece is reduced as a whole, however the buffer is cut into slices. */
static dlc_status bounce_reduce(dlc_endpoint *e, dlc_queue *order, float *buffer,
                                size_t count) {
    dlc_status status = DLC_OK;
    for (size_t at = 0; at < count && status == DLC_OK; at += BOUNCE_FLOATS) {
        size_t left = count - at;
        call c = in_bounce(ALL_REDUCE, order,
                           left < BOUNCE_FLOATS ? left : BOUNCE_FLOATS);
        float *mine = arenas_at(e, &c, e->rank, 0);
        status = copy(e, order, mine, buffer + at, c.count);
        if (status == DLC_OK)
            status = call_run(e, &c);
        if (status == DLC_OK)
            status = copy(e, order, buffer + at, mine, c.count);
    }
    return status;
}

/* Slices of equal size in the bounce buffer; a rank's own may fill part of one. */
static dlc_status gather_piece(dlc_endpoint *e, dlc_queue *order, float *buffer,
                               const call *whole, size_t at, size_t room) {
    call c = in_bounce(ALL_GATHER, order, room * (size_t)e->ranks);
    dlc_status status = DLC_OK;
    for (int32_t i = -1; i < e->ranks && status == DLC_OK; i++) {
        int32_t r = i < 0 ? e->rank : i; /* this rank's slice is copied in first */
        size_t begin = call_slice(e, whole, r) + at, end = call_slice(e, whole, r + 1);
        size_t left = begin < end ? end - begin : 0, n = left < room ? left : room;
        float *there = arenas_at(e, &c, e->rank, call_slice(e, &c, r));
        if (i < 0) {
            status = copy(e, order, there, buffer + begin, n);
            if (status == DLC_OK)
                status = call_run(e, &c);
        } else if (r != e->rank) {
            status = copy(e, order, buffer + begin, there, n);
        }
    }
    return status;
}

static dlc_status bounce_gather(dlc_endpoint *e, dlc_queue *order, float *buffer,
                                size_t count) {
    call whole = {.count = count};
    size_t ranks = (size_t)e->ranks, longest = count / ranks + (count % ranks > 0);
    size_t room = BOUNCE_FLOATS / ranks;
    dlc_status status = DLC_OK;
    if (longest < room)
        room = longest;
    for (size_t at = 0; at < longest && status == DLC_OK; at += room)
        status = gather_piece(e, order, buffer, &whole, at, room);
    return status;
}

/* ---- Transport operations ------------------------------------------------ */

static dlc_status run(dlc_endpoint *e, dlc_queue *order, call_kind kind, float *buffer,
                      size_t count) {
    call c = {.kind = kind, .count = count, .queue = order};
    if (e->ranks == 1 || count == 0)
        return DLC_OK;
    if (!e->arenas->semaphores || !order)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "p2p-tree has no stream-ordered collectives on this device");
    if (arenas_find(e, buffer, count * sizeof *buffer, &c))
        return call_run(e, &c);
    return kind == ALL_GATHER ? bounce_gather(e, order, buffer, count)
                              : bounce_reduce(e, order, buffer, count);
}

dlc_status queue_all_reduce(dlc_endpoint *e, dlc_queue *order, float *buffer,
                            size_t count) {
    return run(e, order, ALL_REDUCE, buffer, count);
}

dlc_status queue_reduce_scatter(dlc_endpoint *e, dlc_queue *order, float *buffer,
                                size_t count) {
    return run(e, order, REDUCE_SCATTER, buffer, count);
}

dlc_status queue_all_gather(dlc_endpoint *e, dlc_queue *order, float *buffer,
                            size_t count) {
    return run(e, order, ALL_GATHER, buffer, count);
}

dlc_status supports_queues(dlc_endpoint *e, int *may) {
    *may = e->arenas->semaphores != NULL;
    return DLC_OK;
}
