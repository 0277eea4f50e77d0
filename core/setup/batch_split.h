/* How a batch is split over the ranks: [parallel] batch_split.
 *
 *     equal       the same number of samples for each rank
 *     1,1,0.5     in these proportions, one for each rank
 *     auto        in proportion to the measured throughput of the ranks
 *
 * The default is equal; with a solver whose ranks may be ahead of each other it begins
 * as equal and continues as auto (rebalance.h).
 *
 * A rank's samples are a contiguous range of the batch; ranges are in the order of
 * ranks. Pipeline stages split each micro-batch by the same proportions (mesh.h), and
 * `count` and `batch` are then of all stages together, each of which has all samples.
 * Servers, the last ranks with some solvers, get none. */
#ifndef DLC_SETUP_BATCH_SPLIT_H
#define DLC_SETUP_BATCH_SPLIT_H

#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

/* Initialize with {0}, which is equal. */
typedef struct dlc_batch_split {
    int is_auto;    /* auto */
    int is_default; /* not set */
    double *proportion;
    int32_t proportions; /* 0: none were given */

    /* Set by dlc_batch_split_assign. */
    int64_t *count; /* samples of each rank */
    int32_t ranks, servers;
    int64_t batch;

    /* State of dlc_batch_split_verify. */
    int64_t *previous;       /* the previous split */
    double previous_seconds; /* seconds of an iteration with it; 0: nothing to verify */
    double kept_seconds; /* seconds of an iteration with a split that was reverted; 0:
                            none */
} dlc_batch_split;

void dlc_batch_split_free(dlc_batch_split *split); /* a zeroed one is allowed */

/* Parses the setting; NULL: not set. DLC_ERR_CONFIG with a sentence. */
dlc_status dlc_batch_split_parse(const char *text, dlc_batch_split *split);

/* Splits `batch` over `ranks`, of which the last `servers` get nothing: in the given
 * proportions, which must be as many as there are ranks, by largest remainders; a rank
 * with a proportion above 0 gets at least one sample. `auto` is equal at first.
 * DLC_ERR_CONFIG with a sentence if that is impossible. */
dlc_status dlc_batch_split_assign(dlc_batch_split *split, int64_t batch, int32_t ranks,
                                  int32_t servers);

/* Measured throughput of a rank. */
typedef struct dlc_rank_throughput {
    double samples_per_s; /* samples a second, while it computes */
    double fixed_seconds; /* seconds of an iteration that don't depend on its samples */
} dlc_rank_throughput;

/* Splits the same batch over the same ranks by their throughput (servers are ignored):
 * all finish at about the same time, and each gets at least one sample; in rounder
 * numbers, which layers may prefer, where that costs little. Writes one number for each
 * rank to `count`. */
void dlc_batch_split_balance(const dlc_batch_split *split,
                             const dlc_rank_throughput *throughput, int64_t *count);

/* Seconds that the slowest rank needs for its part of such a split. */
double dlc_batch_split_seconds(const dlc_batch_split *split,
                               const dlc_rank_throughput *throughput,
                               const int64_t *count);

/* Sets a split, one number for each rank, whose sum must be the batch; valid until the
 * next dlc_batch_split_assign. `seconds`: what an iteration took with the previous
 * split; 0: unknown. */
void dlc_batch_split_set(dlc_batch_split *split, const int64_t *count, double seconds);

/* Compares the seconds of an iteration with the split that was set last to those
 * before. A rank that waits for others is measured as faster than it is when it doesn't
 * wait (quotas, turbo), so by throughput alone it might get more and more samples. If
 * iterations now take longer, restores the previous split, keeps it and returns 1. */
int dlc_batch_split_verify(dlc_batch_split *split, double seconds);
/* Is the restored split to be kept? Yes, until iterations take clearly longer with it.
 */
int dlc_batch_split_is_kept(const dlc_batch_split *split, double seconds);

/* The range of a rank's samples in the batch. */
void dlc_batch_split_range(const dlc_batch_split *split, int32_t rank, int64_t *offset,
                           int64_t *count);
/* The first rank with the most samples. */
int32_t dlc_batch_split_most(const dlc_batch_split *split);
/* Has each rank that is no server as many samples as the others, up to one? */
int dlc_batch_split_is_equal(const dlc_batch_split *split);
/* Appends "80,80,32", which [parallel] batch_split accepts. */
void dlc_batch_split_print(const dlc_batch_split *split, dlc_text *text);

#endif
