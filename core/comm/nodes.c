/* Groups ranks by their machine. */
#include "comm/nodes.h"

#include <string.h>

#include "base/memory.h"

int32_t dlc_nodes_count(const dlc_rank_info *rank_info, int32_t ranks) {
    int32_t nodes = 0;
    for (int32_t r = 0; r < ranks; r++)
        if (rank_info[r].node >= nodes)
            nodes = rank_info[r].node + 1;
    return nodes;
}

void dlc_nodes_copy_info(const dlc_rank_info *from, int32_t ranks, dlc_rank_info *to) {
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

/* Insertion sort, as most are in order already. */
void dlc_nodes_sort(const dlc_rank_info *rank_info, int32_t ranks, int32_t *sorted) {
    for (int32_t r = 0; r < ranks; r++) {
        int32_t at = r;
        for (; at > 0 && rank_info[sorted[at - 1]].order > rank_info[r].order; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = r;
    }
}

/* Numbers the nodes and counts their ranks: first[i + 1] becomes the count of node i.
 * Nodes of a rack are next to each other, since their ranks are in the order. */
static void number_nodes(const int32_t *sorted, int32_t *key, dlc_nodes *nodes) {
    int32_t rack = 0;
    for (int32_t i = 0; i < nodes->ranks; i++) {
        int32_t r = sorted[i], mine = nodes->rank_info[r].domain[DLC_DOMAIN_RACK];
        int32_t node = find_node(key, nodes->nodes, nodes->rank_info[r].node);
        if (node == nodes->nodes) {
            key[nodes->nodes++] = nodes->rank_info[r].node;
            if (node == 0 || mine != rack)
                nodes->racks++;
            rack = mine;
            nodes->rack[node] = nodes->racks - 1;
        }
        nodes->node[r] = node;
        nodes->local[r] = nodes->first[node + 1]++;
    }
}

static void list_members(dlc_nodes *nodes) {
    for (int32_t i = 0; i < nodes->nodes; i++)
        nodes->first[i + 1] += nodes->first[i];
    for (int32_t r = 0; r < nodes->ranks; r++)
        nodes->member[nodes->first[nodes->node[r]] + nodes->local[r]] = r;
}

dlc_status dlc_nodes_make(const dlc_rank_info *rank_info, int32_t ranks,
                          dlc_nodes *nodes) {
    size_t count = (size_t)ranks;
    int32_t *key = dlc_alloc(2 * count, sizeof *key); /* and the sorted ranks */
    dlc_nodes made = {.ranks = ranks,
                      .node = dlc_alloc(count, sizeof *made.node),
                      .local = dlc_alloc(count, sizeof *made.local),
                      .member = dlc_alloc(count, sizeof *made.member),
                      .first = dlc_alloc(count + 1, sizeof *made.first),
                      .rack = dlc_alloc(count, sizeof *made.rack),
                      .rank_info = dlc_alloc(count, sizeof *made.rank_info)};
    if (!key || !made.node || !made.local || !made.member || !made.first ||
        !made.rack || !made.rank_info) {
        dlc_free(key);
        dlc_nodes_free(&made);
        return DLC_ERR_NOMEM;
    }
    dlc_nodes_copy_info(rank_info, ranks, made.rank_info);
    dlc_nodes_sort(made.rank_info, ranks, key + count);
    number_nodes(key + count, key, &made);
    list_members(&made);
    dlc_free(key);
    *nodes = made;
    return DLC_OK;
}

void dlc_nodes_free(dlc_nodes *nodes) {
    dlc_free(nodes->rank_info);
    dlc_free(nodes->rack);
    dlc_free(nodes->first);
    dlc_free(nodes->member);
    dlc_free(nodes->local);
    dlc_free(nodes->node);
    *nodes = (dlc_nodes){0};
}

static dlc_merge *merge_pairwise(const int32_t *ranks, int32_t count, dlc_merge *to) {
    for (int32_t stride = 1; stride < count; stride *= 2)
        for (int32_t i = 0; i + stride < count; i += 2 * stride)
            *to++ = (dlc_merge){.into = ranks[i], .from = ranks[i + stride]};
    return to;
}

int32_t dlc_nodes_rack_begin(const dlc_nodes *nodes, int32_t rack) {
    int32_t node = 0;
    while (node < nodes->nodes && nodes->rack[node] < rack)
        node++;
    return node;
}

/* The rank that has the sum of a node. */
static int32_t head(const dlc_nodes *nodes, int32_t node) {
    return nodes->member[nodes->first[node]];
}

void dlc_nodes_merges(const dlc_nodes *nodes, dlc_merge *merges) {
    for (int32_t i = 0; i < nodes->nodes; i++)
        merges = merge_pairwise(nodes->member + nodes->first[i],
                                dlc_nodes_size(nodes, i), merges);
    for (int32_t rack = 0; rack < nodes->racks; rack++) {
        int32_t begin = dlc_nodes_rack_begin(nodes, rack);
        int32_t count = dlc_nodes_rack_begin(nodes, rack + 1) - begin;
        for (int32_t stride = 1; stride < count; stride *= 2)
            for (int32_t i = begin; i + stride < begin + count; i += 2 * stride)
                *merges++ = (dlc_merge){head(nodes, i), head(nodes, i + stride)};
    }
    for (int32_t stride = 1; stride < nodes->racks; stride *= 2)
        for (int32_t i = 0; i + stride < nodes->racks; i += 2 * stride)
            *merges++ = (dlc_merge){
                head(nodes, dlc_nodes_rack_begin(nodes, i)),
                head(nodes, dlc_nodes_rack_begin(nodes, i + stride))};
}
