/* The axis of tensor parallelism: layers that are split over the ranks ([layer]
 * parallel). It is in use when at least one is. How layers are split is up to the net
 * (net/placement.h); the session updates the weights of which each rank has rows of its
 * own (session/param_sets.h).
 */
#ifndef DLC_PARALLEL_TENSOR_AXIS_H
#define DLC_PARALLEL_TENSOR_AXIS_H

#include "session/axis.h"

extern const dlc_axis_ops dlc_tensor_parallel_axis;

#endif
