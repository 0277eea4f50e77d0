/* What a checkpoint tells of its run besides tensors, and what a run that resumes takes
 * from it: numbers alone, alike on all ranks. */
#ifndef DLC_TRAIN_RUN_STATE_H
#define DLC_TRAIN_RUN_STATE_H

#include <dlcore/solver.h>

typedef struct dlc_run_state {
    double training_loss;       /* NaN: not known yet; so of the others */
    double test_loss, accuracy; /* of the last test */
    int64_t tested;             /* the iteration behind which it was; -1: none yet */
    int64_t best;               /* the iteration of the best checkpoint; -1: none yet */
    double best_loss, best_accuracy;
    int has_schedule; /* it was resumed with another batch or length */
    dlc_rate_schedule schedule;

    /* Of a run that resumes. */
    int64_t begin;       /* its first iteration */
    int was_done;        /* the run had come to its end, */
    int is_nothing_left; /* and has nothing to do now */
} dlc_run_state;

dlc_run_state dlc_run_state_new(void);

#endif
