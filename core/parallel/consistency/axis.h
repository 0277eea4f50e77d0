/* The axis of consistency: how the replicas of the weights become one. It is in use
 * with consistency models whose ranks need not be in the same iteration. All ranks
 * count iterations alike, so each comes to the next test or checkpoint by itself, and
 * there they synchronize. Synchronous training has nothing to add to what every session
 * does.
 */
#ifndef DLC_PARALLEL_CONSISTENCY_AXIS_H
#define DLC_PARALLEL_CONSISTENCY_AXIS_H

#include "session/axis.h"

extern const dlc_axis_ops dlc_consistency_axis;

#endif
