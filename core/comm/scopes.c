/* Lists the groups of a scope, and finds their slowest links in the graph. */
#include "comm/choose.h"

#include <math.h>

#include "base/memory.h"
#include "comm/nodes.h"
#include "topology/route.h"

/* Groups of more ranks are judged by the links of their first rank alone; a slower one
 * between two others would be slow to one of these as well. */
enum { PAIRS_OF = 32 };

static int is_same_domain(const dlc_scopes *s, int32_t a, int32_t b, int32_t level) {
    if (level == DLC_SCOPE_RANKS)
        return a == b;
    return dlc_levels_same_domain(&s->rank_info[a], &s->rank_info[b],
                                  (dlc_domain_level)level);
}

/* ---- Opening ----------------------------------------------------------------- */

/* The number of the first ranks of machines in the rank's rack. */
static int32_t count_nodes(const dlc_scopes *s, int32_t rank) {
    int32_t nodes = 0;
    for (int32_t r = 0; r < s->ranks; r++)
        nodes += s->number[DLC_DOMAIN_MACHINE][r] == 0 &&
                 is_same_domain(s, r, rank, DLC_DOMAIN_RACK);
    return nodes;
}

static void read_network(dlc_scopes *s) {
    const dlc_domains *d = s->args->domains;
    const dlc_topo_speed typical = dlc_topo_typical(DLC_TOPO_NET);
    for (int32_t r = 0; r < s->ranks; r++) {
        const dlc_topo_node *nic = d && d->nic[r] >= 0 ? &s->args->topo->node[d->nic[r]]
                                                       : NULL;
        s->network[r] = typical.bandwidth;
        s->latency[r] = typical.latency;
        if (nic && nic->speed > 0)
            s->network[r] = (double)nic->speed * 1e9;
        if (nic && nic->flags & DLC_TOPO_DIRECT)
            s->latency[r] = DLC_TOPO_RDMA_LATENCY;
        s->rack_nodes[r] = count_nodes(s, r);
        for (int32_t k = 0; k < s->ranks; k++)
            s->sharers[r] += s->rank_info[k].node == s->rank_info[r].node &&
                             (!d || d->nic[k] == d->nic[r]);
    }
}

/* Numbers the ranks within their domains, and counts these. */
static void number_in_domains(dlc_scopes *s) {
    for (int level = 0; level < DLC_DOMAIN_LEVELS; level++) {
        int32_t *number = s->number[level];
        for (int32_t r = 0; r < s->ranks; r++) {
            int32_t mine = s->rank_info[r].order, size = 0;
            for (int32_t k = 0; k < s->ranks; k++) {
                if (!is_same_domain(s, k, r, level))
                    continue;
                int32_t its = s->rank_info[k].order;
                number[r] += its < mine || (its == mine && k < r);
                size++;
            }
            s->domains[level] += number[r] == 0;
            if (r > 0 && size != s->size[level])
                s->uneven |= 1u << level;
            s->size[level] = size;
        }
    }
}

dlc_status dlc_scopes_open(const dlc_choose_args *args, dlc_scopes *scopes) {
    size_t ranks = (size_t)args->group->ranks;
    dlc_scopes s = {.args = args,
                    .ranks = args->group->ranks,
                    .rank_info = dlc_alloc(ranks, sizeof *s.rank_info),
                    .network = dlc_alloc(ranks, sizeof *s.network),
                    .latency = dlc_alloc(ranks, sizeof *s.latency),
                    .sharers = dlc_alloc(ranks, sizeof *s.sharers),
                    .rack_nodes = dlc_alloc(ranks, sizeof *s.rack_nodes),
                    .members = dlc_alloc(ranks, sizeof *s.members),
                    .group = dlc_alloc(ranks, sizeof *s.group)};
    int complete = s.rank_info && s.network && s.latency && s.sharers && s.rack_nodes &&
                   s.members && s.group;
    for (int level = 0; level < DLC_DOMAIN_LEVELS; level++) {
        s.number[level] = dlc_alloc(ranks, sizeof **s.number);
        complete &= s.number[level] != NULL;
    }
    if (!complete) {
        dlc_scopes_close(&s);
        return DLC_ERR_NOMEM;
    }
    dlc_nodes_copy_info(args->group->rank_info, s.ranks, s.rank_info);
    number_in_domains(&s);
    read_network(&s);
    *scopes = s;
    return DLC_OK;
}

void dlc_scopes_close(dlc_scopes *scopes) {
    for (int level = 0; level < DLC_DOMAIN_LEVELS; level++)
        dlc_free(scopes->number[level]);
    dlc_free(scopes->group);
    dlc_free(scopes->members);
    dlc_free(scopes->rack_nodes);
    dlc_free(scopes->sharers);
    dlc_free(scopes->latency);
    dlc_free(scopes->network);
    dlc_free(scopes->rank_info);
    *scopes = (dlc_scopes){0};
}

/* ---- Levels ------------------------------------------------------------------ */

static int32_t count_domains(const dlc_scopes *s, int32_t level) {
    return level == DLC_SCOPE_RANKS ? s->ranks : s->domains[level];
}

/* The number of ranks of each domain of a level; 0: they differ. */
static int32_t even_size(const dlc_scopes *s, int32_t level) {
    if (level == DLC_SCOPE_RANKS)
        return 1;
    return s->uneven >> level & 1 ? 0 : s->size[level];
}

