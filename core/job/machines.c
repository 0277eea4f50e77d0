/* Gathers the packed graphs of machines, padded to the longest. */
#include "job/machines.h"

#include <string.h>

#include "base/memory.h"
#include "job/rank/rank.h"
#include "topology/discover.h"
#include "topology/graph.h"

dlc_status dlc_job_machine(const dlc_job *job, dlc_topo *machine) {
    const dlc_topo *known = dlc_rank_machine(job);
    unsigned char *bytes = NULL;
    size_t size = 0;
    if (!known || !known->nodes)
        return DLC_OK;
    DLC_TRY(dlc_topo_pack(known, &bytes, &size));
    dlc_status status = dlc_topo_unpack(bytes, size, machine);
    dlc_free(bytes);
    return status;
}

/* Adds the graph received from one rank, which must be one machine. */
static dlc_status add_machine(const void *bytes, size_t size, dlc_topo *all) {
    size_t before = dlc_topo_count(all, -1, DLC_TOPO_MACHINE);
    DLC_TRY(dlc_topo_unpack(bytes, size, all));
    if (dlc_topo_count(all, -1, DLC_TOPO_MACHINE) != before + 1)
        return dlc_fail(DLC_ERR_INTERNAL,
                        "a rank sent a topology that isn't one machine");
    return DLC_OK;
}

static int is_first_of_node(const dlc_job *job, int rank) {
    int32_t node = dlc_job_rank_info(job, rank)->node;
    for (int r = 0; r < rank; r++)
        if (dlc_job_rank_info(job, r)->node == node)
            return 0;
    return 1;
}

/* What the ranks contribute; only the first rank of a node has bytes. */
typedef struct gathering {
    unsigned char *mine;       /* owned; packed */
    size_t size;               /* of it */
    size_t *sizes;             /* owned; of each rank */
    size_t most;               /* of these */
    unsigned char *sent, *all; /* owned; padded to `most` */
} gathering;

static dlc_status gather_graphs(dlc_job *job, gathering *g) {
    size_t ranks = (size_t)dlc_job_ranks(job);
    DLC_TRY(dlc_job_all_gather(job, &g->size, sizeof g->size, g->sizes));
    for (size_t r = 0; r < ranks; r++)
        g->most = g->sizes[r] > g->most ? g->sizes[r] : g->most;
    if (g->most == 0)
        return DLC_OK;
    g->sent = dlc_alloc(g->most, 1);
    g->all = dlc_alloc(ranks, g->most);
    if (!g->sent || !g->all)
        return DLC_ERR_NOMEM;
    if (g->mine)
        memcpy(g->sent, g->mine, g->size);
    return dlc_job_all_gather(job, g->sent, g->most, g->all);
}

static dlc_status add_job_ranks(const dlc_job *job, dlc_topo *topo) {
    for (int r = 0; r < dlc_job_ranks(job); r++) {
        const dlc_rank_info *info = dlc_job_rank_info(job, r);
        int32_t machine = dlc_topo_nth(topo, -1, DLC_TOPO_MACHINE, (size_t)info->node);
        if (machine < 0)
            return dlc_fail(DLC_ERR_INTERNAL,
                            "the node of rank %d is not in the topology", r);
        DLC_TRY(dlc_topo_add_rank(topo, machine, r, info));
    }
    return DLC_OK;
}

static dlc_status add_all(const dlc_job *job, const gathering *g, dlc_topo *all,
                          int *complete) {
    *complete = 1;
    for (int r = 0; r < dlc_job_ranks(job); r++) {
        if (!is_first_of_node(job, r))
            continue;
        *complete &= g->sizes[r] > 0;
        if (g->sizes[r])
            DLC_TRY(add_machine(g->all + (size_t)r * g->most, g->sizes[r], all));
    }
    return *complete ? add_job_ranks(job, all) : DLC_OK;
}

dlc_status dlc_job_gather_machines(dlc_job *job, const dlc_topo *mine, dlc_topo *all,
                                   int *complete) {
    gathering g = {.sizes = dlc_alloc((size_t)dlc_job_ranks(job), sizeof *g.sizes)};
    dlc_status status = g.sizes ? DLC_OK : DLC_ERR_NOMEM;
    *complete = 0;
    if (status == DLC_OK && mine->nodes && is_first_of_node(job, dlc_job_rank(job)))
        status = dlc_topo_pack(mine, &g.mine, &g.size);
    if (status == DLC_OK)
        status = gather_graphs(job, &g);
    if (status == DLC_OK)
        status = add_all(job, &g, all, complete);
    dlc_free(g.all);
    dlc_free(g.sent);
    dlc_free(g.sizes);
    dlc_free(g.mine);
    return status;
}

/* ---- Domains ----------------------------------------------------------------- */

dlc_status dlc_job_find_domains(dlc_job *job, const dlc_topo *all, const int32_t *rack,
                                dlc_domains *domains) {
    int32_t ranks = dlc_job_ranks(job), found = 0;
    int32_t *end = dlc_alloc((size_t)ranks, sizeof *end);
    dlc_status status = end ? DLC_OK : DLC_ERR_NOMEM;
    for (int32_t i = 0; end && i < (int32_t)all->nodes && found < ranks; i++)
        if (all->node[i].kind == DLC_TOPO_RANK && all->node[i].index >= 0 &&
            all->node[i].index < ranks) {
            end[all->node[i].index] = i;
            found++;
        }
    if (status == DLC_OK && found < ranks)
        status = dlc_fail(DLC_ERR_INTERNAL, "%d of %d ranks are in the topology",
                          (int)found, (int)ranks);
    if (status == DLC_OK)
        status = dlc_domains_make(all, end, ranks, rack, domains);
    for (int32_t r = 0; status == DLC_OK && r < ranks; r++)
        dlc_domains_tell(domains, all, r, dlc_rank_own_info(job, r));
    dlc_free(end);
    return status;
}
