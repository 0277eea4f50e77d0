/* How much CPU time and memory the cgroup leaves us: containers limit them without
 * hiding what the machine has. */
#ifndef DLC_TOPO_QUOTA_H
#define DLC_TOPO_QUOTA_H

/* Cores' worth of processor time, 0 where there is no limit. `root` stands before
 * every path ("" for this machine; tests bring their own). */
double dlc_quota_read(const char *root);

/* Bytes of memory that this process may take, with all others: what the machine has, or
 * less where the cgroup allows less; 0 where neither can be told. */
double dlc_quota_memory(const char *root);

#endif
