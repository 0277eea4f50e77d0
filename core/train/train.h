/* Training: the loop that all of this is for. */
#ifndef DLC_TRAIN_TRAIN_H
#define DLC_TRAIN_TRAIN_H

#include "base/json.h"
#include "train/asynchronous/staleness.h"
#include "train/session.h"

typedef struct dlc_train_options {
    const char *weights; /* to start from where no checkpoint is resumed, or NULL */
    struct dlc_run_folder *folder; /* open; NULL: no checkpoint is read or written */
    int is_trial; /* only speed is measured: a loss that is not finite is no error */
} dlc_train_options;

/* What came of it; the same on every rank but `checkpoint`, which rank 0 has. */
typedef struct dlc_train_result {
    double training_loss;       /* mean since the last line of results before the end */
    double test_loss, accuracy; /* of the last test; NaN where there was none */
    double images_per_s;        /* training, all ranks, after warm-up */
    double seconds;             /* since the process was started */
    double first_iteration_seconds; /* from the process's start to the end of it */
    double target_seconds; /* until the target accuracy was reached; NaN if not */
    double exchange_bytes, exchange_seconds, hidden;
    double bubble; /* the share of the time in which stages stood still */
    dlc_staleness staleness;
    int stopped;      /* by a signal */
    int is_nothing;   /* a run that was done was resumed: nothing was trained */
    char *checkpoint; /* own; NULL if none was written */
} dlc_train_result;

void dlc_train_result_free(dlc_train_result *result); /* a zeroed one is allowed */

/* Trains until the setup's end, all ranks together. */
dlc_status dlc_train(dlc_session *session, const dlc_train_options *options,
                     dlc_train_result *result);

/* The JSON document that `dlcore train --json` ends with. */
void dlc_train_report_json(const dlc_session *session, const dlc_train_result *result,
                           dlc_json *json);

#endif
