/* Groups ranks from the innermost level outwards: a level joins domains of the level
 * below. Also finds clusters of machines: where the sorted bandwidths of all pairs have
 * their largest gap, near pairs begin. */
#include "topology/domains.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "topology/route.h"

const char *dlc_domain_text(dlc_domain_level level) {
    static const char *const text[DLC_DOMAIN_LEVELS] = {
        "device",    "NVLink island", "PCIe switch", "host bridge",
        "NUMA node", "machine",       "rack",        "job"};
    return level < DLC_DOMAIN_LEVELS ? text[level] : "?";
}

/* ---- Grouping ---------------------------------------------------------------- */

typedef struct grouping {
    const dlc_topo *topo;
    const int32_t *rack;
    dlc_domains *domains;
} grouping;

static int32_t device_of(const grouping *g, int32_t rank) {
    return dlc_topo_device_of(g->topo, g->domains->end[rank]);
}

static int32_t machine_of(const grouping *g, int32_t rank) {
    return g->topo->node[g->domains->end[rank]].machine;
}

/* The level at which the tree of one machine joins two of its ranks. */
static dlc_domain_level level_of_pair(const grouping *g, int32_t a, int32_t b) {
    static const dlc_domain_level of_class[DLC_TOPO_CLASSES] = {
        [DLC_TOPO_X] = DLC_DOMAIN_DEVICE,    [DLC_TOPO_PIX] = DLC_DOMAIN_SWITCH,
        [DLC_TOPO_PXB] = DLC_DOMAIN_SWITCH,  [DLC_TOPO_PHB] = DLC_DOMAIN_BRIDGE,
        [DLC_TOPO_NODE] = DLC_DOMAIN_NUMA,   [DLC_TOPO_SHM] = DLC_DOMAIN_MACHINE,
        [DLC_TOPO_SYS] = DLC_DOMAIN_MACHINE, [DLC_TOPO_NV] = DLC_DOMAIN_MACHINE,
        [DLC_TOPO_NET] = DLC_DOMAIN_MACHINE};
    const dlc_topo_node *from = &g->topo->node[device_of(g, a)];
    const dlc_topo_node *to = &g->topo->node[device_of(g, b)];
    dlc_topo_path path = dlc_topo_path_in_tree(g->topo, g->domains->end[a],
                                               g->domains->end[b]);
    int one_memory = (from->numa >= 0 && from->numa == to->numa) ||
                     dlc_topo_count(g->topo, from->machine, DLC_TOPO_NUMA) < 2;
    return path.class == DLC_TOPO_SHM && one_memory ? DLC_DOMAIN_NUMA
                                                    : of_class[path.class];
}

static int have_direct_link(const grouping *g, int32_t a, int32_t b) {
    return dlc_topo_path_between(g->topo, g->domains->end[a], g->domains->end[b]).class
           == DLC_TOPO_NV;
}

/* Whether two ranks are together on a level, taken by themselves. */
static int are_together(const grouping *g, int32_t a, int32_t b,
                        dlc_domain_level level) {
    if (level == DLC_DOMAIN_JOB)
        return 1;
    if (machine_of(g, a) != machine_of(g, b))
        return level == DLC_DOMAIN_RACK && g->rack && g->rack[a] == g->rack[b];
    return level >= DLC_DOMAIN_MACHINE || level_of_pair(g, a, b) <= level ||
           (level == DLC_DOMAIN_ISLAND && have_direct_link(g, a, b));
}

/* Whether the domains of two ranks become one on this level. All pairs of an island
 * need a direct link; on the other levels every pair gives the same answer. */
static int are_joined(const grouping *g, const int32_t *domain, int32_t a, int32_t b,
                      dlc_domain_level level) {
    const dlc_domains *d = g->domains;
    if (!are_together(g, a, b, level))
        return 0;
    if (level != DLC_DOMAIN_ISLAND)
        return 1;
    for (int32_t i = 0; i < d->ranks; i++)
        for (int32_t k = 0; domain[i] == domain[a] && k < d->ranks; k++)
            if (domain[k] == domain[b] && !are_together(g, i, k, level))
                return 0;
    return 1;
}