int dlc_scopes_has_level(const dlc_scopes *scopes, int32_t below,
                         dlc_domain_level level) {
    int32_t count = count_domains(scopes, level);
    return count > 1 && count < count_domains(scopes, below);
}

/* Reductions are pairwise over the ranks of a machine. To reduce over equal domains of
 * 2, 4, 8 ... ranks first gives the same sums. */
static int keeps_order(const dlc_scopes *s, dlc_domain_level level) {
    int32_t size = even_size(s, level);
    return level >= DLC_DOMAIN_MACHINE || s->args->any_order ||
           (size > 0 && (size & (size - 1)) == 0);
}

int32_t dlc_scopes_levels(const dlc_scopes *scopes,
                          dlc_domain_level level[DLC_DOMAIN_LEVELS]) {
    int32_t count = 0, before = scopes->ranks;
    int first = scopes->args->domains ? DLC_DOMAIN_DEVICE : DLC_DOMAIN_MACHINE;
    for (int i = first; i < DLC_DOMAIN_JOB; i++) {
        int32_t domains = count_domains(scopes, i);
        if (domains == before || domains == 1 ||
            !keeps_order(scopes, (dlc_domain_level)i))
            continue;
        level[count++] = (dlc_domain_level)i;
        before = domains;
    }
    return count;
}

double dlc_scopes_fraction(const dlc_scopes *scopes, dlc_comm_scope scope) {
    int32_t size = even_size(scopes, scope.below);
    return size > 0 ? 1.0 / size : 1;
}

/* ---- Links ------------------------------------------------------------------- */

static void keep_slower(dlc_topo_speed link, dlc_transport_args *group) {
    group->link_latency = fmax(group->link_latency, link.latency);
    if (!(group->link_bandwidth > 0) || link.bandwidth < group->link_bandwidth)
        group->link_bandwidth = link.bandwidth;
}

/* Ranks that send at once share the adapter of their machine, and the link of their
 * rack to others. That is taken for as fast as one adapter; all racks have the same
 * then. */
static dlc_topo_speed network_of(const dlc_scopes *s, int32_t rank, int to_other_rack,
                                 int sharded) {
    double sharers = sharded ? s->sharers[rank] : 1;
    if (to_other_rack && sharded)
        sharers *= s->rack_nodes[rank];
    return (dlc_topo_speed){s->latency[rank], s->network[rank] / sharers};
}

static void judge_pair(const dlc_scopes *s, int32_t a, int32_t b, int sharded,
                       dlc_transport_args *group) {
    const dlc_choose_args *args = s->args;
    dlc_topo_route route;
    if (s->rank_info[a].node != s->rank_info[b].node) {
        int apart = !is_same_domain(s, a, b, DLC_DOMAIN_RACK);
        keep_slower(network_of(s, a, apart, sharded), group);
        keep_slower(network_of(s, b, apart, sharded), group);
    } else if (!args->domains) {
        keep_slower(dlc_topo_typical(DLC_TOPO_SHM), group);
    } else {
        dlc_topo_route_between(args->topo, args->domains->end[a], args->domains->end[b],
                               &route);
        keep_slower(dlc_topo_path_speed(&route.path), group);
        group->no_peer_access |= route.chosen == DLC_ROUTE_HOST;
    }
}

static void find_slowest_link(const dlc_scopes *s, dlc_comm_scope scope,
                              dlc_transport_args *group) {
    int32_t rows = group->ranks > PAIRS_OF ? 1 : group->ranks;
    int sharded = even_size(s, scope.below) > 0;
    group->link_latency = group->link_bandwidth = 0;
    group->no_peer_access = 0;
    for (int32_t i = 0; i < rows; i++)
        for (int32_t k = i + 1; k < group->ranks; k++)
            judge_pair(s, s->members[i], s->members[k], sharded, group);
}

/* ---- Groups ------------------------------------------------------------------ */

/* The number of a rank in its domain, which is that of its shard. */
static int32_t number_in(const dlc_scopes *s, int32_t rank, int32_t level) {
    return level == DLC_SCOPE_RANKS ? 0 : s->number[level][rank];
}

/* Collects the ranks that have the same shard of the lower domains as this one. Returns
 * 0 if they are collected for an earlier rank, or take no part. */
static int32_t collect_group(dlc_scopes *s, dlc_comm_scope scope, int32_t first) {
    int32_t count = 0, number = number_in(s, first, scope.below);
    if (number > 0 && !even_size(s, scope.below))
        return 0;
    for (int32_t r = 0; r < s->ranks; r++)
        if (is_same_domain(s, r, first, scope.within) &&
            number_in(s, r, scope.below) == number)
            s->members[count++] = r;
    if (s->members[0] != first)
        return 0;
    for (int32_t i = 0; i < count; i++)
        s->group[i] = s->rank_info[s->members[i]];
    return count;
}

int dlc_scopes_next(dlc_scopes *scopes, dlc_comm_scope scope, int32_t *at,
                    dlc_transport_args *group) {
    for (; *at < scopes->ranks; (*at)++) {
        int32_t count = collect_group(scopes, scope, *at);
        if (count < 2)
            continue;
        (*at)++;
        *group = *scopes->args->group;
        group->rank = 0;
        group->ranks = count;
        group->rank_info = scopes->group;
        group->settings = NULL;
        group->oob_all_gather = NULL;
        find_slowest_link(scopes, scope, group);
        return 1;
    }
    return 0;
}
