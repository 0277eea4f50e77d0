/* Measures the bandwidth between machines, makes racks of its clusters, and domains of
 * these. */
#include "session/measured_racks.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "comm/machine_links.h"
#include "comm/nodes.h"
#include "topology/domains.h"

typedef struct racks {
    int32_t *rack;          /* owned; of each rank */
    int32_t count;          /* 0: there are none that are clear */
    double inside, between; /* bytes a second of the slowest pair in a rack, and of the
                               fastest one between two */
} racks;

/* ---- Measuring ------------------------------------------------------------------- */

static void find_extremes(const dlc_machine_links *links, const int32_t *cluster,
                          racks *found) {
    found->inside = INFINITY;
    found->between = 0;
    for (int32_t b = 1; b < links->machines; b++)
        for (int32_t a = 0; a < b; a++) {
            double its = links->bandwidth[a * links->machines + b];
            if (cluster[a] == cluster[b])
                found->inside = fmin(found->inside, its);
            else
                found->between = fmax(found->between, its);
        }
}

static dlc_status make_racks(const dlc_comm_args *how, const dlc_machine_links *links,
                             racks *found) {
    int32_t *cluster = dlc_alloc((size_t)links->machines, sizeof *cluster);
    found->rack = dlc_alloc((size_t)how->ranks, sizeof *found->rack);
    dlc_status status = cluster && found->rack ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = dlc_clusters_find(links->bandwidth, links->machines, cluster,
                                   &found->count);
    if (status == DLC_OK && found->count > 0) {
        find_extremes(links, cluster, found);
        for (int32_t r = 0; r < how->ranks; r++)
            found->rack[r] = cluster[how->rank_info[r].node];
    }
    dlc_free(cluster);
    return status;
}

static dlc_status measure_pairs(const dlc_racks_args *args, dlc_comm **comm,
                                racks *found) {
    dlc_machine_links links = {.machines = 0};
    dlc_job_activity(args->job, "bandwidth", "between machines", 0);
    dlc_status status = dlc_machine_links_measure(args->how, args->device, *comm,
                                                  &links);
    if (status == DLC_OK && links.machines > 0)
        status = make_racks(args->how, &links, found);
    if (status != DLC_OK) {
        dlc_comm_close(*comm);
        *comm = NULL;
    }
    dlc_machine_links_free(&links, args->how, args->device);
    return status;
}

/* ---- Using them ------------------------------------------------------------------ */

/* The hosts of each rack, as the setting has them: "a1 a2 / b1 b2". */
static void list_racks(const dlc_racks_args *args, const racks *found, dlc_text *text) {
    for (int32_t rack = 0; rack < found->count; rack++) {
        int32_t node = -1; /* the ranks of a machine mostly follow each other */
        dlc_text_add(text, "%s", rack ? " /" : "");
        for (int32_t r = 0; r < dlc_job_ranks(args->job); r++) {
            const dlc_rank_info *info = dlc_job_rank_info(args->job, r);
            if (found->rack[r] != rack || info->node == node)
                continue;
            node = info->node;
            dlc_text_add(text, "%s%s", text->length ? " " : "", info->host);
        }
    }
}

static void announce_racks(const dlc_racks_args *args, const racks *found, int used) {
    static const char not_used[] = "; not used, since sums would be in another order, "
                                   "and results must not depend on a measurement; "
                                   "[transport] racks with these hosts uses them";
    dlc_text hosts = {0};
    list_racks(args, found, &hosts);
    dlc_info("racks, by measurement: %s: %.3g GB/s or more inside, %.3g GB/s or less "
             "between%s",
             dlc_text_string(&hosts), found->inside * 1e-9, found->between * 1e-9,
             used ? "" : not_used);
    dlc_text_free(&hosts);
}

/* The order of the sums, by what is known of racks. */
static dlc_status list_merges(const dlc_racks_args *args, dlc_merge *merges) {
    dlc_nodes nodes;
    DLC_TRY(dlc_nodes_make(dlc_job_rank_info(args->job, 0), dlc_job_ranks(args->job),
                           &nodes));
    dlc_nodes_merges(&nodes, merges);
    dlc_nodes_free(&nodes);
    return DLC_OK;
}

static dlc_status set_racks(const dlc_racks_args *args, const int32_t *rack,
                            dlc_domains *domains) {
    dlc_domains_free(domains);
    return dlc_job_find_domains(args->job, args->topo, rack, domains);
}

/* Takes racks that leave the order of the sums as it was. */
static dlc_status use_racks(const dlc_racks_args *args, const racks *found,
                            dlc_domains *domains, int *used) {
    size_t count = (size_t)dlc_job_ranks(args->job) - 1;
    dlc_merge *before = dlc_alloc(count, sizeof *before);
    dlc_merge *after = dlc_alloc(count, sizeof *after);
    dlc_status status = before && after ? list_merges(args, before) : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = set_racks(args, found->rack, domains);
    if (status == DLC_OK)
        status = list_merges(args, after);
    if (status == DLC_OK)
        *used = memcmp(before, after, count * sizeof *after) == 0;
    if (status == DLC_OK && !*used)
        status = set_racks(args, NULL, domains);
    dlc_free(after);
    dlc_free(before);
    return status;
}

dlc_status dlc_racks_measure(const dlc_racks_args *args, dlc_comm **comm,
                             dlc_domains *domains, int *changed) {
    racks found = {.count = 0};
    dlc_status status = measure_pairs(args, comm, &found);
    if (status == DLC_OK && found.count > 0)
        status = use_racks(args, &found, domains, changed);
    if (status == DLC_OK && found.count > 0 && args->how->rank == 0)
        announce_racks(args, &found, *changed);
    dlc_free(found.rack);
    return status;
}