/* Moves the domain of `from` into that of `to`. */
static void move_into(int32_t *domain, int32_t ranks, int32_t from, int32_t to) {
    int32_t old = domain[from], new = domain[to];
    for (int32_t r = 0; r < ranks; r++)
        if (domain[r] == old)
            domain[r] = new;
}

/* Numbers domains in the order of their first ranks. Until then a domain is named by
 * one of its ranks. */
static int32_t number_domains(int32_t *domain, int32_t ranks, int32_t *name) {
    int32_t count = 0;
    for (int32_t r = 0; r < ranks; r++) {
        int32_t i = 0;
        while (i < count && name[i] != domain[r])
            i++;
        if (i == count)
            name[count++] = domain[r];
        domain[r] = i;
    }
    return count;
}

static void group_level(const grouping *g, dlc_domain_level level, int32_t *name) {
    dlc_domains *d = g->domains;
    int32_t *domain = d->domain[level];
    const int32_t *below = level > 0 ? d->domain[level - 1] : NULL;
    for (int32_t r = 0; r < d->ranks; r++)
        domain[r] = below ? below[r] : r;
    for (int32_t b = 1; b < d->ranks; b++)
        for (int32_t a = 0; a < b; a++)
            if (domain[a] != domain[b] && are_joined(g, domain, a, b, level))
                move_into(domain, d->ranks, b, a);
    d->count[level] = number_domains(domain, d->ranks, name);
}

/* ---- The order of the ranks -------------------------------------------------- */

static int is_before(const dlc_domains *d, int32_t a, int32_t b) {
    for (int level = DLC_DOMAIN_JOB; level >= 0; level--)
        if (d->domain[level][a] != d->domain[level][b])
            return d->domain[level][a] < d->domain[level][b];
    return a < b;
}

/* Insertion sort: ranks are mostly in order already. */
static void sort_ranks(dlc_domains *d) {
    for (int32_t r = 0; r < d->ranks; r++) {
        int32_t at = r;
        for (; at > 0 && is_before(d, r, d->order[at - 1]); at--)
            d->order[at] = d->order[at - 1];
        d->order[at] = r;
    }
}

/* ---- Making ------------------------------------------------------------------ */

static dlc_status allocate_domains(int32_t ranks, dlc_domains *d) {
    size_t count = (size_t)ranks;
    d->ranks = ranks;
    d->end = dlc_alloc(count, sizeof *d->end);
    d->order = dlc_alloc(count, sizeof *d->order);
    d->nic = dlc_alloc(count, sizeof *d->nic);
    int complete = d->end && d->order && d->nic;
    for (int level = 0; level < DLC_DOMAIN_LEVELS; level++) {
        d->domain[level] = dlc_alloc(count, sizeof **d->domain);
        complete &= d->domain[level] != NULL;
    }
    return complete ? DLC_OK : DLC_ERR_NOMEM;
}

dlc_status dlc_domains_make(const dlc_topo *topo, const int32_t *end, int32_t ranks,
                            const int32_t *rack, dlc_domains *domains) {
    dlc_domains made = {0};
    grouping g = {topo, rack, &made};
    int32_t *name = dlc_alloc((size_t)ranks, sizeof *name);
    dlc_status status = name ? allocate_domains(ranks, &made) : DLC_ERR_NOMEM;
    if (status != DLC_OK) {
        dlc_domains_free(&made);
        dlc_free(name);
        return status;
    }
    memcpy(made.end, end, (size_t)ranks * sizeof *end);
    for (int level = 0; level < DLC_DOMAIN_LEVELS; level++)
        group_level(&g, (dlc_domain_level)level, name);
    sort_ranks(&made);
    for (int32_t r = 0; r < ranks; r++) {
        dlc_topo_path path;
        made.nic[r] = dlc_topo_route_nic(topo, end[r], &path);
    }
    dlc_free(name);
    *domains = made;
    return DLC_OK;
}

