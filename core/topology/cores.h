/* The cores of this machine that this process may use, and how the ranks on it share
 * them. Called by the launcher and at the start of a rank. */
#ifndef DLC_TOPOLOGY_CORES_H
#define DLC_TOPOLOGY_CORES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define DLC_CORES_CPUS_MAX 8192 /* the most that Linux can be configured for */

/* A set of cores, with all of their hardware threads that may be used. */
typedef struct dlc_core_set {
    int cores;
    int threads; /* compute threads: one per core, or fewer if the cgroup's quota of CPU
                    time is smaller */
    unsigned long
        cpus[DLC_CORES_CPUS_MAX / (8 * sizeof(unsigned long))]; /* one bit per
                                  hardware thread, as numbered by the kernel */
} dlc_core_set;

typedef struct dlc_cores dlc_cores;
struct hwloc_topology; /* see discover.h */

/* Where the threads of a rank run. */
typedef struct dlc_thread_placement {
    int32_t *compute; /* owned; one hardware thread per compute thread, each on another
                         core, in the order of the machine's tree. NULL: there are
                         fewer cores than threads; the kernel places them */
    dlc_core_set others; /* for all other threads: what `compute` leaves of the rank's
                            share (idle cores, second hardware threads), or the whole
                            share if it leaves nothing */
} dlc_thread_placement;

/* Saves this thread's CPU affinity for dlc_cores_open. Call it before libraries are
 * loaded, because some bind the thread that loads them to one core. */
void dlc_cores_save_affinity(void);

/* Finds the cores that the affinity mask and the cgroup allow; with `synthetic`
 * (hwloc's description, e.g. "pack:2 numa:1 core:4 pu:2") all cores of a synthetic
 * machine instead. Not thread-safe, as it changes the environment temporarily: call it
 * before threads are started. */
dlc_status dlc_cores_open(const char *synthetic, dlc_cores **cores);
/* The same from what dlc_hwloc_load has loaded of this machine. */
dlc_status dlc_cores_read(struct hwloc_topology *topology, dlc_cores **cores);
void dlc_cores_close(dlc_cores *cores); /* NULL is allowed */

/* The number of cores, at least 1. */
int dlc_cores_count(const dlc_cores *cores);

/* Gives the cores of one of the `ranks` on this machine. The shares don't overlap, and
 * the smallest is as large as possible; within that, a share is inside one L3, NUMA
 * node and package if possible. If there are more ranks than cores, each rank gets one
 * core and shares it with others. */
dlc_status dlc_cores_share(const dlc_cores *cores, int rank, int ranks,
                           dlc_core_set *set);

/* The number of compute threads for `cores` cores if the cgroup allows the rank the CPU
 * time of `quota` cores (0: no limit): the nearest number, at least 1. */
int dlc_cores_threads(double quota, int cores);

/* Places `threads` compute threads, and the other threads, on a rank's share of the
 * cores. Release it with dlc_thread_placement_free. */
dlc_status dlc_cores_place_threads(const dlc_cores *cores, int rank, int ranks,
                                   int threads, dlc_thread_placement *placement);
void dlc_thread_placement_free(dlc_thread_placement *placement);

/* The package and the NUMA node of `count` hardware threads, as numbered by the kernel;
 * -1 if they differ, are unknown, or `count` is 0. */
void dlc_cores_locality(const int32_t *cpus, int count, int32_t *package,
                        int32_t *numa);

/* Binds the calling thread, and the threads that it starts from now on. */
dlc_status dlc_cores_bind(const dlc_core_set *set);
/* Gets the calling thread's CPU affinity; sets `cpus` only. */
dlc_status dlc_cores_get_affinity(dlc_core_set *set);

#endif
