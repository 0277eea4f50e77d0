/* Measures latency and bandwidth of the pairs of a report, one after the other. */
#ifndef DLC_TOOLS_TOPO_MEASURE_H
#define DLC_TOOLS_TOPO_MEASURE_H

#include "job/job.h"
#include "topo_report.h"

/* Collective; end i of the report is rank i. A pair that takes longer than `seconds` is
 * abandoned, with a problem in its result. An error means that the job is ending. All
 * ranks get all results. */
dlc_status topo_measure(dlc_job *job, const dlc_bench_plan *plan, double seconds,
                        topo_report *report);

#endif
