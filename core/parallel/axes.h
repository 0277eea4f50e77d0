/* The axes of parallelism that a job can use (session/axis.h): what is opened with them
 * can run any net.ini. */
#ifndef DLC_PARALLEL_AXES_H
#define DLC_PARALLEL_AXES_H

#include "session/axis.h"

extern const dlc_axis_ops *const dlc_axes[]; /* ends with NULL */

#endif
