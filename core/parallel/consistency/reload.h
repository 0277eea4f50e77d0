/* Reads [consistency] again while training, when SIGUSR1 asks for it. */
#ifndef DLC_PARALLEL_CONSISTENCY_RELOAD_H
#define DLC_PARALLEL_CONSISTENCY_RELOAD_H

#include "session/axis.h"

/* Collective, right after a synchronization (axis.h). Rank 0 reads net.ini
 * again; --set still takes precedence. A mistake, or a setting that the model can't
 * change any more, is logged and leaves everything as it was. */
dlc_status dlc_consistency_reload(dlc_axis *axis);

#endif
