/* Testing: one pass over [data.test], shared out among the ranks. */
#ifndef DLC_TRAIN_EVALUATE_H
#define DLC_TRAIN_EVALUATE_H

#include "train/session.h"

#define DLC_MAX_METRICS 16

typedef struct dlc_evaluation {
    int32_t metrics;
    dlc_metric metric[DLC_MAX_METRICS]; /* sums over all ranks */
    double loss;                        /* weighted mean; NaN without a loss */
    double accuracy;                    /* of the first accuracy-like metric; NaN */
    double seconds;
} dlc_evaluation;

/* All ranks together; all get the same numbers, to the bit. */
dlc_status dlc_evaluate(dlc_session *session, dlc_evaluation *evaluation);

#endif
