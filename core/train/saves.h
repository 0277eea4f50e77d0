/* When a run writes checkpoints: at iterations, by the clock, when a test was the best
 * so far, when a signal asks, at the end. Owned by the training loop (train.c).
 *
 * Threads: the train thread.
 */
#ifndef DLC_TRAIN_SAVES_H
#define DLC_TRAIN_SAVES_H

#include "train/evaluate.h"
#include "train/session.h"

typedef struct dlc_saves {
    dlc_session *session;
    int64_t interval; /* iterations; 0: none by their number */
    double seconds;   /* 0: none by the clock */
    int last;         /* one at the end */
    int keeps_best;
    uint64_t tried;  /* when it was last tried, or training began */
    int asked;       /* rank 0, by the clock; not written yet */
    int improved;    /* the last test was the best so far, and is not written yet */
    int64_t written; /* the iteration of the last checkpoint; -1: none yet */
    char *path; /* rank 0: of the last checkpoint, for the caller to free at last; NULL:
                   none yet */
} dlc_saves;

/* For a session whose run folder is there, or without any (then nothing is written). */
void dlc_saves_begin(dlc_saves *saves, dlc_session *session);

/* Before each iteration: is it time for this rank to ask for a checkpoint? Rank 0's
 * clock counts; the others hear of it as of a signal. */
int dlc_saves_must_ask(dlc_saves *saves);

/* Behind each test, on all ranks with the same numbers. */
void dlc_saves_note_test(dlc_saves *saves, const dlc_evaluation *evaluation);
/* Of training, for the next checkpoint to tell. */
void dlc_saves_note_loss(dlc_saves *saves, double loss);

/* Is one due behind this iteration, though no rank was asked for it? */
int dlc_saves_is_due(const dlc_saves *saves);

/* All ranks together, with nothing under way. Where the file cannot be written this is
 * an error with `must`; without it is a warning, and the next one that is due tries
 * again. */
dlc_status dlc_saves_write(dlc_saves *saves, int must);

#endif
