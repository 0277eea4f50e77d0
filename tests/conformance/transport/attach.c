#include "attach.h"

#include <check.h>
#include <string.h>

#include "shadow.h"

/* What is under test: every transport that attaches memory, in every way it may. */
static const char *const direct[] = {"schedule=direct", NULL};
static const char *const tree[] = {"schedule=tree", NULL};
static const char *const tree_in_bits[] = {"schedule=tree", "chunk_bytes=64", NULL};
/* Of a device whose queue is waited for after each. */
static const char *const tree_in_pieces[] = {"schedule=tree", "chunk_bytes=4K", NULL};
static const char *const asleep[] = {"schedule=tree", "spin_us=0", NULL};
const group_kind attach_ways[ATTACH_WAYS] = {{"p2p-tree", direct},
                                             {"p2p-tree", tree},
                                             {"p2p-tree", tree_in_bits},
                                             {"p2p-tree", asleep}};

void attach_run(const group_kind *kind, int ranks, uint64_t lost, rank_body *body) {
    const char *how = kind->sets ? kind->sets[0] : "";
    ck_assert_msg(ranks_run_losing(ranks, 60, lost, body, (void *)kind) == 0,
                  "%s %s, %d ranks", kind->transport, how, ranks);
}

void attach_run_all(int ranks, uint64_t lost, rank_body *body) {
    const char *name;

    for (int i = 0; i < ATTACH_WAYS; i++) {
        group_kind kind = attach_ways[i];
        if (kind.sets == tree_in_bits && group_is_far())
            kind.sets = tree_in_pieces;
        attach_run(&kind, ranks, lost, body);
    }
    for (size_t i = 0; (name = group_transport(i)) != NULL; i++) {
        const dlc_feature *feature = plugin_find(DLC_KIND_TRANSPORT, name);
        const dlc_transport_ops *ops = feature->ops;
        group_kind kind = {name, NULL};
        if (DLC_CAN(ops, attach) && strcmp(name, attach_ways[0].transport) != 0)
            attach_run(&kind, ranks, lost, body);
    }
    plugins_close();
}

float *attach(group *g, size_t count, dlc_memory *memory) {
    *memory = (dlc_memory){.size = sizeof *memory};
    RANK_OK(g->rank, g->device_ops->alloc(g->device, count * sizeof(float),
                                          DLC_MEM_SHARED, memory));
    RANK_OK(g->rank, g->ops->attach(g->endpoint, memory));
    return g->far ? shadow_attached(g, memory) : memory->base;
}

/* The endpoint goes first: it may have the memory mapped, or known to an adapter. */
void attach_finish(group *g, dlc_memory *one, dlc_memory *two) {
    g->ops->close(g->endpoint);
    g->endpoint = NULL;
    shadows_free(g);
    g->device_ops->free(g->device, one);
    if (two)
        g->device_ops->free(g->device, two);
    group_close(g);
}

int attach_is_pairwise(const group *g) {
    const dlc_feature *feature;
    for (size_t i = 0; (feature = plugin_at(DLC_KIND_TRANSPORT, i)) != NULL; i++)
        if (feature->ops == g->ops)
            return (feature->caps & DLC_TRANSPORT_PAIRWISE) != 0;
    return 0;
}
