/* Devices: where tensors live and element-wise work is done.
 *
 * A device plugin offers memory, copies, queues (streams of work done in order)
 * and events, the few element-wise kernels that the exchange of gradients and the
 * solvers need, and the sharing of memory between processes. Work given to a
 * queue may run later; a NULL queue means: done when the call returns.
 *
 * Threads: open and close on one thread; every other call from any thread, but
 * one queue is used by one thread at a time.
 */
#ifndef DLCORE_DEVICE_H
#define DLCORE_DEVICE_H

#include <dlcore/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dlc_device dlc_device;       /* an open device; the plugin's own */
typedef struct dlc_queue dlc_queue;         /* work in order */
typedef struct dlc_event dlc_event;         /* a point in a queue */
typedef struct dlc_recording dlc_recording; /* work of queues, to be run again */

/* Capability bits of a device feature. */
enum {
    DLC_DEVICE_HOST = 1u << 0,   /* the processor reads its memory directly */
    DLC_DEVICE_SHARES = 1u << 1, /* share_export and share_import work */
    DLC_DEVICE_ASYNC = 1u << 2,  /* queues run behind the caller's back */
};

typedef struct dlc_device_info {
    uint32_t size;
    char name[64];         /* "AMD EPYC 9654", "NVIDIA H200" */
    uint64_t memory_bytes; /* in all */
    int32_t units;         /* cores, multiprocessors */
    char address[32];      /* PCI address, "" for the processor */
    int32_t numa;          /* NUMA node, -1: not known */
    char software[64]; /* that runs it, with versions, for people; "": none to tell */
} dlc_device_info;

typedef struct dlc_device_args {
    uint32_t size;
    const dlc_settings *settings; /* of the feature's option table */
    int32_t index;                /* which one, 0 .. count-1 */
    int32_t threads;              /* processor threads that this rank may use */
    /* For each of them a hardware thread, as the operating system numbers them: the
     * device binds its threads there; the first is the one that calls open. NULL, or
     * where the user has placed threads by other means: it leaves them alone. */
    const int32_t *cpus;
} dlc_device_args;

/* Flags of alloc. */
enum {
    DLC_MEM_SHARED = 1u << 0, /* peers on this machine may map it */
    DLC_MEM_STAGING = 1u << 1 /* host memory that copies fastest to the device */
};

/* A piece of device memory: zeroed, aligned to 64 bytes or more. Filled in by
 * alloc or share_import, released by free; `handle` is the plugin's own. */
typedef struct dlc_memory {
    uint32_t size;
    uint32_t flags;
    void *base; /* address as the device's kernels use it */
    size_t bytes;
    void *handle;
} dlc_memory;

/* How another process on this machine gets at shared memory: bytes that may be
 * sent anywhere. What they mean is the device's own. */
typedef struct dlc_share {
    uint32_t size;
    uint32_t pid; /* of the owner */
    uint64_t bytes;
    unsigned char key[64];
} dlc_share;

/* A link that a device has besides the bus it is plugged into. */
typedef enum dlc_link_kind {
    DLC_LINK_NVLINK = 1,
    DLC_LINK_XGMI = 2,
    DLC_LINK_OTHER = 3, /* of the plugin's own; an unknown kind is taken for it */
} dlc_link_kind;

/* What is at its other end. */
typedef enum dlc_link_end {
    DLC_LINK_TO_DEVICE = 1, /* another device; `peer` says which */
    /* A switch: devices with links to one switch reach each other through it. `peer`
     * says which; "" where it can't be seen: then it is the same for all such links of
     * this kind on this machine. */
    DLC_LINK_TO_SWITCH = 2,
    DLC_LINK_TO_PROCESSOR = 3, /* `peer` is "" */
} dlc_link_end;

typedef struct dlc_link {
    uint32_t size;
    uint32_t kind;  /* dlc_link_kind */
    uint32_t end;   /* dlc_link_end */
    int32_t lanes;  /* links bundled to this peer, 1 or more */
    char peer[32];  /* PCI address, "0000:1b:00.0" */
    float gbs;      /* GB/s one way, all lanes together; 0: not known */
    uint32_t flags; /* 0; none are defined yet */
} dlc_link;

/* The factor that the loss is multiplied with, so that gradients don't vanish in 16-bit
 * floats; it follows what it sees (Micikevicius et al. 2018, "Mixed precision
 * training", section 3.2). Device memory; only adapt_scale writes it. Frozen, no
 * `size`. */
typedef struct dlc_loss_scale {
    float scale;      /* of the next pass */
    float inverse;    /* 1 / the scale that the gradients at hand were made with */
    int32_t overflow; /* 1: they have an infinity or a NaN; no update is made of them */
    int32_t good;     /* iterations without one since `scale` last changed */
    int64_t skipped;  /* iterations with one */
} dlc_loss_scale;

/* One momentum step over n elements, as Caffe defines it (Jia et al. 2014;
 * Sutskever et al. 2013, eq. 1-4):
 *     g = grad_scale * gradient + decay * weight
 *     v = momentum * v + rate * g
 *     weight -= nesterov ? (1 + momentum) * v - momentum * v_old : v
 */
