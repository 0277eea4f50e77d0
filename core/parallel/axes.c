/* Lists the axes in the order in which they are planned: an axis sees what those before
 * it have decided. */
#include "parallel/axes.h"

#include "parallel/consistency/axis.h"
#include "parallel/mesh_report.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/rebalance/rebalance.h"
#include "parallel/tensor/axis.h"

const dlc_axis_ops *const dlc_axes[] = {
    &dlc_mesh_axis,        &dlc_pipeline_axis,    &dlc_tensor_parallel_axis,
    &dlc_batch_split_axis, &dlc_consistency_axis, NULL};
