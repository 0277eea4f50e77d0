/* A fake data source whose samples are their numbers, for tests of the feed. */
#include "numbered.h"

#include <time.h>

#include "base/status.h"

static dlc_status numbered_describe(dlc_source *source, dlc_data_info *info) {
    if (source->info)
        *info = *source->info;
    else
        *info = (dlc_data_info){.size = sizeof *info,
                                .samples = source->samples,
                                .shape = {3, {2, 3, 4}},
                                .dtype = DLC_U8,
                                .classes = source->classes};
    return DLC_OK;
}

static dlc_status numbered_read(dlc_source *source, int32_t n, const int64_t *index,
                                void *data, int32_t *labels) {
    if (atomic_exchange(&source->busy, 1))
        atomic_store(&source->collision, 1);
    int64_t reads = atomic_fetch_add(&source->reads, 1) + 1;
    dlc_status status = DLC_OK;
    if (source->slow)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    if (reads == source->fail_read)
        status = dlc_fail(DLC_ERR_DATA, "read %lld failed", (long long)reads);
    for (int32_t i = 0; source->bad_from && i < n; i++)
        if (index[i] >= source->bad_from)
            status = dlc_fail(DLC_ERR_DATA, "sample %lld is bad", (long long)index[i]);
    for (int32_t i = 0; status == DLC_OK && i < n; i++) {
        labels[i] = (int32_t)index[i];
        for (int64_t k = 0; k < NUMBERED_COUNT; k++)
            ((unsigned char *)data)[i * NUMBERED_COUNT + k] =
                (unsigned char)((10 * index[i] + k) % 251);
    }
    atomic_store(&source->busy, 0);
    return status;
}

const dlc_data_ops numbered_ops = {
    .size = sizeof(dlc_data_ops),
    .describe = numbered_describe,
    .read = numbered_read,
};

dlc_feed_args numbered_args(struct dlc_source *source, int32_t batch) {
    return (dlc_feed_args){
        .ops = &numbered_ops,
        .source = source,
        .transforms = listed_for_good(""),
        .seed = 11,
        .shuffle = 1,
        .prefetch = 2,
        .count = batch,
        .batch = batch,
        .ranks = 1,
    };
}
