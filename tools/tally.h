/* Counts how a net classifies: which class it takes for which, and how often the label
 * is among the best. Used by `dlcore test`. */
#ifndef DLC_TOOLS_TALLY_H
#define DLC_TOOLS_TALLY_H

#include "train/evaluate.h"

typedef struct dlc_tally {
    int32_t classes, top; /* top: 1 .. classes */
    /* Own; [label * classes + prediction]: samples. Every count fits exactly. */
    double *confusion;
    double in_top; /* samples whose label is among the `top` best scores */
} dlc_tally;

dlc_status dlc_tally_open(int32_t classes, int32_t top, dlc_tally *tally);
void dlc_tally_close(dlc_tally *tally); /* one of {0} is allowed */

/* Counts a batch of scores, one per class; a dlc_evaluation_reader's call, `context` is
 * the tally. As for the accuracy of a test, a class whose score equals the label's
 * ranks before it. Samples without a label do not count. */
dlc_status dlc_tally_take(void *context, const dlc_evaluation_batch *batch);

/* Collective: adds up the tallies of all ranks. */
dlc_status dlc_tally_sum(dlc_tally *tally, dlc_job *job);

/* Samples with this label; with this prediction; of both. */
double dlc_tally_labelled(const dlc_tally *tally, int32_t class);
double dlc_tally_predicted(const dlc_tally *tally, int32_t class);
double dlc_tally_at(const dlc_tally *tally, int32_t label, int32_t prediction);
double dlc_tally_samples(const dlc_tally *tally);
/* The share of all samples that is classified rightly; 0 without any. */
double dlc_tally_accuracy(const dlc_tally *tally);

#endif
