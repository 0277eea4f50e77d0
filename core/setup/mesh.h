/* The mesh of a job's ranks: pipeline stages, in each the same number of tensor groups,
 * each of neighbouring ranks. Tensor is the innermost axis, whose ranks exchange most,
 * pipeline the outermost:
 *
 *     pipeline = 2, tensor = 2, 8 ranks      stage 0: (0 1) (2 3)   stage 1: (4 5) (6
 * 7)
 *
 * Every rank has samples of its own. The ranks of a tensor group divide the layers that
 * are tensor-parallel; parameters that are not divided have the same values on all
 * ranks of a stage, those that are on the ranks with the same place in their groups.
 *
 * Pure functions. */
#ifndef DLC_SETUP_MESH_H
#define DLC_SETUP_MESH_H

#include <stdint.h>

#include "base/status.h"

typedef struct dlc_mesh {
    int32_t pipeline, data,
        tensor; /* how long the axes are; their product: all ranks */
} dlc_mesh;

/* Where a rank is. */
typedef struct dlc_mesh_place {
    int32_t stage, data, tensor;
} dlc_mesh_place;

/* Ranks first, first + stride, ...: a process group. */
typedef struct dlc_mesh_group {
    int32_t first, stride, ranks;
} dlc_mesh_group;

/* The mesh of so many ranks; `tensor` 0: all ranks of a stage. DLC_ERR_CONFIG with a
 * sentence if they cannot be divided like that. */
dlc_status dlc_mesh_make(int32_t ranks, int32_t pipeline, int32_t tensor,
                         dlc_mesh *mesh);

dlc_mesh_place dlc_mesh_place_of(const dlc_mesh *mesh, int32_t rank);
int32_t dlc_mesh_rank_at(const dlc_mesh *mesh, const dlc_mesh_place *place);

/* The groups that a rank is in: of its stage; of those that divide layers with it; of
 * those that have the same rows of divided parameters. */
dlc_mesh_group dlc_mesh_stage_group(const dlc_mesh *mesh, int32_t rank);
dlc_mesh_group dlc_mesh_tensor_group(const dlc_mesh *mesh, int32_t rank);
dlc_mesh_group dlc_mesh_data_group(const dlc_mesh *mesh, int32_t rank);

#endif
