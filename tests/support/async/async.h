/* The device "async", for tests: an asynchronous device that needs no accelerator.
 *
 * It wraps the cpu device. Its memory has addresses that the host cannot access; each
 * queue is a thread that does its work after random pauses, and only then reads what
 * pointers point to. So a missing synchronization in the core fails here, on any
 * machine, and ThreadSanitizer sees it. A lazy device works only when somebody waits
 * for it, so that whoever forgets to wait always finds what was there before. The
 * layers are those of the cpu's family, run on the queue.
 */
#ifndef ASYNC_H
#define ASYNC_H

#include <pthread.h>

#include <dlcore/layer.h>
#include <dlcore/transport.h>

extern const dlc_host *host;

/* Bit 62 makes an address that is invalid in any x86-64 or arm64 process. */
#define ASYNC_ADDRESS_BIT ((uintptr_t)1 << 62)

static inline int is_device_address(const void *address) {
    return ((uintptr_t)address & ASYNC_ADDRESS_BIT) != 0;
}

static inline void *to_host_address(const void *address) {
    return (void *)((uintptr_t)address & ~ASYNC_ADDRESS_BIT);
}

static inline void *to_device_address(const void *address) {
    return (void *)((uintptr_t)address | ASYNC_ADDRESS_BIT);
}

/* DLC_OK for device memory and for NULL; else an error that names the call. */
dlc_status check_device_memory(const char *call, const void *address);

/* What is wrong with the memory of other ranks. */
typedef enum peer_fault {
    PEER_OK,
    PEER_ZEROS,     /* reads give zeros, writes are lost, as under some IOMMUs */
    PEER_SLOW,      /* 1 GB/s */
    PEER_UNMAPPABLE /* that of some ranks cannot be mapped */
} peer_fault;

struct dlc_device {
    dlc_device *cpu; /* of the cpu device */
    peer_fault peer;
    int32_t threads;
    uint64_t seed;
    int64_t pause_us; /* the longest pause before an operation */
    int is_lazy;      /* does work only when it is waited for, or after pause_us */
    int semaphores;   /* queues have semaphores */
};

/* ---- queue.c: work, queues, events ---------------------------------------------- */

/* Work that a queue runs; `args` is the work's own copy. */
typedef dlc_status work_fn(const void *args);

/* A point in a queue. */
typedef struct point {
    int refs, done;
    struct dlc_queue *queue; /* of a point that is not done */
    uint64_t place;          /* the number of its work there */
    uint64_t graph_number; /* number of the captured graph that contains it; 0: none */
    size_t step;           /* index of the step in that graph */
} point;

typedef struct work {
    struct work *next;
    work_fn *run;                   /* NULL: only waits or signals */
    void (*drop)(const void *args); /* called when it is freed; NULL: nothing to do */
    point *wait, *signal;
    uint64_t place; /* its number in the queue, from 1 on */
    _Alignas(16) unsigned char args[];
} work;

struct dlc_queue {
    dlc_device *device;
    pthread_t thread;
    pthread_cond_t has_work;
    uint64_t random;
    int32_t queue_index; /* index among the queues being captured; -1: not captured */

    /* Guarded by the lock: */
    work *first, **last;
    int busy, stop;
    uint64_t submitted, wanted; /* works so far; up to which they are waited for */
    dlc_status failed;          /* the first error; later work is skipped */
};

struct dlc_event {
    point *last; /* NULL: never recorded */
};

/* One lock for all queues and devices, since events connect them. */
extern pthread_mutex_t async_lock;
extern pthread_cond_t async_done; /* a point is done, or a queue is empty */

/* Queues work with a copy of `args`; without a queue runs it at once. */
dlc_status work_submit(dlc_queue *queue, work_fn *run, const void *args, size_t bytes);
work *work_make(work_fn *run, const void *args, size_t bytes);
void work_append(dlc_queue *queue, work *w);
void work_free(work *w); /* call with the lock held */
/* A random number below `most`. */
uint64_t random_below(uint64_t *state, uint64_t most);
void random_pause(uint64_t *state, int64_t most_us);

