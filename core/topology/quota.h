/* The limits of CPU time and memory that cgroups set: containers limit both without
 * hiding what the machine has. */
#ifndef DLC_TOPOLOGY_QUOTA_H
#define DLC_TOPOLOGY_QUOTA_H

/* The CPU time that the cgroup allows, in cores; 0: no limit. `root` is put before
 * every path ("" for this machine; tests use their own). */
double dlc_quota_cores(const char *root);

/* The bytes of memory that this process and all others in its cgroup may use together:
 * the machine's memory, or the cgroup's limit if it is less; 0: unknown. */
double dlc_quota_memory(const char *root);

/* The bytes of it that are free now, or can be freed at once; 0: unknown. */
double dlc_quota_memory_free(const char *root);

#endif
