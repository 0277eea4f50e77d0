/* What a test has found: the metrics of the net over [data.test]. */
#ifndef DLC_SESSION_EVALUATION_H
#define DLC_SESSION_EVALUATION_H

#include "net/net.h"

#define DLC_MAX_METRICS 16

typedef struct dlc_evaluation {
    int32_t metrics;
    dlc_metric metric[DLC_MAX_METRICS]; /* added up over all ranks */
    double loss;                        /* weighted mean; NaN without a loss */
    double accuracy; /* of the first metric that is no loss; NaN without one */
    double seconds;
} dlc_evaluation;

#endif
