/* How training is going: while it runs as messages on stderr (a bar, where that is a
 * terminal), and one line of results on stdout for each test and each epoch. The log
 * file has both. Rank 0 shows it; other ranks just keep count. */
#ifndef DLC_TRAIN_PROGRESS_H
#define DLC_TRAIN_PROGRESS_H

#include "train/evaluate.h"

typedef struct dlc_progress {
    const dlc_session *session;
    int64_t first;   /* iteration at which this run began */
    int64_t done;    /* iterations whose end it was told of, those before it too */
    int64_t display; /* iterations between lines; 0: by the clock */
    uint64_t last_line, last_draw;
    uint64_t last_line_samples;
    double loss_sum; /* since the last line */
    int64_t loss_count;
    double loss;       /* smoothed, for the bar */
    double result_sum; /* of the training loss since the last line of results */
    int64_t result_count;
    double training_loss; /* as that line said it; NaN before the first */

    /* Speed: training alone, tests and checkpoints left out. */
    int64_t warm_up; /* iterations not counted */
    uint64_t samples, trained_ns;
    uint64_t began; /* of the iteration under way */
} dlc_progress;

void dlc_progress_begin(dlc_progress *progress, const dlc_session *session);
/* What is about to happen: net, batch, learning rate, transport and why. */
void dlc_progress_announce(const dlc_progress *progress);
/* Around each iteration. */
void dlc_progress_iteration_begin(dlc_progress *progress);
void dlc_progress_iteration_end(dlc_progress *progress, double loss);
/* Since dlc_progress_iteration_begin it waited for other ranks: that is training, too.
 */
void dlc_progress_wait_end(dlc_progress *progress);
/* A line of results: the training loss since the one before, and the test's metrics;
 * NULL: there was no test here. */
void dlc_progress_result(dlc_progress *progress, const dlc_evaluation *evaluation);
void dlc_progress_end(dlc_progress *progress);

/* Samples a second over all ranks. */
double dlc_progress_speed(const dlc_progress *progress);
/* The mean since the last line of results, or that of this line; NaN before the first
 * iteration. */
double dlc_progress_training_loss(const dlc_progress *progress);

#endif
