/* Domains: the ranks of a job, grouped by how near they are, level by level. They are
 * computed from the graph of all machines alone, so that a job and `dlcore topo` on
 * recorded machines come to the same levels, order, and adapters. Called when a job
 * connects, and by `dlcore topo`. */
#ifndef DLC_TOPOLOGY_DOMAINS_H
#define DLC_TOPOLOGY_DOMAINS_H

#include <stdint.h>

#include <dlcore/transport.h>

#include "base/status.h"
#include "base/text.h"
#include "topology/link.h"

/* Start with {0}; release with dlc_domains_free. */
typedef struct dlc_domains {
    int32_t ranks;
    int32_t *end; /* owned; the node of each rank in the graph */
    /* owned; the domain of each rank, numbered by the first rank of each */
    int32_t *domain[DLC_DOMAIN_LEVELS];
    int32_t count[DLC_DOMAIN_LEVELS]; /* number of domains */
    int32_t *order; /* owned; all ranks, domain after domain on every level, so that
                       neighbors are near */
    int32_t *nic;   /* owned; the node of each rank's adapter; -1: none is known */
} dlc_domains;

/* Groups the ranks: `end` has the node of each (a rank, GPU, NUMA node or core), `rack`
 * the number of each rank's rack, the same for all ranks of a machine (NULL: not
 * known; every machine is a rack of its own). */
dlc_status dlc_domains_make(const dlc_topo *topo, const int32_t *end, int32_t ranks,
                            const int32_t *rack, dlc_domains *domains);
void dlc_domains_free(dlc_domains *domains);

/* Fills in what a rank info has from the topology. */
void dlc_domains_tell(const dlc_domains *domains, const dlc_topo *topo, int32_t rank,
                      dlc_rank_info *info);

/* Whether a level groups the ranks otherwise than the level below it does. */
int dlc_domains_differ(const dlc_domains *domains, dlc_domain_level level);

/* "NVLink island", "machine", ... */
const char *dlc_domain_text(dlc_domain_level level);

/* Appends what was found, as lines to read:
 *     domains:
 *         NUMA node   [0-1] [2-3]
 *         machine     [0-3]
 *     adapters:
 *         mlx5_0 PIX  0-1                                                   */
void dlc_domains_text(const dlc_domains *domains, const dlc_topo *topo, dlc_text *text);

/* ---- Clusters of machines -------------------------------------------------------- */

/* Groups `machines` by `bandwidth`, a symmetric matrix of positive numbers whose
 * diagonal is not read: a pair is near or far, and between the slowest near pair and
 * the fastest far one is the largest factor of all, at least 2. Writes the cluster of
 * each machine, numbered by the first machine of each. *clusters: at least two, each of
 * at least two machines, of which all pairs are near, and no others; 0 if there are
 * none such, as with one slow cable, or a network that is the same everywhere.
 * DLC_ERR_NOMEM. */
dlc_status dlc_clusters_find(const double *bandwidth, int32_t machines,
                             int32_t *cluster, int32_t *clusters);

#endif
