/* Lists the cores with hwloc, which is closed again, in the order of the machine's
 * tree, so that neighbors in the list are neighbors in the machine; and divides the
 * list among the ranks. */
#include "topology/cores.h"

#include <errno.h>
#include <hwloc.h>
#include <limits.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/read.h"
#include "topology/discover.h"
#include "topology/quota.h"

#define WORD_BITS (8 * sizeof(unsigned long))

typedef struct core {
    int first_cpu, cpus; /* in dlc_cores.cpu */
    int edge; /* depth of the ancestor it shares with the core before it; small if a
                 package or NUMA node begins here */
} core;

struct dlc_cores {
    int count;
    core *core;
    int *cpu;     /* hardware threads, as numbered by the kernel */
    double quota; /* CPU time, in cores; 0: no limit */
};

/* The affinity saved by dlc_cores_save_affinity. */
static struct {
    int known;
    dlc_core_set set;
} at_start;

static int is_set(const unsigned long *words, unsigned cpu) {
    return (int)(words[cpu / WORD_BITS] >> (cpu % WORD_BITS) & 1);
}

static void set_cpu(dlc_core_set *set, int cpu) {
    set->cpus[(unsigned)cpu / WORD_BITS] |= 1ul << ((unsigned)cpu % WORD_BITS);
}

/* Adds the hardware threads of `object` that may be used; returns how many. */
static int add_cpus(dlc_cores *cores, int used, hwloc_obj_t object,
                    const unsigned long *allowed) {
    unsigned cpu;
    int added = 0;
    hwloc_bitmap_foreach_begin(cpu, object->cpuset) {
        if (cpu < DLC_CORES_CPUS_MAX && is_set(allowed, cpu))
            cores->cpu[used + added++] = (int)cpu;
    }
    hwloc_bitmap_foreach_end();
    return added;
}

static dlc_status list_cores(dlc_cores *cores, hwloc_topology_t topology,
                             const unsigned long *allowed) {
    /* Some virtual machines show no cores, only hardware threads. */
    hwloc_obj_type_t type = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0
                                ? HWLOC_OBJ_CORE
                                : HWLOC_OBJ_PU;
    int count = hwloc_get_nbobjs_by_type(topology, type);
    int cpus = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PU);
    if (count < 1 || cpus < 1)
        return dlc_fail(DLC_ERR_INTERNAL, "hwloc found no cores on this machine");
    cores->core = dlc_alloc((size_t)count, sizeof *cores->core);
    cores->cpu = dlc_alloc((size_t)cpus, sizeof *cores->cpu);
    if (!cores->core || !cores->cpu)
        return DLC_ERR_NOMEM;
    int used = 0;
    hwloc_obj_t before = NULL;
    for (int i = 0; i < count; i++) {
        hwloc_obj_t object = hwloc_get_obj_by_type(topology, type, (unsigned)i);
        int added = add_cpus(cores, used, object, allowed);
        if (!added)
            continue;
        int edge = before
                       ? hwloc_get_common_ancestor_obj(topology, before, object)->depth
                       : 0;
        cores->core[cores->count++] = (core){used, added, edge};
        used += added;
        before = object;
    }
    if (!cores->count)
        return dlc_fail(DLC_ERR_INTERNAL,
                        "none of the cores that hwloc found may be used");
    return DLC_OK;
}

void dlc_cores_save_affinity(void) {
    at_start.known = dlc_cores_get_affinity(&at_start.set) == DLC_OK;
}

static dlc_status read_cores(hwloc_topology_t topology, int is_synthetic,
                             dlc_cores **cores) {
    dlc_core_set allowed = at_start.set;
    dlc_cores *made = dlc_alloc(1, sizeof *made);
    dlc_status status = made ? DLC_OK : DLC_ERR_NOMEM;
    if (made && is_synthetic) {
        memset(allowed.cpus, 0xff, sizeof allowed.cpus);
    } else if (made) {
        made->quota = dlc_quota_cores("");
        /* The kernel has removed what the cgroup's cpuset forbids. */
        if (!at_start.known)
            status = dlc_cores_get_affinity(&allowed);
    }
    if (status == DLC_OK)
        status = list_cores(made, topology, allowed.cpus);
    if (status == DLC_OK)
        *cores = made;
    else
        dlc_cores_close(made);
    return status;
}

dlc_status dlc_cores_read(hwloc_topology_t topology, dlc_cores **cores) {
    return read_cores(topology, 0, cores);
}

dlc_status dlc_cores_open(const char *synthetic, dlc_cores **cores) {
    hwloc_topology_t topology;
    DLC_TRY(dlc_hwloc_load(0, synthetic, &topology));
    dlc_status status = read_cores(topology, synthetic != NULL, cores);
    hwloc_topology_destroy(topology);
    return status;
}

void dlc_cores_close(dlc_cores *cores) {
    if (!cores)
        return;
    dlc_free(cores->cpu);
    dlc_free(cores->core);
    dlc_free(cores);
}

int dlc_cores_count(const dlc_cores *cores) {
    return cores->count;
}

/* Where the share of `rank` ends if it begins at `from`: at the strongest edge that
 * leaves this share and all later ones between `least` and twice as many cores; of
 * several equal edges, at the one nearest to an even division. */
