/* The state of a run that a checkpoint records besides tensors, and that a resumed run
 * takes from it: plain numbers, the same on all ranks. */
#ifndef DLC_CHECKPOINT_RUN_STATE_H
#define DLC_CHECKPOINT_RUN_STATE_H

#include "solver/schedule.h"

typedef struct dlc_run_state {
    /* Losses and accuracies are NaN while they are unknown. */
    double training_loss;
    double test_loss, accuracy; /* of the last test */
    int64_t tested;             /* iteration after which that was; -1: none yet */
    int64_t best;               /* iteration of the best checkpoint; -1: none yet */
    double best_loss, best_accuracy;
    int has_schedule; /* it was resumed with another batch or length */
    dlc_lr_schedule schedule;

    /* In a resumed run. */
    int64_t begin;       /* its first iteration */
    int was_done;        /* the earlier run had finished */
    int is_nothing_left; /* there are no iterations left to run */
} dlc_run_state;

/* The state of a run that has not begun. */
dlc_run_state dlc_run_state_new(void);

#endif
