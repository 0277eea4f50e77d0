/* How far a net's outputs are from targets that are numbers. Used by `dlcore test`. */
#ifndef DLC_TOOLS_REGRESSION_H
#define DLC_TOOLS_REGRESSION_H

#include "train/evaluate.h"

/* Sums over the values that have a target (are not NaN). */
typedef struct dlc_regression {
    int32_t field; /* of a batch, with the targets */
    double count, absolute, squared, targets, squared_targets;
} dlc_regression;

/* Finds the output that the net's last loss compares with a field of numbers. Returns
 * whether there is one. */
int dlc_regression_find(const dlc_graph *graph, dlc_graph_input *from,
                        dlc_regression *regression);

/* A dlc_evaluation_reader's call; `context` is the regression. */
dlc_status dlc_regression_take(void *context, const dlc_evaluation_batch *batch);
/* Collective: adds up the sums of all ranks. */
dlc_status dlc_regression_sum(dlc_regression *regression, dlc_job *job);

/* The mean absolute and the root mean square error, and the share of the targets'
 * variance that the outputs explain (R squared); NaN where there is none. */
double dlc_regression_mae(const dlc_regression *regression);
double dlc_regression_rmse(const dlc_regression *regression);
double dlc_regression_r2(const dlc_regression *regression);

#endif
