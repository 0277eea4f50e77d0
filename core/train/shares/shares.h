/* How a batch is shared out among the ranks: [parallel] batch_split.
 *
 *     even        each as much as the others
 *     1,1,0.5     in proportion to these, one a rank
 *     auto        in proportion to how fast the ranks are found to be
 *
 * Where nothing is said it is even; with a solver whose ranks may be ahead of each
 * other it begins as even and goes on as auto (reshare.h).
 *
 * A rank's share is a contiguous stretch of the batch; the stretches lie in rank order.
 * Servers, the last ranks where a solver has some, get none.
 */
#ifndef DLC_TRAIN_SHARES_H
#define DLC_TRAIN_SHARES_H

#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

/* Start with {0}, which is even. */
typedef struct dlc_shares {
    int measured; /* auto */
    int open;     /* nothing was said */
    double *proportion;
    int32_t proportions; /* 0: none were given */

    /* From dlc_shares_deal on. */
    int64_t *count; /* samples of each rank */
    int32_t ranks, servers;
    int64_t batch;

    /* See dlc_shares_prove. */
    int64_t *before; /* the shares before these */
    double took; /* seconds of an iteration with them; 0: there is nothing to prove */
    double held; /* ... with those that were taken back; 0: none were */
} dlc_shares;

void dlc_shares_free(dlc_shares *shares); /* a zeroed one is allowed */

/* DLC_ERR_CONFIG with what is wrong as the detail sentence. NULL: nothing was said. */
dlc_status dlc_shares_parse(const char *text, dlc_shares *shares);

/* Shares `batch` out among `ranks` of which the last `servers` get nothing: in the
 * proportions that were given, which must then be as many as there are ranks, by
 * largest remainders; who has a proportion that is not 0 gets a sample at least. Before
 * speeds are known `auto` is even. */
dlc_status dlc_shares_deal(dlc_shares *shares, int64_t batch, int32_t ranks,
                           int32_t servers);

/* How fast a rank is. */
typedef struct dlc_rank_pace {
    double speed; /* samples a second, while it computes */
    double fixed; /* seconds of an iteration that don't depend on its share */
} dlc_rank_pace;

/* The same batch among the same ranks, whose paces these are (those of servers don't
 * count). All of them are done at about the same time, and each gets one sample at
 * least; where that costs little, in rounder numbers, which layers may like better.
 * `count` gets one number a rank. */
void dlc_shares_balance(const dlc_shares *shares, const dlc_rank_pace *pace,
                        int64_t *count);

/* How long the slowest needs for its part of such a batch, in seconds. */
double dlc_shares_seconds(const dlc_shares *shares, const dlc_rank_pace *pace,
                          const int64_t *count);

/* One number a rank, whose sum is the batch; until the next deal. `seconds`: what an
 * iteration took with those that there were; 0 if nobody knows. */
void dlc_shares_take(dlc_shares *shares, const int64_t *count, double seconds);

/* What an iteration takes with the shares that were taken last. Paces are those that
 * are seen with the shares of that time: a rank that waits for others looks faster than
 * it is when it doesn't (quotas, turbo), and by its pace alone it would be given more
 * and more. So where it takes longer now, those before are back, which returns 1, and
 * stay: */
int dlc_shares_prove(dlc_shares *shares, double seconds);
/* 1 until iterations take clearly longer than they did with them. */
int dlc_shares_are_held(const dlc_shares *shares, double seconds);

/* A rank's stretch. */
void dlc_shares_of(const dlc_shares *shares, int32_t rank, int64_t *offset,
                   int64_t *count);
/* Has every rank that is no server as much as the others, give or take a sample? */
int dlc_shares_are_even(const dlc_shares *shares);
/* Appends "80,80,32", which [parallel] batch_split takes. */
void dlc_shares_print(const dlc_shares *shares, dlc_text *text);

#endif
