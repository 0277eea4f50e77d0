/* The cores of this machine that this process may use, and how the ranks on it
 * share them. */
#ifndef DLC_TOPO_CORES_H
#define DLC_TOPO_CORES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Some cores. All hardware threads of a core that may be used are in. */
#define DLC_CORES_CPUS_MAX 8192 /* the largest Linux is configured for */
typedef struct dlc_core_set {
    int cores;   /* how many */
    int threads; /* to compute with: one a core, fewer where the cgroup's quota of
                    processor time is smaller */
    unsigned long
        cpus[DLC_CORES_CPUS_MAX / (8 * sizeof(unsigned long))]; /* a bit a
                                  hardware thread, as the kernel numbers them */
} dlc_core_set;

typedef struct dlc_cores dlc_cores;

/* Where the threads of a rank go. */
typedef struct dlc_thread_places {
    int32_t *compute;    /* own; a hardware thread for each compute thread, of as many
                            cores, in the order of the machine's tree. NULL: there are
                            fewer cores than threads, let the kernel place them */
    dlc_core_set beside; /* for other threads: what `compute` leaves of the share
                            (idle cores, second hardware threads); where that is
                            nothing, all of it */
} dlc_thread_places;

/* Keeps what this thread may use now for dlc_cores_open. Libraries may bind the
 * thread that loads them to one core; call it before they are loaded. */
void dlc_cores_note(void);

/* Finds the cores that the affinity mask and the cgroup allow. With `synthetic`
 * (hwloc's description, "pack:2 numa:1 core:4 pu:2") those of an imagined machine
 * instead, all allowed. Changes the environment for a moment: call it before
 * threads are started. */
dlc_status dlc_cores_open(const char *synthetic, dlc_cores **cores);
void dlc_cores_close(dlc_cores *cores); /* NULL allowed */

/* How many cores there are, at least 1. */
int dlc_cores_count(const dlc_cores *cores);

/* The share of one of the `ranks` of this machine. Shares don't overlap, and the
 * smallest is as large as it can be; within that, a share lies in one L3, NUMA
 * node and package where possible. More ranks than cores take turns: each has one
 * core. */
dlc_status dlc_cores_share(const dlc_cores *cores, int rank, int ranks,
                           dlc_core_set *set);

/* How many of them compute on so many cores where a control group allows the rank
 * `quota` cores' worth of CPU time (0: no limit): the nearest number, and one at least.
 */
int dlc_cores_threads(double quota, int cores);

/* Places for `threads` compute threads and others in the share of a rank. Release
 * it with dlc_thread_places_free. */
dlc_status dlc_cores_place(const dlc_cores *cores, int rank, int ranks, int threads,
                           dlc_thread_places *places);
void dlc_thread_places_free(dlc_thread_places *places);

/* The package and the NUMA node of `count` hardware threads, as the kernel numbers
 * them; -1 where they differ, or it doesn't tell, or there are none. */
void dlc_cores_near(const int32_t *cpus, int count, int32_t *package, int32_t *numa);

/* Binds the calling thread, and with it those that it starts from now on. */
dlc_status dlc_cores_bind(const dlc_core_set *set);
/* What the calling thread is bound to; only `cpus` is set. */
dlc_status dlc_cores_bound(dlc_core_set *set);

#endif
