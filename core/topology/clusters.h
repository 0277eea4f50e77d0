/* Clusters of machines by the bandwidth between them. Called when a job connects; knows
 * nothing of jobs. */
#ifndef DLC_TOPOLOGY_CLUSTERS_H
#define DLC_TOPOLOGY_CLUSTERS_H

#include <stdint.h>

#include "base/status.h"

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
