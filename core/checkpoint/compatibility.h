/* Checks that a run can resume from a checkpoint: the same net, data and seed, and a
 * solver that can continue from the saved state. The whole file is checked before any
 * of it is loaded. Called by resume.c. */
#ifndef DLC_CHECKPOINT_COMPATIBILITY_H
#define DLC_CHECKPOINT_COMPATIBILITY_H

#include "checkpoint/safetensors.h"
#include "session/session.h"

/* Rank 0. DLC_ERR_DATA if the run cannot resume from it; every difference is logged as
 * "before -> now". Settings that may change, and have, are logged too. */
dlc_status dlc_compatibility_check(const dlc_session *session,
                                   const dlc_safetensors *file);

/* Must state `state` (dlc_solver_states) be in the file? A run without an average of
 * the weights may go on with one, which begins with the weights of the checkpoint. */
int dlc_compatibility_needs(const dlc_session *session, const dlc_safetensors *file,
                            int32_t state);

#endif
