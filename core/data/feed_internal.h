/* What the feed (feed_ring.c) and the thread that reads for it (feed_read.c) share. */
#ifndef DLC_FEED_INTERNAL_H
#define DLC_FEED_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "data/feed.h"
#include "data/loader.h"
#include "data/order.h"
#include "data/thread_pool.h"

#define DETAIL_BYTES 1024

typedef struct slot {
    dlc_memory memory; /* of all fields, where it is the device's */
    void *base;        /* of all fields */
    int32_t *labels;   /* own; NULL: those of the field */
    int32_t samples;
    int64_t iteration;
} slot;

/* The first sample of a batch that could not be loaded, which is the same one however
 * many threads there are. */
typedef struct failure {
    pthread_mutex_t lock;
    int32_t sample;    /* in the batch */
    dlc_status status; /* DLC_OK: there is none */
    char detail[DETAIL_BYTES];
} failure;

/* A batch that is being loaded. */
typedef struct filling {
    dlc_feed *feed;
    slot *into;
    uint64_t generation; /* an old one is of no use any more */
    int64_t *index;      /* of the samples; own */
    int64_t *partner; /* of those that they are mixed with, outside of the batch, or -1;
                         own, or NULL */
    int32_t part;     /* samples that a thread takes at once */
    dlc_task task;
    failure failure;
} filling;

/* Threads begin the next batch while others end the one before. */
enum { DLC_FEED_FILLINGS = 2 };

struct dlc_feed {
    dlc_feed_args args;
    dlc_loader loader;
    dlc_batch_layout layout; /* of a slot */
    int64_t begin, end;      /* test: this rank's samples */
    int64_t batches;         /* test: number of batches in them */

    /* Used by the reading thread and its pool alone. */
    dlc_order order;
    filling filling[DLC_FEED_FILLINGS];
    dlc_thread_pool *pool;
    dlc_load_scratch *scratch; /* of each thread of the pool */
    char *mixed;               /* for each thread, a sample to mix with; or NULL */
    dlc_batch_layout mixed_layout;
    dlc_skips skips;
    double waited; /* seconds that the caller has; its own */

    pthread_t thread;
    int has_lock, has_thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t room, done;
    slot *slots;
    int32_t slot_count, first, held, ready;
    int32_t oldest,
        begun;         /* of `filling`: the oldest that is in use, and how many are */
    int64_t wanted;    /* iteration to be begun next */
    int64_t delivered; /* iteration of the caller's next batch */
    _Atomic uint64_t generation; /* loading threads read it without the lock */
    int stop;
    dlc_status status; /* of the thread, which stops reading after an error */
    char detail[DETAIL_BYTES];
};

/* The samples of a batch that follow each other in the sequence. */
static inline int32_t dlc_feed_run(const dlc_feed_args *args) {
    return args->run ? (int32_t)args->run : args->count;
}

/* In training, the position of sample `i` of a batch. */
static inline int64_t dlc_feed_position(const dlc_feed_args *args, int64_t iteration,
                                        int32_t i) {
    int32_t run = dlc_feed_run(args);
    return iteration * args->batch + args->offset + i / run * args->stride + i % run;
}

/* From a test batch to the next. */
static inline int64_t dlc_feed_step(const dlc_feed_args *args) {
    return args->stride ? args->stride : args->count;
}

/* The iteration that follows; in a test the last one is followed by the first. */
static inline int64_t dlc_feed_successor(const dlc_feed *feed, int64_t iteration) {
    return feed->args.test ? (iteration + 1) % feed->batches : iteration + 1;
}

/* Fills slots until the feed is closed or a batch fails; the argument is the feed. */
void *dlc_feed_read(void *feed);

#endif
