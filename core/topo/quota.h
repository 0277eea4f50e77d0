/* How much processor time the cgroup leaves us: containers limit it without
 * hiding the cores. */
#ifndef DLC_TOPO_QUOTA_H
#define DLC_TOPO_QUOTA_H

/* Cores' worth of processor time, 0 where there is no limit. `root` stands before
 * every path ("" for this machine; tests bring their own). */
double dlc_quota_read(const char *root);

#endif
