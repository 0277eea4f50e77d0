/* Gathers and combines statistics. */
#include "norm_group.h"

size_t norm_group_bytes(const dlc_layer_group *ranks, size_t channels) {
    return (size_t)ranks->ranks * MOMENT_KINDS * channels * sizeof(double);
}

double *norm_group_own(const norm_group *group, int kinds) {
    return block_of(group->blocks, kinds, (long long)group->channels,
                    group->ranks->rank);
}

static void merge_moments(double *into, const double *from, size_t count) {
    long long channels = (long long)count;
    for (long long c = 0; c < channels; c++)
        moments_put(into, channels, c,
                    moments_merge(moments_at(into, channels, c),
                                  moments_at(from, channels, c)));
}

static void merge_sums(double *into, const double *from, size_t count) {
    for (size_t i = 0; i < SUM_KINDS * count; i++)
        into[i] += from[i];
}

/* Gathers the blocks of all ranks, and merges them into the first. */
static dlc_status combine(const norm_group *group, int kinds,
                          void (*merge)(double *into, const double *from, size_t count),
                          const double **all) {
    long long channels = (long long)group->channels;
    size_t bytes = (size_t)kinds * group->channels * sizeof(double);
    dlc_status status = group->ranks->all_gather(group->ranks->context, group->blocks,
                                                 bytes);
    if (status != DLC_OK)
        return status;
    for (int32_t i = 0; i + 1 < group->ranks->ranks; i++) {
        const dlc_merge *step = &group->ranks->merges[i];
        merge(block_of(group->blocks, kinds, channels, step->into),
              block_of(group->blocks, kinds, channels, step->from), group->channels);
    }
    *all = group->blocks;
    return DLC_OK;
}

dlc_status norm_group_moments(const norm_group *group, const double **all) {
    return combine(group, MOMENT_KINDS, merge_moments, all);
}

dlc_status norm_group_sums(const norm_group *group, const double **all) {
    return combine(group, SUM_KINDS, merge_sums, all);
}