void dlc_domains_free(dlc_domains *domains) {
    for (int level = 0; level < DLC_DOMAIN_LEVELS; level++)
        dlc_free(domains->domain[level]);
    dlc_free(domains->nic);
    dlc_free(domains->order);
    dlc_free(domains->end);
    *domains = (dlc_domains){0};
}

/* Where a machine has more adapters that are equally near than ranks, its ranks use
 * several each, and none is named. */
static int has_own_adapter(const dlc_domains *domains, const dlc_topo *topo,
                           int32_t rank) {
    const int32_t *machine = domains->domain[DLC_DOMAIN_MACHINE];
    int32_t ranks = 0;
    for (int32_t r = 0; r < domains->ranks; r++)
        ranks += machine[r] == machine[rank];
    return domains->nic[rank] >= 0 &&
           ranks >= dlc_topo_route_nics(topo, domains->end[rank]);
}

void dlc_domains_tell(const dlc_domains *domains, const dlc_topo *topo, int32_t rank,
                      dlc_rank_info *info) {
    int32_t nic = domains->nic[rank];
    info->order = 0;
    while (domains->order[info->order] != rank)
        info->order++;
    for (int level = 0; level < DLC_DOMAIN_LEVELS; level++)
        info->domain[level] = domains->domain[level][rank];
    (void)snprintf(info->adapter, sizeof info->adapter, "%.31s",
                   has_own_adapter(domains, topo, rank) ? topo->node[nic].name : "");
}

int dlc_domains_differ(const dlc_domains *domains, dlc_domain_level level) {
    return domains->count[level] !=
           (level > 0 ? domains->count[level - 1] : domains->ranks);
}

/* ---- Text -------------------------------------------------------------------- */

/* Appends the ranks that `is_in` selects, in their order: "0-3 5". */
static void add_rank_ranges(const dlc_domains *d, const int32_t *domain, int32_t wanted,
                            dlc_text *text) {
    const char *between = "";
    for (int32_t r = 0; r < d->ranks; r++) {
        if (domain[r] != wanted)
            continue;
        int32_t last = r;
        while (last + 1 < d->ranks && domain[last + 1] == wanted)
            last++;
        if (last > r)
            dlc_text_add(text, "%s%d-%d", between, (int)r, (int)last);
        else
            dlc_text_add(text, "%s%d", between, (int)r);
        between = " ";
        r = last;
    }
}

static int is_sorted(const dlc_domains *d) {
    for (int32_t r = 0; r < d->ranks; r++)
        if (d->order[r] != r)
            return 0;
    return 1;
}

/* "mlx5_0 PIX": an adapter, and how it is reached. */
static void name_adapter(const dlc_domains *d, const dlc_topo *topo, int32_t rank,
                         char text[48]) {
    char label[32], class[8];
    (void)snprintf(text, 48, "none known");
    if (d->nic[rank] < 0)
        return;
    dlc_topo_path path = dlc_topo_path_between(topo, d->end[rank], d->nic[rank]);
    dlc_topo_label(topo, d->nic[rank], label, sizeof label);
    dlc_topo_path_text(&path, class);
    (void)snprintf(text, 48, "%s %s", label, class);
}

/* A job of one machine that computes on its cores does not look for them. */
static int has_adapters(const dlc_domains *d) {
    for (int32_t r = 0; r < d->ranks; r++)
        if (d->nic[r] >= 0)
            return 1;
    return 0;
}

/* A line for consecutive ranks with the same adapter at the same distance. */
static void add_adapters(const dlc_domains *d, const dlc_topo *topo, dlc_text *text) {
    char mine[48], next[48];
    dlc_text_add(text, "nearest adapters of ranks:\n");
    for (int32_t r = 0, last; r < d->ranks; r = last + 1) {
        name_adapter(d, topo, r, mine);
        for (last = r; last + 1 < d->ranks; last++) {
            name_adapter(d, topo, last + 1, next);
            if (strcmp(mine, next) != 0)
                break;
        }
        if (last > r)
            dlc_text_add(text, "    %-14s %d-%d\n", mine, (int)r, (int)last);
        else
            dlc_text_add(text, "    %-14s %d\n", mine, (int)r);
    }
}

