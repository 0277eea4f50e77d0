/* Determines how a resumed run continues: from which iteration, for how long, and at
 * which position of the learning-rate schedule, if the batch or the length of the run
 * has changed. Called by resume.c and the training loop.
 */
#ifndef DLC_CHECKPOINT_RESUME_SCHEDULE_H
#define DLC_CHECKPOINT_RESUME_SCHEDULE_H

#include "checkpoint/safetensors.h"
#include "session/session.h"

/* Rank 0: fills the state of the session's run folder and logs what has changed.
 * DLC_ERR_CONFIG if the run would end before the iteration of the checkpoint. */
dlc_status dlc_resume_schedule_from(dlc_session *session, const dlc_safetensors *file);

/* All ranks, after the solver was started: DLC_ERR_CONFIG if a finished run is asked
 * for more iterations although its schedule ended with a learning rate of 0. */
dlc_status dlc_resume_schedule_check_rate(const dlc_session *session);

#endif
