/* Measuring the pairs of a report, one after the other. */
#ifndef DLC_TOOLS_TOPO_MEASURE_H
#define DLC_TOOLS_TOPO_MEASURE_H

#include "job/job.h"
#include "topo_report.h"

/* All ranks together; end i of the report is rank i. Each pair gets `seconds`: what
 * takes longer is given up and told as the pair's problem. An error means that the job
 * is over. All ranks get all results. */
dlc_status topo_measure(dlc_job *job, const dlc_bench_plan *plan, double seconds,
                        topo_report *report);

#endif
