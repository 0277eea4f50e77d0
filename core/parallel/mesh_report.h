/* Says who is where in the mesh, in the log (unless all ranks are replicas of the whole
 * net) and in the JSON report: "mesh", the lengths of the axes, and "pipeline_ranks",
 * those of each stage. It is among the axes to be told when. */
#ifndef DLC_PARALLEL_MESH_REPORT_H
#define DLC_PARALLEL_MESH_REPORT_H

#include "session/axis.h"

extern const dlc_axis_ops dlc_mesh_axis;

#endif
