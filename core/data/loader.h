/* Loading: from the number of a sample to what the net reads. A sample is read, decoded
 * if it is the file of a picture, and transformed. Called by the feed's threads, and by
 * whoever wants single samples.
 *
 * Threads: any, at the same time, each with a scratch of its own. Sources that several
 * threads may not read at once are read one at a time. */
#ifndef DLC_DATA_LOADER_H
#define DLC_DATA_LOADER_H

#include <pthread.h>

#include "data/decoders.h"
#include "data/samples.h"
#include "data/transform.h"

typedef struct dlc_loader_args {
    const dlc_data_ops *ops;
    dlc_source *source;               /* open; outlives the loader */
    int concurrent;                   /* DLC_DATA_CONCURRENT is set */
    const dlc_decoders *decoders;     /* for files of pictures; NULL: there are none */
    int64_t max_pixels;               /* of a picture that is decoded */
    const dlc_transforms *transforms; /* outlive the loader */
    uint64_t seed;
    int test;        /* transforms draw by the index, not by the position */
    int labels_only; /* images are neither read nor made */
    int keep_bytes;  /* images that are bytes stay bytes */
} dlc_loader_args;

/* Initialize with {0}. */
typedef struct dlc_loader {
    dlc_loader_args args;
    dlc_samples samples;
    dlc_shape shape;      /* of an image that is loaded: C, H, W */
    dlc_dtype dtype;      /* DLC_F32; or DLC_U8, which the caller still normalizes */
    int as_read;          /* images are what the source gives, unchanged */
    size_t in_bytes;      /* of an image of the source; 0: they differ */
    size_t bytes;         /* of an image that is loaded */
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
    dlc_transform_scratch transform;
    dlc_transform_plan plan;
    unsigned char *pixels; /* as they are decoded */
    size_t room;
} dlc_load_scratch;
void dlc_load_scratch_free(dlc_load_scratch *scratch);

/* Loads sample `index` to `image`, as the one at `position` of the endless sequence,
 * which the random numbers depend on. DLC_ERR_DATA for a sample that cannot be read,
 * with its name. */
dlc_status dlc_loader_load(dlc_loader *loader, dlc_load_scratch *scratch, int64_t index,
                           uint64_t position, void *image, int32_t *label);

#endif
