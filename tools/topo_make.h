/* Makes the report of `dlcore topo`, from a recorded machine or from the machines of
 * this job. */
#ifndef DLC_TOOLS_TOPO_MAKE_H
#define DLC_TOOLS_TOPO_MAKE_H

#include "job/machines.h"
#include "topo_report.h"

typedef struct topo_recorded {
    const char *path;
    int nodes; /* number of such machines; 0: as recorded */
    int ranks; /* GPUs to show, or ranks if there are none; 0: all GPUs, or one rank per
                  NUMA node, at least 2 */
} topo_recorded;

/* Makes the report of a recorded machine. */
dlc_status topo_replay(const topo_recorded *from, const dlc_bench_plan *plan,
                       topo_report *report);

/* Collective: makes the report of this job. `machine` is this rank's machine as hwloc
 * sees it; devices are added to it. */
dlc_status topo_discover_job(dlc_job *job, const dlc_bench_plan *plan,
                             dlc_topo *machine, topo_report *report);

#endif
