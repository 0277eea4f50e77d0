/* The mesh of a job's ranks: pipeline stages, in each some tensor groups of
 * neighbouring ranks. Tensor is the innermost axis, whose ranks exchange most, pipeline
 * the outermost:
 *
 *     pipeline = 2, tensor = 2, 8 ranks   stage 1: (0 1) (2 3)   stage 2: (4 5) (6 7)
 *     pipeline_ranks = 3, 1               stage 1: 0 1 2         stage 2: 3
 *
 * Every stage computes all samples, and its ranks split them. The ranks of a tensor
 * group divide the layers that are tensor-parallel. Parameters that are not divided
 * have the same values on all ranks of a stage, those that are on the ranks with the
 * same place in their groups: the data group.
 *
 * Pure functions. */
#ifndef DLC_SETUP_MESH_H
#define DLC_SETUP_MESH_H

#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

/* The lengths of the axes as [parallel] gives them; 0: auto. */
typedef struct dlc_mesh_sizes {
    int32_t data, tensor, pipeline;
    const int32_t *stage_ranks; /* one number a stage; NULL: all have the same */
} dlc_mesh_sizes;

typedef struct dlc_mesh {
    int32_t ranks, pipeline, tensor;
    const int32_t *stage_ranks; /* as in dlc_mesh_sizes, whose memory it is */
    const double
        *proportion; /* of each rank in the samples of its stage; NULL: equal */
} dlc_mesh;

/* Where a rank is. */
typedef struct dlc_mesh_place {
    int32_t stage, data, tensor;
} dlc_mesh_place;

/* Ranks first, first + stride, ...: a process group. */
typedef struct dlc_mesh_group {
    int32_t first, stride, ranks;
} dlc_mesh_group;

/* The mesh of so many ranks. What is auto gets the ranks that the others leave: the
 * pipeline; else the tensor axis, if layers want one; else the data axis.
 * DLC_ERR_CONFIG with a sentence if the ranks cannot be divided like that. */
dlc_status dlc_mesh_make(const dlc_mesh_sizes *sizes, int32_t ranks, int wants_tensor,
                         dlc_mesh *mesh);
/* The ranks that such a mesh needs at least. */
int32_t dlc_mesh_least_ranks(const dlc_mesh_sizes *sizes);

int32_t dlc_mesh_stage_first(const dlc_mesh *mesh, int32_t stage);
int32_t dlc_mesh_stage_ranks(const dlc_mesh *mesh, int32_t stage);
/* The ranks of the data axis: in the stage that has most. */
int32_t dlc_mesh_data(const dlc_mesh *mesh);

dlc_mesh_place dlc_mesh_place_of(const dlc_mesh *mesh, int32_t rank);

/* The groups that a rank is in: of its stage; of those that divide layers with it; of
 * those that have the same rows of divided parameters. */
dlc_mesh_group dlc_mesh_stage_group(const dlc_mesh *mesh, int32_t rank);
dlc_mesh_group dlc_mesh_tensor_group(const dlc_mesh *mesh, int32_t rank);
dlc_mesh_group dlc_mesh_data_group(const dlc_mesh *mesh, int32_t rank);
/* Those that have the same samples, one of each stage. No ranks: the stages have
 * unequal numbers of them. */
dlc_mesh_group dlc_mesh_column(const dlc_mesh *mesh, int32_t rank);

/* The range of `samples`, which a stage computes together, that this rank has: at least
 * one, if there are as many as ranks. */
void dlc_mesh_samples(const dlc_mesh *mesh, int32_t rank, int64_t samples,
                      int64_t *begin, int64_t *count);

/* Appends who is where in a stage: "(0 1) (2 3)". */
void dlc_mesh_print(const dlc_mesh *mesh, int32_t stage, dlc_text *text);

#endif
