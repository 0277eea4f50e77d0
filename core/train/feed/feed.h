/* The feed: turns a data source into batches, ahead of time.
 *
 * One background thread reads samples, converts and augments them into a ring of
 * batches, where it is told so with others' help; dlc_feed_next hands out one after the
 * other without copying. What comes is float32, or the source's bytes, cut and swapped,
 * for a device that makes float32 of them.
 *
 * Which samples make up a batch does not depend on the number of ranks. In training
 * the samples of all epochs form one endless sequence: position p belongs to epoch
 * p / N and is sample order(seed, epoch)[p % N]; iteration t of a job takes the
 * positions [t * batch, (t + 1) * batch), of which a rank takes its own stretch.
 * Augmentation draws its random numbers by (seed, p). So iteration t is the same
 * after a resume, for one rank or for eight.
 *
 * In a test the ranks share the samples out, in order, each one once; the last
 * batch is filled up with samples labelled DLC_LABEL_NONE.
 *
 * Threads: all calls on one feed come from one thread at a time. The source is the
 * feed's from open to close.
 */
#ifndef DLC_TRAIN_FEED_H
#define DLC_TRAIN_FEED_H

#include <dlcore/data.h>
#include <dlcore/device.h>

#include "train/feed/augment.h"

typedef struct dlc_feed dlc_feed;

typedef struct dlc_feed_args {
    const dlc_data_ops *ops;
    dlc_source *source; /* open; outlives the feed */
    dlc_augment augment;
    uint64_t seed;
    int shuffle;      /* training only */
    int32_t prefetch; /* batches kept ready; 0: 1 to 3, by their size */
    int32_t threads;  /* that make samples; 0 and 1: the one that reads */
    int labels_only;  /* nobody looks at the data, which are not made */
    int low_memory;   /* then none is kept ready where `prefetch` is 0 */
    int keep_bytes;   /* bytes of a source stay bytes */
    int32_t count;    /* samples in a batch of this rank, at least 1 */
    /* Batches lie in memory that copies fastest to this device; NULL: in any. */
    const dlc_device_ops *device_ops;
    dlc_device *device;

    /* Training: samples [offset, offset + count) of the job's `batch` are ours. */
    int64_t batch, offset;

    /* Test (batch and offset unused): rank `rank` of `ranks` goes through samples
     * [N * rank / ranks, N * (rank + 1) / ranks), again and again. */
    int test;
    int32_t rank, ranks;
} dlc_feed_args;

typedef struct dlc_batch {
    const void *data;      /* count x C x H x W, of dlc_feed_dtype */
    const int32_t *labels; /* count */
    int32_t samples;       /* of which are real: count, or less at the end of a test */
    int64_t iteration;     /* in a test: batch of the pass, from 0 */
} dlc_batch;

/* Checks the arguments and starts reading. */
dlc_status dlc_feed_open(const dlc_feed_args *args, dlc_feed **feed);
void dlc_feed_close(dlc_feed *feed); /* NULL allowed; joins the thread */

/* What comes out: C, H, W of a sample, cropped. */
dlc_shape dlc_feed_shape(const dlc_feed *feed);
/* As what it comes: DLC_F32; or DLC_U8, still to be made (byte - mean) * scale, as
 * dlc_feed_augment has them. */
dlc_dtype dlc_feed_dtype(const dlc_feed *feed);
const dlc_augment *dlc_feed_augment(const dlc_feed *feed);
/* Samples of the source (all ranks). */
int64_t dlc_feed_samples(const dlc_feed *feed);
/* Test: batches of this rank in a pass; 0 where it has no samples. */
int64_t dlc_feed_batches(const dlc_feed *feed);

/* The next batch; blocks until it is ready. Its memory is the feed's and is valid
 * until the next call of dlc_feed_next. An error of the reading thread comes out
 * here, with its sentence, and again at every later call. */
dlc_status dlc_feed_next(dlc_feed *feed, dlc_batch *batch);

/* The next batch will be that of this iteration; costs nothing if it is so anyway.
 * In a test: 0 begins the next pass (which also happens by itself at the end). */
dlc_status dlc_feed_seek(dlc_feed *feed, int64_t iteration);

/* Are the labels of these samples among the source's classes? DLC_ERR_DATA: which of
 * them is not. */
dlc_status dlc_feed_check_labels(const dlc_data_info *info, const int64_t *index,
                                 const int32_t *labels, int32_t count);

/* Bytes that a feed with these arguments keeps, and those of one batch. */
dlc_status dlc_feed_bytes(const dlc_feed_args *args, uint64_t *bytes, uint64_t *batch);

/* The settings of [data] and [data.test] that belong to the core, not to a source:
 * shuffle, scale, mean, mirror, crop, pad, prefetch, threads. */
extern const dlc_option dlc_feed_options[];

/* Takes `augment`, `shuffle`, `prefetch` and `threads` from settings of that table;
 * reads them through `host`. The mean list stays the settings' own and must outlive the
 * feed. */
void dlc_feed_configure(const dlc_host *host, const dlc_settings *settings,
                        dlc_feed_args *args);

#endif
