/* See nodes.h. */
#include "comm/nodes.h"

#include <string.h>

#include "base/memory.h"

/* Places may have grown: of each, what both sides know. */
static void copy_places(const dlc_place *from, int32_t ranks, dlc_place *to) {
    for (int32_t r = 0; r < ranks; r++, from = DLC_NEXT(from)) {
        memcpy(&to[r], from, from->size < sizeof *to ? from->size : sizeof *to);
        to[r].size = sizeof *to;
    }
}

static int32_t find_node(const int32_t *key, int32_t count, int32_t wanted) {
    int32_t i = 0;
    while (i < count && key[i] != wanted)
        i++;
    return i;
}

/* Numbers the nodes and counts their ranks: first[i + 1] holds how many node i has. */
static void number_nodes(int32_t *key, dlc_nodes *nodes) {
    for (int32_t r = 0; r < nodes->ranks; r++) {
        int32_t node = find_node(key, nodes->nodes, nodes->place[r].node);
        if (node == nodes->nodes)
            key[nodes->nodes++] = nodes->place[r].node;
        nodes->node[r] = node;
        nodes->local[r] = nodes->first[node + 1]++;
    }
}

static void list_members(dlc_nodes *nodes) {
    nodes->even = 1;
    for (int32_t i = 0; i < nodes->nodes; i++)
        nodes->even &= nodes->first[i + 1] == nodes->first[1];
    for (int32_t i = 0; i < nodes->nodes; i++)
        nodes->first[i + 1] += nodes->first[i];
    for (int32_t r = 0; r < nodes->ranks; r++)
        nodes->member[nodes->first[nodes->node[r]] + nodes->local[r]] = r;
}

dlc_status dlc_nodes_make(const dlc_place *places, int32_t ranks, dlc_nodes *nodes) {
    size_t count = (size_t)ranks;
    int32_t *key = dlc_alloc(count, sizeof *key);
    dlc_nodes made = {.ranks = ranks,
                      .node = dlc_alloc(count, sizeof *made.node),
                      .local = dlc_alloc(count, sizeof *made.local),
                      .member = dlc_alloc(count, sizeof *made.member),
                      .first = dlc_alloc(count + 1, sizeof *made.first),
                      .place = dlc_alloc(count, sizeof *made.place)};
    if (!key || !made.node || !made.local || !made.member || !made.first ||
        !made.place) {
        dlc_free(key);
        dlc_nodes_free(&made);
        return DLC_ERR_NOMEM;
    }
    copy_places(places, ranks, made.place);
    number_nodes(key, &made);
    list_members(&made);
    dlc_free(key);
    *nodes = made;
    return DLC_OK;
}

void dlc_nodes_free(dlc_nodes *nodes) {
    dlc_free(nodes->place);
    dlc_free(nodes->first);
    dlc_free(nodes->member);
    dlc_free(nodes->local);
    dlc_free(nodes->node);
    *nodes = (dlc_nodes){0};
}
