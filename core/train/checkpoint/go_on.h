/* How a run goes on from a checkpoint: at which iteration, how far, and with which
 * place in the learning-rate schedule, where the batch or the length are others than
 * before.
 */
#ifndef DLC_TRAIN_GO_ON_H
#define DLC_TRAIN_GO_ON_H

#include "train/checkpoint/safetensors.h"
#include "train/session.h"

/* Rank 0: fills the state of the session's run folder and says what has changed.
 * DLC_ERR_CONFIG where the run is to end before what is done already. */
dlc_status dlc_go_on_from(dlc_session *session, const dlc_safetensors *file);

/* All ranks, with the solver started: DLC_ERR_CONFIG where more iterations are asked
 * for, though the schedule had come to its end and the learning rate to 0. */
dlc_status dlc_go_on_check_rate(const dlc_session *session);

#endif
