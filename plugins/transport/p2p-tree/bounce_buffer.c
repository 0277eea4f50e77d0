/* All-reduce of memory that is not registered and that the CPU cannot read, through a
 * registered bounce buffer. Simple rather than fast: large buffers are registered. */
#include "p2p.h"

dlc_status bounce_open(dlc_endpoint *e) {
    const dlc_transport_args *args = e->args;
    dlc_memory *memory = &e->arenas->bounce;

    if (e->host_memory || e->ranks == 1)
        return DLC_OK;
    memory->size = sizeof *memory;
    dlc_status status = args->device_ops->alloc(args->device, BOUNCE_BYTES,
                                                DLC_MEM_SHARED, memory);
    return status == DLC_OK ? arenas_register(e, memory) : status;
}

void bounce_close(dlc_endpoint *e) {
    if (e->arenas->bounce.base)
        e->args->device_ops->free(e->args->device, &e->arenas->bounce);
}

static dlc_status copy(dlc_endpoint *e, float *dst, const float *src, size_t n) {
    return copy_queue_add(e, &e->arenas->work, dst, src, n * sizeof *dst);
}

/* The bounce buffer is the first arena. */
dlc_status bounce_all_reduce(dlc_endpoint *e, float *buffer, size_t count) {
    const size_t most = BOUNCE_BYTES / sizeof *buffer;
    dlc_status status = DLC_OK;

    for (size_t at = 0; at < count && status == DLC_OK; at += most) {
        call c = {.kind = ALL_REDUCE, .count = count - at < most ? count - at : most};
        float *mine = arenas_at(e, &c, e->rank, 0);
        status = copy(e, mine, buffer + at, c.count);
        if (status == DLC_OK) /* before the other ranks read it */
            status = call_sync(e);
        if (status == DLC_OK)
            status = call_run(e, &c);
        if (status == DLC_OK)
            status = copy(e, buffer + at, mine, c.count);
    }
    return call_finish(e, &(call){.kind = ALL_REDUCE}, status);
}
