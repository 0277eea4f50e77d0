/* Checkpoints hold all that a run needs to continue as if it had never stopped.
 *
 * A checkpoint is a safetensors file: each parameter under its name ("conv1.weight") in
 * plain layout, each of the solver's slots as "slot/parameter"
 * ("momentum/conv1.weight"), the consistency model's own bytes as "consistency";
 * metadata under "dlcore.*". The random state and the data cursor are functions of the
 * seed and the iteration.
 *
 * The checkpointer decides when a run writes them: every so many iterations or minutes,
 * when a test is the best so far, when a signal asks for one, and at the end. Owned by
 * the training loop (train.c). Rank 0 reads and writes the files.
 *
 * Threads: the train thread.
 */
#ifndef DLC_CHECKPOINT_CHECKPOINT_H
#define DLC_CHECKPOINT_CHECKPOINT_H

#include "session/evaluation.h"
#include "session/session.h"

typedef struct dlc_checkpointer {
    dlc_session *session;
    int64_t interval; /* iterations between checkpoints; 0: none by iteration */
    double seconds;   /* time between checkpoints; 0: none by time */
    int last;         /* write one at the end */
    int keeps_best;   /* write one after the best test */
    uint64_t tried;   /* time of the last attempt, or of the start of training */
    int asked;        /* last rank: it is time for one, which is not written yet */
    int improved;     /* the last test was the best, and is not written yet */
    int64_t written;  /* the iteration of the last checkpoint; -1: none yet */
    char *path;       /* rank 0: the last one, which the caller frees; NULL: none yet */
} dlc_checkpointer;

/* Starts the clock. If the session has no run folder, nothing is ever written. */
void dlc_checkpointer_init(dlc_checkpointer *checkpointer, dlc_session *session);

/* Before each iteration: must this rank vote for a checkpoint? Only the last rank's
 * clock counts; its vote reaches the others with the control words, as a signal does.
 */
int dlc_checkpointer_must_ask(dlc_checkpointer *checkpointer);

/* Called after each test, on all ranks with the same numbers. */
void dlc_checkpointer_note_test(dlc_checkpointer *checkpointer,
                                const dlc_evaluation *evaluation);
/* Sets the training loss that the next checkpoint records. */
void dlc_checkpointer_note_loss(dlc_checkpointer *checkpointer, double loss);

/* Is a checkpoint due after this iteration, by its number or after the best test? */
int dlc_checkpointer_is_due(const dlc_checkpointer *checkpointer);

/* Writes NET-ITERATION.safetensors into the run's folder (run_folder.h), and removes
 * checkpoints that are not kept. Collective, with no iteration in flight. If the file
 * cannot be written this fails with `must`, and only warns without it: the next
 * checkpoint that is due tries again. */
dlc_status dlc_checkpointer_write(dlc_checkpointer *checkpointer, int must);

/* Restores weights, solver state and iteration from the checkpoint that the run folder
 * names, or from the newest one that is intact. Collective. The consistency model must
 * not have been started. */
dlc_status dlc_checkpoint_resume(dlc_session *session);

/* All ranks, after the solver was started: DLC_ERR_CONFIG if a finished run is asked
 * for more iterations although its schedule ended with a learning rate of 0. */
dlc_status dlc_resume_schedule_check_rate(const dlc_session *session);

#endif
