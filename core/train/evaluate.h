/* A test: one pass over [data.test], split among the ranks. Called by the training
 * loop, by `dlcore test` and by `dlcore predict`. */
#ifndef DLC_TRAIN_EVALUATE_H
#define DLC_TRAIN_EVALUATE_H

#include "session/evaluation.h"
#include "session/session.h"

/* What the session's output (session/output.h) is for the samples of one batch of this
 * rank. Valid during the call. */
typedef struct dlc_evaluation_batch {
    int64_t first; /* number of the first sample, among those of the test */
    int32_t samples;
    const int32_t *labels;
    const float *values; /* samples x `each` */
    size_t each;
    const void *const *field; /* of the samples, as in dlc_batch */
} dlc_evaluation_batch;

typedef struct dlc_evaluation_reader {
    /* Called after each batch, in order; a status other than DLC_OK ends the test. */
    dlc_status (*take)(void *context, const dlc_evaluation_batch *batch);
    void *context;
} dlc_evaluation_reader;

/* Collective: all ranks call it, and all get bitwise identical results. `reader`: gets
 * the session's output of this rank's samples; NULL: nobody does. */
dlc_status dlc_evaluate(dlc_session *session, const dlc_evaluation_reader *reader,
                        dlc_evaluation *evaluation);

#endif
