/* The training loop: iterations, tests, checkpoints, rebalancing, and the report at the
 * end. Called by `dlcore train`. */
#ifndef DLC_TRAIN_TRAIN_H
#define DLC_TRAIN_TRAIN_H

#include "base/json.h"
#include "checkpoint/weights.h"
#include "session/session.h"

typedef struct dlc_train_options {
    const dlc_weights
        *weights; /* to start from where no checkpoint is resumed, or NULL */
    struct dlc_run_folder *folder; /* open; NULL: no checkpoint is read or written */
    int is_trial; /* only throughput is measured: a loss that is not finite is no error,
                   * and nothing is printed */
} dlc_train_options;

/* The result; the same on every rank but for `checkpoint`, which only rank 0 has. */
typedef struct dlc_train_result {
    double training_loss;           /* mean since the last line of results */
    double test_loss, accuracy;     /* of the last test; NaN without any */
    double images_per_s;            /* training, over all ranks, after warm-up */
    double data_wait;               /* share of that time that rank 0 had no samples */
    double seconds;                 /* since the process was started */
    double first_iteration_seconds; /* from process start to the end of iteration 1 */
    double target_seconds; /* until the target accuracy was reached; NaN if not */
    double exchange_bytes, exchange_seconds, hidden;
    int stopped;      /* by a signal */
    int is_nothing;   /* a finished run was resumed: nothing was left to train */
    char *checkpoint; /* own; NULL if none was written */
} dlc_train_result;

void dlc_train_result_free(dlc_train_result *result); /* a zeroed one is allowed */

/* Trains for as long as the setup says. Collective: all ranks call it. On failure
 * `result` holds nothing to free. */
dlc_status dlc_train(dlc_session *session, const dlc_train_options *options,
                     dlc_train_result *result);

/* Writes the JSON document that `dlcore train --json` prints at the end. */
void dlc_train_report_json(const dlc_session *session, const dlc_train_result *result,
                           dlc_json *json);

#endif