void dlc_domains_text(const dlc_domains *domains, const dlc_topo *topo,
                      dlc_text *text) {
    const dlc_domains *d = domains;
    dlc_text_add(text, "domains of ranks:\n");
    for (int level = 0; level < DLC_DOMAIN_LEVELS; level++) {
        if (!dlc_domains_differ(d, (dlc_domain_level)level))
            continue;
        dlc_text_add(text, "    %-14s", dlc_domain_text((dlc_domain_level)level));
        for (int32_t i = 0; i < d->count[level]; i++) {
            dlc_text_add(text, " [");
            add_rank_ranges(d, d->domain[level], i, text);
            dlc_text_add(text, "]");
        }
        dlc_text_add(text, "\n");
    }
    if (!is_sorted(d)) {
        dlc_text_add(text, "    nearest first ");
        for (int32_t r = 0; r < d->ranks; r++)
            dlc_text_add(text, " %d", (int)d->order[r]);
        dlc_text_add(text, "\n");
    }
    if (has_adapters(d))
        add_adapters(d, topo, text);
}

/* ---- Clusters ---------------------------------------------------------------------
 */

#define GAP_LEAST 2.0

typedef struct links {
    const double *bandwidth;
    int32_t machines;
    double far; /* the bandwidth of the fastest far pair */
} links;

static double between(const links *l, int32_t a, int32_t b) {
    return l->bandwidth[(size_t)a * (size_t)l->machines + (size_t)b];
}

static int are_near(const links *l, int32_t a, int32_t b) {
    return between(l, a, b) > l->far;
}

static int compare_bandwidths(const void *a_, const void *b_) {
    const double *a = a_, *b = b_;
    return (*a > *b) - (*a < *b);
}

/* Whether there is a gap. */
static dlc_status find_gap(links *l, int *found) {
    size_t pairs = 0, count = (size_t)l->machines;
    double gap = 0, *sorted = dlc_alloc(count * count, sizeof *sorted);
    if (!sorted)
        return DLC_ERR_NOMEM;
    for (int32_t b = 1; b < l->machines; b++)
        for (int32_t a = 0; a < b; a++)
            sorted[pairs++] = between(l, a, b);
    qsort(sorted, pairs, sizeof *sorted, compare_bandwidths);
    for (size_t i = 0; i + 1 < pairs; i++)
        if (sorted[i + 1] > gap * sorted[i]) {
            gap = sorted[i + 1] / sorted[i];
            l->far = sorted[i];
        }
    dlc_free(sorted);
    *found = gap >= GAP_LEAST;
    return DLC_OK;
}

/* Puts each machine to the first one that is near. */
static int32_t number_clusters(const links *l, int32_t *cluster) {
    int32_t clusters = 0;
    for (int32_t b = 0; b < l->machines; b++) {
        int32_t a = 0;
        while (a < b && !are_near(l, a, b))
            a++;
        cluster[b] = a < b ? cluster[a] : clusters++;
    }
    return clusters;
}

/* Whether the near pairs are those within clusters, and no machine is alone. */
static int are_clear(const links *l, const int32_t *cluster) {
    for (int32_t b = 0; b < l->machines; b++) {
        int alone = 1;
        for (int32_t a = 0; a < l->machines; a++) {
            if (a == b)
                continue;
            if (are_near(l, a, b) != (cluster[a] == cluster[b]))
                return 0;
            alone &= cluster[a] != cluster[b];
        }
        if (alone)
            return 0;
    }
    return 1;
}

dlc_status dlc_clusters_find(const double *bandwidth, int32_t machines,
                             int32_t *cluster, int32_t *clusters) {
    links l = {.bandwidth = bandwidth, .machines = machines};
    int found = 0;
    *clusters = 0;
    DLC_TRY(find_gap(&l, &found));
    if (!found)
        return DLC_OK;
    int32_t count = number_clusters(&l, cluster);
    if (count > 1 && are_clear(&l, cluster))
        *clusters = count;
    return DLC_OK;
}