static int share_end(const dlc_cores *cores, int rank, int ranks, int from) {
    int least = cores->count / ranks, left = ranks - 1 - rank;
    if (!left)
        return cores->count;
    int low = from + least, high = from + 2 * least;
    if (low < cores->count - 2 * least * left)
        low = cores->count - 2 * least * left;
    if (high > cores->count - least * left)
        high = cores->count - least * left;
    int64_t even = (int64_t)cores->count * (rank + 1); /* times `ranks` */
    int best = low;
    for (int at = low + 1; at <= high; at++) {
        int edge = cores->core[at].edge - cores->core[best].edge;
        if (edge < 0 || (!edge && llabs((int64_t)at * ranks - even) <
                                      llabs((int64_t)best * ranks - even)))
            best = at;
    }
    return best;
}

/* The cores of a rank's share: [*from, *to). */
static dlc_status share_range(const dlc_cores *cores, int rank, int ranks, int *from,
                              int *to) {
    if (rank < 0 || rank >= ranks)
        return dlc_fail(DLC_ERR_CONFIG,
                        "there is no rank %d among %d to share the cores", rank, ranks);
    *from = *to = 0;
    if (ranks > cores->count) {
        *from = rank % cores->count;
        *to = *from + 1;
        return DLC_OK;
    }
    for (int r = 0; r <= rank; r++) {
        *from = *to;
        *to = share_end(cores, r, ranks, *from);
    }
    return DLC_OK;
}

int dlc_cores_threads(double quota, int cores) {
    if (!(quota > 0) || quota >= cores)
        return cores;
    return quota < 1 ? 1 : (int)(quota + 0.5);
}

dlc_status dlc_cores_share(const dlc_cores *cores, int rank, int ranks,
                           dlc_core_set *set) {
    int from = 0, to = 0;
    DLC_TRY(share_range(cores, rank, ranks, &from, &to));
    *set = (dlc_core_set){.cores = to - from, .threads = to - from};
    for (int i = from; i < to; i++)
        for (int k = 0; k < cores->core[i].cpus; k++)
            set_cpu(set, cores->cpu[cores->core[i].first_cpu + k]);
    set->threads = dlc_cores_threads(cores->quota / ranks, set->cores);
    return DLC_OK;
}

dlc_status dlc_cores_place_threads(const dlc_cores *cores, int rank, int ranks,
                                   int threads, dlc_thread_placement *placement) {
    int from = 0, to = 0, left = 0;
    dlc_thread_placement made = {.compute = NULL};
    DLC_TRY(share_range(cores, rank, ranks, &from, &to));
    DLC_TRY(dlc_cores_share(cores, rank, ranks, &made.others));
    if (threads > 0 && threads <= to - from && ranks <= cores->count) {
        made.compute = dlc_alloc((size_t)threads, sizeof *made.compute);
        if (!made.compute)
            return DLC_ERR_NOMEM;
        memset(made.others.cpus, 0, sizeof made.others.cpus);
        for (int i = from; i < to; i++) {
            const core *one = &cores->core[i];
            int taken = i - from < threads;
            if (taken)
                made.compute[i - from] = cores->cpu[one->first_cpu];
            for (int k = taken; k < one->cpus; k++, left++)
                set_cpu(&made.others, cores->cpu[one->first_cpu + k]);
        }
        if (!left)
            DLC_TRY(dlc_cores_share(cores, rank, ranks, &made.others));
    }
    *placement = made;
    return DLC_OK;
}

void dlc_thread_placement_free(dlc_thread_placement *placement) {
    dlc_free(placement->compute);
    placement->compute = NULL;
}

static int32_t package_of(int32_t cpu) {
    char path[96], text[16];
    snprintf(path, sizeof path,
             "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", (int)cpu);
    return dlc_read_line(path, text, sizeof text) ? (int32_t)strtol(text, NULL, 10)
                                                  : -1;
}

/* The highest number of a NUMA node, from a list such as "0-1,4"; -1: unknown. */
static int32_t last_numa(void) {
    char list[1024];
    if (!dlc_read_line("/sys/devices/system/node/online", list, sizeof list))
        return -1;
    size_t at = strlen(list);
    while (at > 0 && list[at - 1] >= '0' && list[at - 1] <= '9')
        at--;
    return (int32_t)strtol(list + at, NULL, 10);
}

/* The sysfs folder of a hardware thread contains a link to its NUMA node, of `last` + 1
 * at most. */
static int32_t numa_of(int32_t cpu, int32_t last) {
    char path[64];
    for (int32_t numa = 0; numa <= last; numa++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/node%d", (int)cpu,
                 (int)numa);
        if (access(path, F_OK) == 0)
            return numa;
    }
    return -1;
}

void dlc_cores_locality(const int32_t *cpus, int count, int32_t *package,
                        int32_t *numa) {
    int32_t last = last_numa();
    *package = *numa = -1;
    for (int i = 0; cpus && i < count; i++) {
        int32_t its_package = package_of(cpus[i]), its_numa = numa_of(cpus[i], last);
        if (i && its_package != *package)
            its_package = -1;
        if (i && its_numa != *numa)
            its_numa = -1;
        *package = its_package;
        *numa = its_numa;
    }
}

dlc_status dlc_cores_bind(const dlc_core_set *set) {
    if (sched_setaffinity(0, sizeof set->cpus,
                          (const cpu_set_t *)(const void *)set->cpus))
        return dlc_fail(DLC_ERR_IO, "cannot bind to %d cores: %s", set->cores,
                        strerror(errno));
    return DLC_OK;
}

dlc_status dlc_cores_get_affinity(dlc_core_set *set) {
    memset(set, 0, sizeof *set);
    if (sched_getaffinity(0, sizeof set->cpus, (cpu_set_t *)(void *)set->cpus))
        return dlc_fail(DLC_ERR_IO, "cannot read the affinity mask: %s",
                        strerror(errno));
    return DLC_OK;
}
