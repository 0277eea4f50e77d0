/* Checks that parameters have the same layout on all ranks. Gradients are reduced
 * element by element, in the layouts that layers have chosen, which may depend on a
 * rank's batch, number of threads and CPU. So before anything is exchanged the ranks
 * compare them, and layers that differ must keep their parameters plain
 * (dlc_layer_args.plain_params). */
#ifndef DLC_SESSION_LAYOUT_CHECK_H
#define DLC_SESSION_LAYOUT_CHECK_H

#include "session/session.h"

/* Collective, once the training net has its memory; gradients must be zero and are zero
 * afterwards. *again: some layouts differ, and the nets must be rebuilt with the new
 * dlc_session.plain and checked again. DLC_ERR_PLUGIN if that did not help. */
dlc_status dlc_layout_check(dlc_session *session, int *rebuild);

#endif
