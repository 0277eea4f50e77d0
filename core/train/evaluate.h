/* A test: one pass over [data.test], split among the ranks. Called by the training loop
 * and by `dlcore test`. */
#ifndef DLC_TRAIN_EVALUATE_H
#define DLC_TRAIN_EVALUATE_H

#include "train/session.h"

#define DLC_MAX_METRICS 16

typedef struct dlc_evaluation {
    int32_t metrics;
    dlc_metric metric[DLC_MAX_METRICS]; /* added up over all ranks */
    double loss;                        /* weighted mean; NaN without a loss */
    double accuracy; /* of the first metric that is no loss; NaN without one */
    double seconds;
} dlc_evaluation;

/* Collective: all ranks call it, and all get bitwise identical results. */
dlc_status dlc_evaluate(dlc_session *session, dlc_evaluation *evaluation);

#endif
