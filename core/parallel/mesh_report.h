/* Says who is where in the mesh, in the log and in the JSON report. */
#ifndef DLC_PARALLEL_MESH_REPORT_H
#define DLC_PARALLEL_MESH_REPORT_H

#include "session/session.h"

/* Logs the mesh, unless all ranks are replicas of the whole net. */
void dlc_mesh_announce(const dlc_session *session);
/* "mesh": the lengths of the axes, and "pipeline_ranks": those of each stage. */
void dlc_mesh_json(const dlc_session *session, dlc_json *json);

#endif
