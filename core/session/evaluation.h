/* What a test has found: the metrics of the net over [data.test]. */
#ifndef DLC_SESSION_EVALUATION_H
#define DLC_SESSION_EVALUATION_H

#include "net/net.h"

#define DLC_MAX_METRICS 16

typedef struct dlc_evaluation {
    int32_t metrics;
    dlc_metric metric[DLC_MAX_METRICS]; /* added up over all ranks */
    double loss; /* what training minimizes: the weighted sum of the mean losses, of
                    those that anything counts in; NaN without one */
    int32_t losses;
    int is_one_loss; /* it is that of one layer as it is */
    double accuracy; /* of the first metric that is no loss; NaN without one */
    double seconds;
} dlc_evaluation;

#endif
