/* The feed turns a data source into batches, ahead of time.
 *
 * A background thread loads samples into a ring of batches, with the help of a thread
 * pool if `threads` asks for one; each sample is a task. dlc_feed_next returns one
 * batch after the other without copying. Samples come out as float32, or as the
 * bytes, for a device that normalizes them.
 *
 * Which samples make up a batch does not depend on the number of ranks. In training
 * the samples of all epochs form one endless sequence: position p belongs to epoch
 * p / N and is sample order(seed, epoch)[p % N]; iteration t of a job takes the
 * positions [t * batch, (t + 1) * batch), of which each rank takes a range.
 * Augmentation draws its random numbers by (seed, p). So iteration t is the same
 * after a resume, for one rank or for eight.
 *
 * In a test the ranks split the samples, in order, each used once; the last batch is
 * padded with samples that do not count: all bits of their labels are set, which is
 * DLC_LABEL_NONE, and NaN of float32.
 *
 * Threads: all calls on one feed come from one thread at a time. From open to close
 * nobody else may use the source.
 */
#ifndef DLC_DATA_FEED_H
#define DLC_DATA_FEED_H

#include <dlcore/data.h>
#include <dlcore/device.h>

#include "base/text.h"
#include "data/loader.h"
#include "data/mix.h"

typedef struct dlc_feed dlc_feed;

typedef struct dlc_feed_args {
    const dlc_data_ops *ops;
    dlc_source *source;               /* open; outlives the feed */
    int concurrent;                   /* several threads may read it at once */
    const dlc_decoders *decoders;     /* for files of pictures; NULL: there are none */
    int64_t max_pixels;               /* of a picture that is decoded */
    const dlc_transforms *transforms; /* outlive the feed */
    int64_t max_skipped; /* samples that may be unreadable (dlc_skips_open) */
    uint64_t seed;
    int shuffle;            /* training only */
    int64_t shuffle_window; /* samples; 0: all are shuffled at once (order.h) */
    int32_t prefetch;       /* batches kept ready; 0: 1 to 3, by their size */
    int32_t ahead;          /* batches that dlc_feed_peek reaches */
    int32_t threads;        /* that load samples; 0 or 1: the reading thread does it */
    int low_memory;         /* if `prefetch` is 0, keep no batch ready */
    int keep_bytes;         /* samples that the source gives as bytes stay bytes */
    int32_t count;          /* samples in a batch of this rank, at least 1 */
    dlc_batch_fields fields;
    dlc_mix_settings mix;  /* training only */
    double min_visibility; /* of boxes (transform.h) */
    /* Batches are in memory that copies fastest to this device; NULL: in any memory. */
    const dlc_device_ops *device_ops;
    dlc_device *device;

    /* Training: this rank has samples [offset, offset + count) of the job's `batch`;
     * or, with `run`, that many from `offset` on, as many from `offset + stride` on,
     * ..., the last of which may be of the next batch. */
    int64_t batch, offset, run, stride;

    /* Test: of N samples from `first` on, rank `rank` of `ranks` goes through those
     * from N * rank / ranks to N * (rank + 1) / ranks - 1, again and again; or, with
     * `stride`, through samples [offset, offset + count) of each `stride` samples. */
    int test;
    int32_t rank, ranks;
    int64_t first, samples; /* N samples from this one on; samples 0: all */
} dlc_feed_args;

typedef struct dlc_batch {
    const void *field[DLC_NET_FIELDS]; /* values, sample after sample, of
                                          dlc_feed_field */
    const void *data;                  /* the first of them */
    const int32_t *labels; /* the second; DLC_LABEL_NONE where that is no class */
    int32_t samples;       /* that are real: count, or less at the end of a test */
    int64_t iteration;     /* in a test: batch of the pass, from 0 */
} dlc_batch;

/* Checks the arguments and starts reading. */
dlc_status dlc_feed_open(const dlc_feed_args *args, dlc_feed **feed);
void dlc_feed_close(dlc_feed *feed); /* NULL allowed; joins the thread */

/* The fields of a batch: what each sample has of field i. */
int32_t dlc_feed_fields(const dlc_feed *feed);
const dlc_loaded_field *dlc_feed_field(const dlc_feed *feed, int32_t i);
/* The shape of the data of a sample: C, H, W for an image. */
dlc_shape dlc_feed_shape(const dlc_feed *feed);
/* The type of the data: DLC_F32; or DLC_U8, which the caller still normalizes, with the
 * values of dlc_feed_transforms. */
dlc_dtype dlc_feed_dtype(const dlc_feed *feed);
const dlc_transforms *dlc_feed_transforms(const dlc_feed *feed);
/* The number of samples of the source, over all ranks; and in a test, those N that it
 * goes through. */
int64_t dlc_feed_samples(const dlc_feed *feed);
int64_t dlc_feed_test_samples(const dlc_feed *feed);
/* Test: was a sample of a batch that was read skipped? */
int dlc_feed_skipped(dlc_feed *feed, int64_t index);
/* Test: the number of batches of this rank in a pass; 0 if it has no samples. */
int64_t dlc_feed_batches(const dlc_feed *feed);

/* The seconds that dlc_feed_next has blocked in all. */
double dlc_feed_waited(const dlc_feed *feed);

/* The next batch; blocks until it is ready. Its memory belongs to the feed and is valid
 * until the next call of dlc_feed_next. An error of the reading thread is returned
 * here, with its detail sentence, and again at every later call. */
dlc_status dlc_feed_next(dlc_feed *feed, dlc_batch *batch);

/* Looks ahead at the batch of `iteration`, which dlc_feed_next will return at most
 * `ahead` batches after the last one. Blocks until it is ready; valid until
 * dlc_feed_next has returned the batch after it. Not in a test. */
dlc_status dlc_feed_peek(dlc_feed *feed, int64_t iteration, dlc_batch *batch);
/* In training: is sample `i` of a batch of the job's batch, or of the next one? */
int dlc_feed_is_counted(const dlc_feed *feed, int32_t i);

/* Makes the batch of this iteration the next one; costs nothing if it is already. In a
 * test 0 starts the next pass (which also happens automatically after the last batch).
 */
dlc_status dlc_feed_seek(dlc_feed *feed, int64_t iteration);

/* Training: reads the batch of this iteration once more and describes the first value
 * that is not finite, with its sample and field; appends nothing if all are finite.
 * Afterwards the next batch is the one that follows. */
dlc_status dlc_feed_find_nonfinite(dlc_feed *feed, int64_t iteration, dlc_text *text);

/* What a feed with these arguments loads its samples with. */
dlc_loader_args dlc_feed_loader_args(const dlc_feed_args *args);

/* The bytes that a feed with these arguments allocates, and those of one batch. */
dlc_status dlc_feed_bytes(const dlc_feed_args *args, uint64_t *bytes, uint64_t *batch);

/* The keys of [data] and [data.test] that belong to the feed and not to a source:
 * transforms, shuffle, prefetch, threads and others. */
extern const dlc_option dlc_feed_options[];

/* Sets the arguments that settings of that table decide, read through `host`, but for
 * the transforms, which are parsed once. */
void dlc_feed_configure(const dlc_host *host, const dlc_settings *settings,
                        dlc_feed_args *args);

#endif
