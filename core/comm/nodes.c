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

/* ---- Levels ---------------------------------------------------------------------- */

int dlc_levels_same_domain(const dlc_rank_info *a, const dlc_rank_info *b,
                           dlc_domain_level level) {
    if (level == DLC_DOMAIN_JOB)
        return 1;
    if (level == DLC_DOMAIN_RACK)
        return a->domain[level] == b->domain[level];
    return a->node == b->node &&
           (level == DLC_DOMAIN_MACHINE || a->domain[level] == b->domain[level]);
}

/* What the levels below leave to a rank. */
typedef struct level_part {
    int32_t shard; /* number of its part of the domain's buffer */
    int goes_on;   /* it takes part in further levels */
} level_part;

static dlc_status allocate_levels(dlc_levels *l) {
    size_t count = (size_t)l->ranks;
    l->order = dlc_alloc(count, sizeof *l->order);
    int complete = l->order != NULL;
    for (int32_t i = 0; i < l->levels; i++) {
        dlc_level *level = &l->level[i];
        level->team = dlc_alloc(count, sizeof *level->team);
        level->position = dlc_alloc(count, sizeof *level->position);
        level->size = dlc_alloc(count, sizeof *level->size);
        level->leads = dlc_alloc(count, sizeof *level->leads);
        complete &= level->team && level->position && level->size && level->leads;
    }
    return complete ? DLC_OK : DLC_ERR_NOMEM;
}

/* Puts a rank into the team of the first rank with the same part, or a team of its own.
 */
static void join_team(const dlc_levels *l, const dlc_rank_info *rank_info,
                      const level_part *parts, dlc_domain_level within,
                      dlc_level *level, int32_t i) {
    int32_t r = l->order[i];
    level->team[r] = r;
    level->size[r] = 1;
    level->position[r] = 0;
    for (int32_t k = 0; k < i; k++) {
        int32_t first = l->order[k];
        if (level->team[first] != first || parts[first].shard != parts[r].shard ||
            !dlc_levels_same_domain(&rank_info[first], &rank_info[r], within))
            continue;
        level->team[r] = first;
        level->position[r] = level->size[first]++;
        return;
    }
}

static void form_teams(const dlc_levels *l, const dlc_rank_info *rank_info,
                       dlc_domain_level within, dlc_level *level, level_part *parts) {
    int32_t size = 0;
    level->even = 1;
    for (int32_t i = 0; i < l->ranks; i++) {
        int32_t r = l->order[i];
        level->team[r] = -1;
        level->leads[r] = parts[r].goes_on && parts[r].shard == 0;
        if (parts[r].goes_on)
            join_team(l, rank_info, parts, within, level, i);
    }
    for (int32_t r = 0; r < l->ranks; r++) {
        if (level->team[r] < 0)
            continue;
        level->size[r] = level->size[level->team[r]];
        level->even &= size == 0 || level->size[r] == size;
        size = level->size[r];
    }
    for (int32_t r = 0; r < l->ranks; r++) {
        if (level->team[r] < 0)
            continue;
        if (level->even)
            parts[r].shard = parts[r].shard * size + level->position[r];
        else
            parts[r].goes_on = level->position[r] == 0;
    }
}

dlc_status dlc_levels_make(const dlc_rank_info *rank_info, int32_t ranks,
                           const dlc_domain_level *within, int32_t levels,
                           dlc_levels *made) {
    dlc_levels l = {.ranks = ranks, .levels = levels};
    if (levels < 1 || levels > DLC_COMM_LEVELS || within[levels - 1] != DLC_DOMAIN_JOB)
        return dlc_fail(DLC_ERR_INTERNAL, "%d levels do not end with all ranks",
                        (int)levels);
    level_part *parts = dlc_alloc((size_t)ranks, sizeof *parts);
    dlc_status status = parts ? allocate_levels(&l) : DLC_ERR_NOMEM;
    if (status != DLC_OK) {
        dlc_levels_free(&l);
        dlc_free(parts);
        return status;
    }
    for (int32_t r = 0; r < ranks; r++)
        parts[r] = (level_part){.goes_on = 1};
    dlc_nodes_sort(rank_info, ranks, l.order);
    for (int32_t i = 0; i < levels; i++)
        form_teams(&l, rank_info, within[i], &l.level[i], parts);
    dlc_free(parts);
    *made = l;
    return DLC_OK;
}

void dlc_levels_free(dlc_levels *levels) {
    for (int32_t i = 0; i < levels->levels; i++) {
        dlc_free(levels->level[i].leads);
        dlc_free(levels->level[i].size);
        dlc_free(levels->level[i].position);
        dlc_free(levels->level[i].team);
    }
    dlc_free(levels->order);
    *levels = (dlc_levels){0};
}

int32_t dlc_levels_team(const dlc_levels *levels, int32_t level, int32_t rank,
                        int32_t *members) {
    const dlc_level *its = &levels->level[level];
    int32_t count = 0;
    for (int32_t i = 0; its->team[rank] >= 0 && i < levels->ranks; i++)
        if (its->team[levels->order[i]] == its->team[rank])
            members[count++] = levels->order[i];
    return count;
}

int dlc_levels_has_shards(const dlc_levels *levels) {
    for (int32_t i = 0; i + 1 < levels->levels; i++)
        if (!levels->level[i].even)
            return 0;
    return 1;
}
