/* The statistics of batch_norm over the samples of several ranks (dlc_layer_group): the
 * values of each rank are gathered, and every rank combines them in the same order.
 * Blocks of all ranks lie one after the other in scratch memory (moments.h). */
#ifndef ONEDNN_NORM_GROUP_H
#define ONEDNN_NORM_GROUP_H

#include <dlcore/layer.h>

#include <stddef.h>

#include "../shared/moments.h"

typedef struct norm_group {
    const dlc_layer_group *ranks;
    size_t channels;
    double *blocks;
} norm_group;

/* Bytes of `blocks`. */
size_t norm_group_bytes(const dlc_layer_group *ranks, size_t channels);

/* This rank's block, to be filled in: moments_put, or the sums of a channel and, after
 * those of all channels, the second sums. */
double *norm_group_own(const norm_group *group, int kinds);

/* Gather the blocks of all ranks and combine them. Returns the result in *all. */
dlc_status norm_group_moments(const norm_group *group, const double **all);
dlc_status norm_group_sums(const norm_group *group, const double **all);

#endif
