/* Collectives in memory that is not attached and that the processor cannot read: by way
 * of a piece of memory that is. Simple rather than fast: what is large is attached.
 */
#include "p2p.h"

enum { BOUNCE = 4 << 20 /* bytes */ };

dlc_status bounce_open(dlc_endpoint *e) {
    const dlc_transport_args *args = e->args;
    dlc_memory *memory = &e->arenas->bounce;

    if (e->host_memory || e->ranks == 1)
        return DLC_OK;
    memory->size = sizeof *memory;
    dlc_status status = args->device_ops->alloc(args->device, BOUNCE, DLC_MEM_SHARED,
                                                memory);
    return status == DLC_OK ? arenas_attach(e, memory) : status;
}

void bounce_close(dlc_endpoint *e) {
    if (e->arenas->bounce.base)
        e->args->device_ops->free(e->args->device, &e->arenas->bounce);
}

static dlc_status copy(dlc_endpoint *e, float *dst, const float *src, size_t n) {
    const dlc_transport_args *args = e->args;
    dlc_status status = args->device_ops->copy(args->device, e->arenas->queue, dst, src,
                                               n * sizeof *dst);
    return status == DLC_OK ? call_sync(e) : status;
}

/* The bounce is the first arena. */
dlc_status bounce_all_reduce(dlc_endpoint *e, float *buffer, size_t count) {
    const size_t most = BOUNCE / sizeof *buffer;
    dlc_status status = DLC_OK;

    for (size_t at = 0; at < count && status == DLC_OK; at += most) {
        call c = {.kind = ALL_REDUCE, .count = count - at < most ? count - at : most};
        float *mine = arenas_at(e, &c, e->rank, 0);
        status = copy(e, mine, buffer + at, c.count);
        if (status == DLC_OK)
            status = call_run(e, &c);
        if (status == DLC_OK)
            status = copy(e, buffer + at, mine, c.count);
    }
    return status;
}

dlc_status bounce_all_gather(dlc_endpoint *e, float *buffer, size_t count) {
    call c = {.count = count};
    dlc_status status = DLC_OK;

    for (int32_t r = 0; r < e->ranks && status == DLC_OK; r++) {
        size_t begin = call_slice(e, &c, r), end = call_slice(e, &c, r + 1);
        status = staged_broadcast(e, r, buffer + begin, (end - begin) * sizeof *buffer);
    }
    return status;
}
