/* Where the fields of the samples of a batch are in memory: all samples of a field one
 * after the other, each field on a cache line of its own. Used by the feed, and by
 * whoever loads single samples. */
#ifndef DLC_DATA_BATCH_LAYOUT_H
#define DLC_DATA_BATCH_LAYOUT_H

#include "data/loader.h"

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

#endif
