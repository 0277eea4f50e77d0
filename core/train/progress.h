/* Shows the progress of training: messages on stderr while it runs (a progress bar on a
 * terminal), and one line of results on stdout for each test and each epoch. The log
 * file gets both. Rank 0 prints; other ranks only count. Owned by the training loop. */
#ifndef DLC_TRAIN_PROGRESS_H
#define DLC_TRAIN_PROGRESS_H

#include "train/evaluate.h"

typedef struct dlc_progress {
    const dlc_session *session;
    int is_shown;    /* on this rank, unless the training is a measurement */
    int64_t first;   /* iteration at which this run began */
    int64_t done;    /* iterations completed, including those of earlier runs */
    int64_t display; /* iterations between lines; 0: by time */
    uint64_t last_line, last_draw;
    uint64_t last_line_samples;
    double loss_sum; /* since the last line */
    int64_t loss_count;
    double loss;       /* smoothed, for the bar */
    double result_sum; /* training loss since the last line of results */
    int64_t result_count;
    double training_loss; /* as printed on that line; NaN before the first */

    /* Throughput, of training alone: tests and checkpoints are left out. */
    int64_t warm_up; /* iterations not counted */
    uint64_t samples, trained_ns;
    uint64_t began; /* when the current iteration began */
    double waited;  /* seconds of trained_ns in which this rank waited for samples */
    double waited_before; /* by the feed, when the current iteration began */
} dlc_progress;

/* `is_shown` 0: nothing is printed, as when a command measures by training. */
void dlc_progress_begin(dlc_progress *progress, const dlc_session *session,
                        int is_shown);
/* Logs what is about to run: net, batch, learning rate, length. */
void dlc_progress_announce(const dlc_progress *progress);
/* Called before and after each iteration. */
void dlc_progress_iteration_begin(dlc_progress *progress);
void dlc_progress_iteration_end(dlc_progress *progress, double loss);
/* Counts the time since dlc_progress_iteration_begin, spent waiting for other ranks, as
 * training. */
void dlc_progress_wait_end(dlc_progress *progress);
/* Prints a line of results: the training loss since the previous one, and the metrics
 * of the test, or NULL if there was none. */
void dlc_progress_result(dlc_progress *progress, const dlc_evaluation *evaluation);
void dlc_progress_end(dlc_progress *progress);

/* Samples per second over all ranks; 0 before the warm-up is over. */
double dlc_progress_throughput(const dlc_progress *progress);
/* The share of that time in which this rank waited for samples, 0 .. 1. */
double dlc_progress_data_wait(const dlc_progress *progress);
/* The mean since the last line of results, or the mean on that line if no iteration
 * followed; NaN before the first iteration. */
double dlc_progress_training_loss(const dlc_progress *progress);

#endif
