/* The device "later", for tests: an asynchronous device without one.
 *
 * It is the cpu device behind a curtain. Its memory lies at addresses that the host
 * cannot touch; each queue is a thread that does what it was given later, after random
 * pauses, and only then looks at what pointers point to. So what the core forgets to
 * wait for goes wrong here, on a machine without any accelerator, and ThreadSanitizer
 * sees it. The layers are those of the cpu's family, done on the queue.
 */
#ifndef LATER_H
#define LATER_H

#include <pthread.h>

#include <dlcore/layer.h>
#include <dlcore/transport.h>

extern const dlc_host *host;

/* Bit 62 makes an address that no x86-64 or arm64 process has. */
#define LATER_FAR ((uintptr_t)1 << 62)

static inline int is_far(const void *address) {
    return ((uintptr_t)address & LATER_FAR) != 0;
}

static inline void *to_near(const void *address) {
    return (void *)((uintptr_t)address & ~LATER_FAR);
}

static inline void *to_far(const void *address) {
    return (void *)((uintptr_t)address | LATER_FAR);
}

/* DLC_OK where it is device memory, or NULL. */
dlc_status need_far(const char *call, const void *address);

struct dlc_device {
    dlc_device *near; /* the cpu's */
    int32_t threads;
    uint64_t seed;
    int64_t pause_us; /* the longest pause before a piece of work */
    int words;        /* queues have them */
};

/* ---- queue.c: work, queues, events ---------------------------------------------- */

/* What is done later; `args` is the work's own copy. */
typedef dlc_status work_fn(const void *args);

/* A point in a queue. */
typedef struct point {
    int refs, done;
    uint64_t recording; /* the number of the recording it is in; 0: none */
    size_t step;        /* there */
} point;

typedef struct work {
    struct work *next;
    work_fn *run;                   /* NULL: only waits or signals */
    void (*drop)(const void *args); /* when it is freed; NULL: nothing to do */
    point *wait, *signal;
    _Alignas(16) unsigned char args[];
} work;

struct dlc_queue {
    dlc_device *device;
    pthread_t thread;
    pthread_cond_t news;
    uint64_t random;
    int32_t lane; /* in the recording that is made; -1: not in it */

    /* Below: guarded by the lock. */
    work *first, **last;
    int busy, stop;
    dlc_status failed; /* the first error; nothing is done after it */
};

struct dlc_event {
    point *last; /* NULL: never recorded */
};

/* One for all queues and devices: events go between them. */
extern pthread_mutex_t later_lock;
extern pthread_cond_t later_done; /* a point is done, a queue is empty */

/* Gives a copy of `args` to the queue; NULL: does it now. */
dlc_status work_give(dlc_queue *queue, work_fn *run, const void *args, size_t bytes);
work *work_make(work_fn *run, const void *args, size_t bytes);
void work_append(dlc_queue *queue, work *w);
void work_free(work *w); /* with the lock */
/* A random number below `most`. */
uint64_t random_below(uint64_t *state, uint64_t most);
void random_pause(uint64_t *state, int64_t most_us);

dlc_status queue_open(dlc_device *device, dlc_queue **queue);
void queue_close(dlc_device *device, dlc_queue *queue);
dlc_status queue_sync(dlc_device *device, dlc_queue *queue);
dlc_status event_open(dlc_device *device, dlc_event **event);
void event_close(dlc_device *device, dlc_event *event);
dlc_status event_record(dlc_device *device, dlc_queue *queue, dlc_event *event);
dlc_status event_wait(dlc_device *device, dlc_queue *queue, dlc_event *event);
dlc_status event_done(dlc_device *device, dlc_event *event, int *done);
dlc_status event_sync(dlc_device *device, dlc_event *event);

/* ---- record.c: recordings ---------------------------------------------------- */

/* A call that blocks: fails on a thread that records, and spoils the recording. */
dlc_status must_not_record(const char *call);
/* With the lock. Is the queue in the recording that is made? */
int is_recorded(const dlc_queue *queue);
/* With the lock: takes the work over, into the recording. */
dlc_status record_work(dlc_queue *queue, work *w);
/* With the lock. The work's wait is for an event: what the recording makes of it. */
dlc_status record_wait(dlc_queue *queue, work *w);

dlc_status record_begin(dlc_device *device, dlc_queue *queue);
dlc_status record_end(dlc_device *device, dlc_queue *queue, dlc_recording **recording);
dlc_status record_run(dlc_device *device, dlc_queue *queue, dlc_recording *recording);
void record_close(dlc_device *device, dlc_recording *recording);

/* ---- device.c, layers.c, transport.c
 * ------------------------------------------------------------
 */

/* Tables made from the cpu's when the plugin is loaded. */
extern dlc_device_ops device_ops;
extern const dlc_device_ops *near_device;
void device_fill(const dlc_device_ops *near);

/* Every type that the cpu's family is known to have. */
#define LATER_TYPES(X) \
    X(convolution) \
    X(inner_product) \
    X(pooling) \
    X(relu) \
    X(sigmoid) \
    X(tanh) \
    X(elu) \
    X(gelu) \
    X(swish) \
    X(softplus) \
    X(mish) \
    X(hardswish) \
    X(clip) \
    X(abs) \
    X(lrn) \
    X(batch_norm) \
    X(scale) \
    X(dropout) \
    X(concat) \
    X(eltwise) \
    X(flatten) \
    X(softmax) \
    X(softmax_loss) \
    X(accuracy)

/* Completes `ours`, which has the types in this order, from the features of the cpu's
 * family. 0: it lacks one. */
int layers_fill(const dlc_feature *near, dlc_feature *ours);
void transport_fill(const dlc_feature *near, dlc_feature *ours);
extern const dlc_transport_ops transport_ops;
extern const dlc_option device_options[];

#endif
