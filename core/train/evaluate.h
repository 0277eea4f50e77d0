/* A test: one pass over [data.test], split among the ranks. Called by the training loop
 * and by `dlcore test`. */
#ifndef DLC_TRAIN_EVALUATE_H
#define DLC_TRAIN_EVALUATE_H

#include "session/evaluation.h"
#include "session/session.h"

/* Collective: all ranks call it, and all get bitwise identical results. */
dlc_status dlc_evaluate(dlc_session *session, dlc_evaluation *evaluation);

#endif
