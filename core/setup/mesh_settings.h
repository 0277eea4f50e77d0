/* The mesh as [parallel] gives it: data, tensor, pipeline, pipeline_ranks. */
#ifndef DLC_SETUP_MESH_SETTINGS_H
#define DLC_SETUP_MESH_SETTINGS_H

#include "config/config.h"
#include "setup/mesh.h"

/* Parses the settings but `pipeline`, which says how many `stages` there are (0: auto).
 * *stage_ranks: of *sizes, or NULL; to be released with dlc_free, also on failure.
 * DLC_ERR_CONFIG with a sentence. */
dlc_status dlc_mesh_settings_parse(const dlc_settings *parallel, int32_t stages,
                                   dlc_mesh_sizes *sizes, int32_t **stage_ranks);

/* The setting of the mesh that is set, to say where; "pipeline" if none is. */
const char *dlc_mesh_settings_key(const dlc_settings *parallel);

#endif
