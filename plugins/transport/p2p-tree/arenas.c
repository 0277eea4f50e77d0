/* Attached memory: exported, imported by everybody, and found again. */
#include <inttypes.h>

#include "p2p.h"

/* What a rank tells of the memory that it attaches. */
typedef struct offer {
    dlc_status status; /* of its export */
    dlc_share share;
} offer;

dlc_status arenas_open(dlc_endpoint *e, int tree) {
    e->arenas = host->alloc(sizeof *e->arenas);
    if (!e->arenas)
        return DLC_ERR_NOMEM;
    e->arenas->tree = tree;
    return lane_open(e, &e->arenas->lane);
}

/* Of the ranks' memory, what was imported. */
static void let_go(const dlc_endpoint *e, arena *a) {
    for (int32_t r = 0; a->memory && r < e->ranks; r++)
        if (r != e->rank && a->memory[r].base)
            e->args->device_ops->free(e->args->device, &a->memory[r]);
    host->free(a->memory);
}

void arenas_close(dlc_endpoint *e) {
    arenas *all = e->arenas;
    if (!all)
        return;
    words_close(e);
    lane_close(e, &all->lane);
    for (uint32_t i = 0; i < all->count; i++)
        let_go(e, &all->list[i]);
    bounce_close(e);
    host->free(all->list);
    host->free(all);
    e->arenas = NULL;
}

static dlc_status check_offers(const dlc_endpoint *e, const offer *offers) {
    for (int32_t r = 0; r < e->ranks; r++) {
        if (offers[r].status != DLC_OK)
            return host->fail(offers[r].status,
                              "rank %d could not share the memory to attach", r);
        if (offers[r].share.bytes != offers[e->rank].share.bytes)
            return host->fail(DLC_ERR_CONFIG,
                              "rank %d attaches %" PRIu64 " bytes, rank %d %" PRIu64
                              ": the memory must have one size",
                              r, offers[r].share.bytes, e->rank,
                              offers[e->rank].share.bytes);
    }
    return DLC_OK;
}

static dlc_status import_all(const dlc_endpoint *e, const offer *offers,
                             const dlc_memory *mine, arena *a) {
    const dlc_transport_args *args = e->args;

    a->bytes = mine->bytes;
    a->memory = host->alloc((size_t)e->ranks * sizeof *a->memory);
    if (!a->memory)
        return DLC_ERR_NOMEM;
    a->memory[e->rank] = *mine;
    for (int32_t i = 1; i < e->ranks; i++) {
        int32_t r = (e->rank + i) % e->ranks; /* not all at the same one */
        a->memory[r].size = sizeof a->memory[r];
        dlc_status status = args->device_ops->share_import(
            args->device, &offers[r].share, &a->memory[r]);
        if (status != DLC_OK)
            return status;
    }
    return DLC_OK;
}

/* Everybody's status, so that all of them attach or none; and nobody goes away with
 * what another is about to import. The first that failed, or mine. */
static dlc_status agree(dlc_endpoint *e, dlc_status mine, offer *offers) {
    const dlc_transport_args *args = e->args;
    dlc_status *all = (dlc_status *)(void *)offers; /* room enough */
    dlc_status status = args->allgather(args->job, &mine, sizeof mine, all);

    if (mine != DLC_OK || status != DLC_OK)
        return mine != DLC_OK ? mine : status;
    for (int32_t r = 0; r < e->ranks; r++)
        if (all[r] != DLC_OK)
            return host->fail(all[r], "rank %d could not map the others' memory", r);
    return DLC_OK;
}

/* Makes room for one more. */
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

dlc_status arenas_attach(dlc_endpoint *e, const dlc_memory *memory) {
    const dlc_transport_args *args = e->args;
    offer mine = {.share = {.size = sizeof mine.share}};
    arena a = {0};
    offer *offers = host->alloc((size_t)e->ranks * sizeof *offers);
    dlc_status status = offers ? grow(e->arenas) : DLC_ERR_NOMEM;

    if (status == DLC_OK)
        status = args->device_ops->share_export(args->device, memory, &mine.share);
    mine.status = status;
    if (!offers)
        return status; /* nothing to take part with: the job ends */
    dlc_status met = args->allgather(args->job, &mine, sizeof mine, offers);
    if (status == DLC_OK)
        status = met;
    if (status == DLC_OK)
        status = check_offers(e, offers);
    if (status == DLC_OK)
        status = import_all(e, offers, memory, &a);
    if (met == DLC_OK)
        status = agree(e, status, offers);
    if (status == DLC_OK)
        e->arenas->list[e->arenas->count++] = a;
    else
        let_go(e, &a);
    host->free(offers);
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
