/* Registered memory: exported, imported by all ranks, and looked up by address. */
#include <inttypes.h>

#include "p2p.h"

/* What a rank sends about the memory that it registers. */
typedef struct exported_memory {
    dlc_status status; /* of its export */
    dlc_ipc_handle share;
} exported_memory;

dlc_status arenas_open(dlc_endpoint *e, int tree) {
    e->arenas = host->alloc(sizeof *e->arenas);
    if (!e->arenas)
        return DLC_ERR_NOMEM;
    e->arenas->tree = tree;
    return copy_queue_open(e, &e->arenas->work);
}

/* Frees the mappings of the other ranks' memory. */
static void release_imports(const dlc_endpoint *e, arena *a) {
    for (int32_t r = 0; a->memory && r < e->ranks; r++)
        if (r != e->rank && a->memory[r].base)
            e->args->device_ops->free(e->args->device, &a->memory[r]);
    host->free(a->memory);
}

void arenas_close(dlc_endpoint *e) {
    arenas *all = e->arenas;
    if (!all)
        return;
    semaphores_close(e);
    copy_queue_close(e, &all->work);
    for (uint32_t i = 0; i < all->count; i++)
        release_imports(e, &all->list[i]);
    bounce_close(e);
    host->free(all->list);
    host->free(all);
    e->arenas = NULL;
}

static dlc_status check_exports(const dlc_endpoint *e, const exported_memory *exports) {
    for (int32_t r = 0; r < e->ranks; r++) {
        if (exports[r].status != DLC_OK)
            return host->fail(exports[r].status,
                              "rank %d could not export the memory to register", r);
        if (exports[r].share.bytes != exports[e->rank].share.bytes)
            return host->fail(DLC_ERR_CONFIG,
                              "rank %d registers %" PRIu64 " bytes, rank %d %" PRIu64
                              ": the memory must have one size",
                              r, exports[r].share.bytes, e->rank,
                              exports[e->rank].share.bytes);
    }
    return DLC_OK;
}

static dlc_status import_all(const dlc_endpoint *e, const exported_memory *exports,
                             const dlc_memory *mine, arena *a) {
    const dlc_transport_args *args = e->args;

    a->bytes = mine->bytes;
    a->memory = host->alloc((size_t)e->ranks * sizeof *a->memory);
    if (!a->memory)
        return DLC_ERR_NOMEM;
    a->memory[e->rank] = *mine;
    for (int32_t i = 1; i < e->ranks; i++) {
        int32_t r = (e->rank + i) % e->ranks; /* each rank starts with another one */
        a->memory[r].size = sizeof a->memory[r];
        dlc_status status = args->device_ops->ipc_import(
            args->device, &exports[r].share, &a->memory[r]);
        if (status != DLC_OK)
            return status;
    }
    return DLC_OK;
}

/* Exchanges statuses, so that all ranks register the memory or none does, and no rank
 * exits before the others have imported its memory. Returns this rank's error, or the
 * first of another's. */
static dlc_status agree(dlc_endpoint *e, dlc_status mine, exported_memory *exports) {
    const dlc_transport_args *args = e->args;
    dlc_status *all = (dlc_status *)(void *)exports; /* large enough */
    dlc_status status = args->oob_all_gather(args->job, &mine, sizeof mine, all);

    if (mine != DLC_OK || status != DLC_OK)
        return mine != DLC_OK ? mine : status;
    for (int32_t r = 0; r < e->ranks; r++)
        if (all[r] != DLC_OK)
            return host->fail(all[r], "rank %d could not map the others' memory", r);
    return DLC_OK;
}

/* Makes room for one more arena. */
static dlc_status grow(arenas *all) {
    arena *list = host->alloc((all->count + 1) * sizeof *list);
    if (!list)
        return DLC_ERR_NOMEM;
    for (uint32_t i = 0; i < all->count; i++)
        list[i] = all->list[i];
    host->free(all->list);
    all->list = list;
    return DLC_OK;
}

dlc_status arenas_register(dlc_endpoint *e, const dlc_memory *memory) {
    const dlc_transport_args *args = e->args;
    exported_memory mine = {.share = {.size = sizeof mine.share}};
    arena a = {0};
    exported_memory *exports = host->alloc((size_t)e->ranks * sizeof *exports);
    dlc_status status = exports ? grow(e->arenas) : DLC_ERR_NOMEM;

    if (status == DLC_OK)
        status = args->device_ops->ipc_export(args->device, memory, &mine.share);
    mine.status = status;
    if (!exports)
        return status; /* cannot take part in the exchange: the job ends */
    dlc_status gathered = args->oob_all_gather(args->job, &mine, sizeof mine, exports);
    if (status == DLC_OK)
        status = gathered;
    if (status == DLC_OK)
        status = check_exports(e, exports);
    if (status == DLC_OK)
        status = import_all(e, exports, memory, &a);
    if (gathered == DLC_OK)
        status = agree(e, status, exports);
    if (status == DLC_OK)
        e->arenas->list[e->arenas->count++] = a;
    else
        release_imports(e, &a);
    host->free(exports);
    return status;
}

int arenas_find(const dlc_endpoint *e, const void *buffer, size_t bytes, call *place) {
    const arenas *all = e->arenas;

    for (uint32_t i = 0; i < all->count; i++) {
        uintptr_t base = (uintptr_t)all->list[i].memory[e->rank].base;
        uintptr_t at = (uintptr_t)buffer;
        if (at < base || at - base > all->list[i].bytes ||
            bytes > all->list[i].bytes - (at - base))
            continue;
        place->arena = i;
        place->offset = at - base;
        return 1;
    }
    return 0;
}

float *arenas_at(const dlc_endpoint *e, const call *place, int32_t rank, size_t at) {
    const dlc_memory *memory = &e->arenas->list[place->arena].memory[rank];
    return (float *)(void *)((char *)memory->base + place->offset) + at;
}
