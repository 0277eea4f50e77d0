/* What a checkpoint tells of its run besides tensors, and what a run that resumes takes
 * from it: numbers alone, alike on all ranks. */
#ifndef DLC_TRAIN_RUN_STATE_H
#define DLC_TRAIN_RUN_STATE_H

#include <stdint.h>

typedef struct dlc_run_state {
    double training_loss;       /* NaN: not known yet; so of the others */
    double test_loss, accuracy; /* of the last test */
    int64_t tested;             /* the iteration behind which it was; -1: none yet */
    int64_t best;               /* the iteration of the best checkpoint; -1: none yet */
    double best_loss, best_accuracy;
} dlc_run_state;

dlc_run_state dlc_run_state_new(void);

#endif
