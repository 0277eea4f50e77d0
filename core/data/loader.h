/* Loading: from the number of a sample to what the net reads. The fields of a sample
 * are read; pictures are decoded and transformed, with their masks, and everything
 * becomes float32 or int32. Called by the feed's threads, and by whoever wants single
 * samples.
 *
 * Threads: any, at the same time, each with a scratch of its own. Sources that several
 * threads may not read at once are read one at a time. */
#ifndef DLC_DATA_LOADER_H
#define DLC_DATA_LOADER_H

#include <pthread.h>
#include <stdint.h>

#include "base/status.h"
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

/* ---- Batches --------------------------------------------------------------------- */

/* Where the fields of the samples of a batch are in memory: all samples of a field one
 * after the other, each field on a cache line of its own. */
typedef struct dlc_batch_layout {
    const dlc_loader *loader;
    size_t offset[DLC_NET_FIELDS];
    size_t bytes;
} dlc_batch_layout;

/* The layout of a batch of so many samples. The loader outlives it. */
dlc_status dlc_batch_layout_make(const dlc_loader *loader, size_t samples,
                                 dlc_batch_layout *layout);
/* Sets to[i] to field i of a sample of the batch at `base`. */
void dlc_batch_find(const dlc_batch_layout *layout, void *base, int32_t sample,
                    void *to[DLC_NET_FIELDS]);
/* Makes a sample one that counts for nothing: sets all bits of its labels, and clears
 * the rest unless only labels are meant. */
void dlc_batch_clear(const dlc_batch_layout *layout, void *const *to, int only_labels);
/* Is the second field the class of a sample? */
int dlc_batch_has_classes(const dlc_batch_layout *layout);

/* ---- Skipped samples ------------------------------------------------------------- */

/* Samples that cannot be read and are skipped: which, and how many they may be. Any
 * thread. */

/* Initialize with dlc_skips_open. */
typedef struct dlc_skips {
    pthread_mutex_t lock;
    int64_t *index; /* own; of the samples, in the order in which they were found */
    int64_t count, most;
    int is_open;
} dlc_skips;

/* At most `most` samples may be skipped; 0: none, unless the user allows it; -1: none,
 * whatever the user says. */
dlc_status dlc_skips_open(int64_t most, dlc_skips *skips);
void dlc_skips_close(dlc_skips *skips); /* a zeroed one is allowed */

/* Notes that a sample cannot be read; dlc_detail() says why. The first ten are warned
 * of. DLC_ERR_DATA, with that sentence, if it is one too many; a sample that was
 * skipped before never is. */
dlc_status dlc_skips_add(dlc_skips *skips, int64_t index);
/* Was the sample skipped? */
int dlc_skips_have(dlc_skips *skips, int64_t index);
/* DLC_ERR_DATA: dlc_detail(), and how to skip such samples. */
dlc_status dlc_skips_advise(void);

#endif
