/* Making the report of `dlcore topo`: what there is, and what the transports say. */
#ifndef DLC_TOOLS_TOPO_MAKE_H
#define DLC_TOOLS_TOPO_MAKE_H

#include "job/job.h"
#include "topo_report.h"

typedef struct topo_recorded {
    const char *path;
    int nodes; /* so many of it; 0: as it is */
    int ranks; /* GPUs to show, or ranks where there are none; 0: all, or one a NUMA
                  node, but 2 at least */
} topo_recorded;

dlc_status topo_replay(const topo_recorded *from, const dlc_bench_plan *plan,
                       topo_report *report);

/* Of this job; all ranks together. `machine` is this rank's as hwloc sees it; devices
 * are added to it. */
dlc_status topo_see(dlc_job *job, const dlc_bench_plan *plan, dlc_topo *machine,
                    topo_report *report);

#endif