typedef struct dlc_momentum {
    uint32_t size;
    uint32_t nesterov; /* 0 or 1 */
    float rate, momentum, decay, grad_scale;
    /* In device memory, read when the work is done; each may be NULL. */
    const float *rate_at;             /* one more factor of rate */
    const dlc_loss_scale *loss_scale; /* one more factor of grad_scale, `inverse`; with
                                         `overflow` nothing is changed */
} dlc_momentum;

/* What a queue does at a word of memory that other processes see. */
typedef enum dlc_word_kind {
    DLC_WORD_WRITE = 1, /* *word = value, after all that the queue did before */
    DLC_WORD_WAIT = 2,  /* goes on when (int32_t)(*word - value) >= 0 */
} dlc_word_kind;

/* Frozen, no `size`. */
typedef struct dlc_word_step {
    uint32_t kind; /* dlc_word_kind */
    uint32_t value;
    uint32_t *word; /* in memory of DLC_MEM_SHARED and DLC_MEM_STAGING, also imported */
} dlc_word_step;

typedef struct dlc_device_ops {
    uint32_t size;

    /* count, describe and links come before open, in a process that may fork
     * afterwards: they start nothing that a child of it could not start for itself. */

    /* How many there are to open. */
    dlc_status (*count)(int32_t *count);
    /* `info` comes with its size set; fills in as much as fits. */
    dlc_status (*describe)(int32_t index, dlc_device_info *info);

    dlc_status (*open)(const dlc_device_args *args, dlc_device **device);
    void (*close)(dlc_device *device); /* NULL allowed; frees nothing else */

    /* `memory` comes with its size set. */
    dlc_status (*alloc)(dlc_device *device, size_t bytes, uint32_t flags,
                        dlc_memory *memory);
    void (*free)(dlc_device *device, dlc_memory *memory);

    /* Copies between any two of: this device's memory, host memory. */
    dlc_status (*copy)(dlc_device *device, dlc_queue *queue, void *dst, const void *src,
                       size_t bytes);
    dlc_status (*fill)(dlc_device *device, dlc_queue *queue, void *dst, int byte,
                       size_t bytes);

    /* Queues and events: NULL where the device has none; then every queue
     * argument is NULL and all work is done when a call returns. */
    dlc_status (*queue_open)(dlc_device *device, dlc_queue **queue);
    void (*queue_close)(dlc_device *device, dlc_queue *queue);
    dlc_status (*queue_sync)(dlc_device *device, dlc_queue *queue); /* blocks */
    dlc_status (*event_open)(dlc_device *device, dlc_event **event);
    void (*event_close)(dlc_device *device, dlc_event *event);
    dlc_status (*event_record)(dlc_device *device, dlc_queue *queue, dlc_event *event);
    dlc_status (*event_wait)(dlc_device *device, dlc_queue *queue,
                             dlc_event *event); /* the queue waits */
    dlc_status (*event_done)(dlc_device *device, dlc_event *event, int *done);

    /* Kernels on float32; pointers are device memory, n counts elements. They
     * use at most the threads given at open and, for n up to 16,384, only the
     * calling one. The result does not depend on the number of threads. */

    /* x *= alpha */
    dlc_status (*scale)(dlc_device *device, dlc_queue *queue, size_t n, float alpha,
                        float *x);
    /* y += x */
    dlc_status (*add)(dlc_device *device, dlc_queue *queue, size_t n, const float *x,
                      float *y);
    /* y += alpha * x */
    dlc_status (*axpy)(dlc_device *device, dlc_queue *queue, size_t n, float alpha,
                       const float *x, float *y);
    /* dst[i] = (to)src[i]; rounds to nearest even */
    dlc_status (*convert)(dlc_device *device, dlc_queue *queue, size_t n,
                          dlc_dtype from, const void *src, dlc_dtype to, void *dst);
    /* dst = the sum of `count` sources in the pairwise order of the SDK:
     * ((s0+s1)+(s2+s3))+..., that is, for stride 1, 2, 4, ...: s[i] += s[i+stride]
     * at every i that is a multiple of 2*stride. dst may be one of the sources. */
    dlc_status (*sum)(dlc_device *device, dlc_queue *queue, size_t n,
                      const float *const *sources, int32_t count, float *dst);
    /* *result = sum of x[i]^2, in an order that is fixed by n alone; blocks. */
    dlc_status (*norm2)(dlc_device *device, dlc_queue *queue, size_t n, const float *x,
                        double *result);
    /* See dlc_momentum; one pass over memory. */
    dlc_status (*momentum)(dlc_device *device, dlc_queue *queue, size_t n,
                           const dlc_momentum *how, const float *gradient,
                           float *velocity, float *weight);

    /* Sharing, where DLC_DEVICE_SHARES: export what was allocated with
     * DLC_MEM_SHARED; import another process's into this address space (released
     * by free). The owner's memory outlives its process while it is mapped. */
    dlc_status (*share_export)(dlc_device *device, const dlc_memory *memory,
                               dlc_share *share);
    dlc_status (*share_import)(dlc_device *device, const dlc_share *share,
                               dlc_memory *memory);

    /* Optional. y += x on DLC_BF16; adds in float32 and rounds to nearest even. */
    dlc_status (*add_bf16)(dlc_device *device, dlc_queue *queue, size_t n,
                           const uint16_t *x, uint16_t *y);
    /* Optional; before open. The links of one device that are up. Fills in the first
     * `room` of them (NULL allowed where room is 0); each comes with its size set, walk
     * with DLC_NEXT. *count: how many there are, which may be more. */
    dlc_status (*links)(int32_t index, dlc_link *links, int32_t room, int32_t *count);
    /* Optional. The sum of `count` sources, as `sum` makes it, to `dst_count`
     * destinations in one pass; each may be one of the sources. */
    dlc_status (*sum_to)(dlc_device *device, dlc_queue *queue, size_t n,
                         const float *const *sources, int32_t count, float *const *dsts,
                         int32_t dst_count);

    /* Of a device with DLC_DEVICE_ASYNC: until what came before the event is done;
     * blocks, sleeping. */
    dlc_status (*event_sync)(dlc_device *device, dlc_event *event);

    /* Optional: recordings. Between begin and end work given to the queue, and to
     * queues that wait for its events, is noted and not done; one thread does so at a
     * time. The other queues have come back, by events, before end. Blocking calls fail
     * in between and spoil the recording, which end then tells of; end is called in any
     * case, `recording` NULL gives up. A run does all of it, with the same pointers, in
     * order behind what the queue has to do; runs of one recording never overlap. */
    dlc_status (*record_begin)(dlc_device *device, dlc_queue *queue);
    dlc_status (*record_end)(dlc_device *device, dlc_queue *queue,
                             dlc_recording **recording);
    dlc_status (*record_run)(dlc_device *device, dlc_queue *queue,
                             dlc_recording *recording);
    void (*record_close)(dlc_device *device, dlc_recording *recording);

    /* Optional. *y += alpha * x[0] / x[1], a weighted mean; nothing where x[1] is 0. */
    dlc_status (*add_mean)(dlc_device *device, dlc_queue *queue, float alpha,
                           const float *x, float *y);
    /* Optional. y += x on DLC_F16, as add_bf16. */
    dlc_status (*add_f16)(dlc_device *device, dlc_queue *queue, size_t n,
                          const uint16_t *x, uint16_t *y);
    /* Optional. Looks through n gradients: inverse = 1 / scale, overflow = are any not
     * finite? Then scale is halved (down to 1) after an overflow, doubled (up to 2^24)
     * after `patience` iterations without one. */
    dlc_status (*adapt_scale)(dlc_device *device, dlc_queue *queue, size_t n,
                              const float *gradients, int32_t patience,
                              dlc_loss_scale *scale);

    /* Optional. Makes host memory that others allocated (a file that processes share)
     * as fast to copy from and to as DLC_MEM_STAGING, until unpin. */
    dlc_status (*pin)(dlc_device *device, void *base, size_t bytes);
    void (*unpin)(dlc_device *device, void *base);
    /* Optional. *reaches: can unit `from` read and write memory of unit `to` that was
     * imported? Without it each can of each. */
    dlc_status (*reaches)(dlc_device *device, int32_t from, int32_t to, int *reaches);

    /* Optional. Names what the calling thread gives to queues from here to range_end,
     * for the device's profiler. They nest; both or none. */
    void (*range_begin)(dlc_device *device, const char *name);
    void (*range_end)(dlc_device *device);

    /* Optional. Queues of several processes keep step by words of host memory that all
     * of them map: `count` steps, in order. Whoever sees what a queue wrote sees all
     * that the queue did before; what is behind a wait sees what its word tells of. The
     * processor may read and write the words, too, and so end a wait. May be recorded;
     * each run then takes the same steps with the same values. DLC_ERR_UNSUPPORTED:
     * this unit can't; with `count` 0 that is all that is asked. */
    dlc_status (*queue_words)(dlc_device *device, dlc_queue *queue,
                              const dlc_word_step *steps, int32_t count);

    /* Optional. `sum` of `count` gradients and `momentum` with it, in one pass: of the
     * weights the first are read, and all `weight_count` are written. The gradients
     * stay as they are; none of the arrays overlap. */
    dlc_status (*momentum_to)(dlc_device *device, dlc_queue *queue, size_t n,
                              const dlc_momentum *how, const float *const *gradients,
                              int32_t count, float *velocity, float *const *weights,
                              int32_t weight_count);

    /* Optional. Images of bytes as nets read them: n elements in plain layout, planes
     * of `plane` elements, of channels 0 .. channels - 1 in turn (both at least 1):
     *     dst[i] = ((float)src[i] - mean[channel of i]) * scale
     * where difference and product are rounded each. */
    dlc_status (*normalize)(dlc_device *device, dlc_queue *queue, size_t n,
                            size_t plane, size_t channels, const uint8_t *src,
                            const float *mean, float scale, float *dst);
} dlc_device_ops;

#ifdef __cplusplus
}
#endif
#endif
