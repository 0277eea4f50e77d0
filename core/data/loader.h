/* Loading: from the number of a sample to what the net reads. A sample is read, decoded
 * if it is the file of a picture, and augmented. Called by the feed's threads, and by
 * whoever wants single samples.
 *
 * Threads: any, at the same time, each with a scratch of its own. Sources that several
 * threads may not read at once are read one at a time. */
#ifndef DLC_DATA_LOADER_H
#define DLC_DATA_LOADER_H

#include <pthread.h>

#include "data/augment.h"
#include "data/samples.h"

typedef struct dlc_loader_args {
    const dlc_data_ops *ops;
    dlc_source *source; /* open; outlives the loader */
    int concurrent;     /* DLC_DATA_CONCURRENT is set */
    dlc_augment augment;
    uint64_t seed;
    int test;        /* nothing is drawn */
    int labels_only; /* images are neither read nor made */
    int keep_bytes;  /* images that are bytes stay bytes */
} dlc_loader_args;

/* Initialize with {0}. */
typedef struct dlc_loader {
    dlc_loader_args args;
    dlc_samples samples;
    dlc_shape shape; /* of an image that is loaded: C, H, W */
    dlc_dtype dtype; /* DLC_F32; or DLC_U8, to be converted to (byte - mean) * scale */
    int as_read;     /* images are what the source gives, unchanged */
    size_t in_bytes; /* of an image of the source */
    size_t bytes;    /* of an image that is loaded */
    pthread_mutex_t lock; /* held by who reads, unless the source is concurrent */
    int has_lock;
} dlc_loader;

/* Describes the source and determines what is loaded. DLC_ERR_CONFIG if the settings do
 * not fit the samples. */
dlc_status dlc_loader_open(const dlc_loader_args *args, dlc_loader *loader);
void dlc_loader_close(dlc_loader *loader); /* a zeroed one is allowed */

/* The memory of one thread. Start with {0}. */
typedef struct dlc_load_scratch {
    dlc_read_sample read;
} dlc_load_scratch;
void dlc_load_scratch_free(dlc_load_scratch *scratch);

/* Loads sample `index` to `image`, as the one at `position` of the endless sequence,
 * which the random numbers depend on. */
dlc_status dlc_loader_load(dlc_loader *loader, dlc_load_scratch *scratch, int64_t index,
                           uint64_t position, void *image, int32_t *label);

#endif
