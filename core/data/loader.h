/* Loading: from the number of a sample to what the net reads. The fields of a sample
 * are read; pictures are decoded and transformed, with their masks, and everything
 * becomes float32 or int32. Called by the feed's threads, and by whoever wants single
 * samples.
 *
 * Threads: any, at the same time, each with a scratch of its own. Sources that several
 * threads may not read at once are read one at a time. */
#ifndef DLC_DATA_LOADER_H
#define DLC_DATA_LOADER_H

#include "data/load_fields.h"

/* Describes the source and determines what is loaded. DLC_ERR_CONFIG if the settings do
 * not fit the samples. */
dlc_status dlc_loader_open(const dlc_loader_args *args, dlc_loader *loader);
void dlc_loader_close(dlc_loader *loader); /* a zeroed one is allowed */

void dlc_load_scratch_free(dlc_load_scratch *scratch);

/* Loads sample `index`, as the one at `position` of the endless sequence, which the
 * random numbers depend on: field i of the batch to to[i], unless it is not read.
 * DLC_ERR_DATA for a sample that cannot be read, with its name. */
dlc_status dlc_loader_load(dlc_loader *loader, dlc_load_scratch *scratch, int64_t index,
                           uint64_t position, void *const *to);

/* With `in_runs`: loads the samples index[0 .. count-1] in one call of the source, to
 * to[i] and what follows it. It fails without a name; then they are to be loaded one by
 * one. */
dlc_status dlc_loader_load_run(dlc_loader *loader, int32_t count, const int64_t *index,
                               void *const *to);

#endif
