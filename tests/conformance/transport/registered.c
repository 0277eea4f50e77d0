/* Registers buffers of all ranks, and runs a test on every transport that supports it.
 */
#include "registered.h"

#include <check.h>
#include <string.h>

#include "shadow.h"

/* Settings of p2p-tree, which has several schedules. */
static const char *const direct[] = {"schedule=direct", NULL};
static const char *const tree[] = {"schedule=tree", NULL};
static const char *const tree_in_bits[] = {"schedule=tree", "chunk_bytes=64", NULL};
/* For a device whose queue is waited for after each chunk. */
static const char *const tree_in_pieces[] = {"schedule=tree", "chunk_bytes=4K", NULL};
static const char *const asleep[] = {"schedule=tree", "spin_us=0", NULL};
const group_kind registered_settings[REGISTERED_SETTINGS] = {{"p2p-tree", direct},
                                                             {"p2p-tree", tree},
                                                             {"p2p-tree", tree_in_bits},
                                                             {"p2p-tree", asleep}};

void registered_run(const group_kind *kind, int ranks, uint64_t lost, rank_body *body) {
    const char *how = kind->sets ? kind->sets[0] : "";
    ck_assert_msg(ranks_run_losing(ranks, 60, lost, body, (void *)kind) == 0,
                  "%s %s, %d ranks", kind->transport, how, ranks);
}

void registered_run_all(int ranks, uint64_t lost, rank_body *body) {
    const char *name;

    for (int i = 0; i < REGISTERED_SETTINGS; i++) {
        group_kind kind = registered_settings[i];
        if (kind.sets == tree_in_bits && group_has_device_memory())
            kind.sets = tree_in_pieces;
        registered_run(&kind, ranks, lost, body);
    }
    for (size_t i = 0; (name = group_transport(i)) != NULL; i++) {
        const dlc_feature *feature = plugin_find(DLC_KIND_TRANSPORT, name);
        const dlc_transport_ops *ops = feature->ops;
        group_kind kind = {name, NULL};
        if (DLC_CAN(ops, register_buffer) &&
            strcmp(name, registered_settings[0].transport) != 0)
            registered_run(&kind, ranks, lost, body);
    }
    plugins_close();
}

float *register_floats(group *g, size_t count, dlc_memory *memory) {
    *memory = (dlc_memory){.size = sizeof *memory};
    RANK_OK(g->rank, g->device_ops->alloc(g->device, count * sizeof(float),
                                          DLC_MEM_SHARED, memory));
    RANK_OK(g->rank, g->ops->register_buffer(g->endpoint, memory));
    return g->device_memory ? shadow_registered(g, memory) : memory->base;
}

/* The endpoint is closed first: it may have the memory mapped or registered. */
void registered_finish(group *g, dlc_memory *one, dlc_memory *two) {
    g->ops->close(g->endpoint);
    g->endpoint = NULL;
    shadows_free(g);
    g->device_ops->free(g->device, one);
    if (two)
        g->device_ops->free(g->device, two);
    group_close(g);
}

int registered_is_pairwise(const group *g) {
    const dlc_feature *feature;
    for (size_t i = 0; (feature = plugin_at(DLC_KIND_TRANSPORT, i)) != NULL; i++)
        if (feature->ops == g->ops)
            return (feature->caps & DLC_TRANSPORT_PAIRWISE) != 0;
    return 0;
}