/* Lets layers that this thread runs use the device's threads. */
void device_use_threads(const dlc_device *device);

dlc_status queue_open(dlc_device *device, dlc_queue **queue);
void queue_close(dlc_device *device, dlc_queue *queue);
dlc_status queue_sync(dlc_device *device, dlc_queue *queue);
dlc_status event_open(dlc_device *device, dlc_event **event);
void event_close(dlc_device *device, dlc_event *event);
dlc_status event_record(dlc_device *device, dlc_queue *queue, dlc_event *event);
dlc_status event_wait(dlc_device *device, dlc_queue *queue, dlc_event *event);
dlc_status event_done(dlc_device *device, dlc_event *event, int *done);
dlc_status event_sync(dlc_device *device, dlc_event *event);

/* ---- capture.c: captured graphs ---------------------------------------------- */

/* For a call that blocks: fails on a thread that captures, and invalidates the capture.
 */
dlc_status capture_refuse(const char *call);
/* Call with the lock held. Is the queue being captured? */
int is_captured(const dlc_queue *queue);
/* Call with the lock held: moves the work into the capture, which owns it then. */
dlc_status capture_work(dlc_queue *queue, work *w);
/* Call with the lock held: turns the work's wait for an event into a dependency of the
 * captured graph. */
dlc_status capture_wait(dlc_queue *queue, work *w);

dlc_status capture_begin(dlc_device *device, dlc_queue *queue);
dlc_status capture_end(dlc_device *device, dlc_queue *queue,
                       dlc_captured_graph **graph_number);
dlc_status graph_launch(dlc_device *device, dlc_queue *queue,
                        dlc_captured_graph *graph_number);
void graph_close(dlc_device *device, dlc_captured_graph *graph_number);

/* ---- collective.c: passes of layers that gather over ranks -------------------------
 */

typedef struct layer_thread layer_thread;

/* Where in scratch memory a pass gathers, and how much. */
typedef struct gather_place {
    int is_known, gathers;
    size_t offset, bytes;
} gather_place;

typedef struct collective_call {
    work_fn *run;
    const void *args; /* copied */
    size_t bytes;
    const char *scratch; /* host address */
} collective_call;

dlc_status layer_thread_open(dlc_device *device, layer_thread **made);
/* Cancels a call that waits for its gather. */
void layer_thread_close(layer_thread *c);
/* dlc_layer_group.all_gather of the cpu's layers; `context` is the thread. */
dlc_status layer_thread_gather(void *context, void *values, size_t bytes);
/* Submits a pass, which gathers once or not at all. `place` is of passes of this kind;
 * {0} before the first. */
dlc_status collective_pass(layer_thread *c, dlc_queue *queue,
                           const dlc_layer_group *group, const collective_call *call,
                           gather_place *place);

/* ---- semaphores.c: dlc_device_queue_ops.queue_semaphores --------------------------
 */

dlc_status device_semaphores(dlc_device *device, dlc_queue *queue,
                             const dlc_semaphore_op *steps, int32_t count);

/* ---- device.c, layers.c, transport.c ----------------------------------------- */

/* Tables filled in from the cpu's when the plugin is loaded. */
extern dlc_device_ops device_ops;
extern const dlc_device_ops *cpu_device;
void device_fill(const dlc_device_ops *cpu);

/* Every layer type that the cpu's family has. */
#define ASYNC_TYPES(X) \
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
 * family. Returns 0 if it lacks one. */
int layers_fill(const dlc_feature *cpu, dlc_feature *ours);
void transport_fill(const dlc_feature *cpu, dlc_feature *ours);
extern const dlc_transport_ops transport_ops;
extern dlc_transport_ops locking_ops; /* of an adapter that needs locked memory */
extern const dlc_option device_options[];

#endif
