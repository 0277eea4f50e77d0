/* Devices: memory, and the element-wise arithmetic that the core and the solvers need.
 *
 * A device plugin provides memory, copies and a few kernels, and, where the hardware
 * has them, queues (streams of work that is done in order), events, captured graphs and
 * the sharing of memory between processes.
 *
 *     dlc_device_ops                    needed          thread  may block
 *     count describe                    required        any     no
 *     links                             optional        any     no
 *     open close                        required        one     yes
 *     alloc free                        required        any     yes
 *     copy fill                         required        any     without a queue
 *     can_access_peer native            optional        any     no
 *     pin unpin                         optional, both  any     yes
 *     ipc_export ipc_import             optional, both  any     yes
 *     scale add axpy convert sum
 *       update                          required        any     without a queue
 *     square_sums total                 required        any     without a queue
 *     add_mean                          with queues     any     without a queue
 *     add_bf16 add_f16 sum_to
 *       update_to normalize
 *       update_loss_scale               optional        any     without a queue
 *     range_begin range_end             optional, both  any     no
 *
 *     dlc_device_queue_ops              needed          thread  may block
 *     queue_open queue_close            required        any     yes
 *     queue_sync event_sync             required        any     yes
 *     event_open event_close
 *       event_record event_wait
 *       event_done                      required        any     no
 *     capture_begin capture_end
 *       graph_launch graph_close        optional, all   any     no
 *     queue_semaphores                  optional        any     no
 *
 * Queues. Work on a queue is done in the order in which it was submitted, and a call
 * that takes a queue only submits it. If the queue is NULL the work is done when the
 * call returns. A device without queues (dlc_device_ops.queues is NULL) gets NULL for
 * every queue, and its memory must be host memory (DLC_DEVICE_HOST): so whoever has the
 * table of calls knows that the CPU may read the memory. Memory that submitted work
 * uses must stay valid until the work is done.
 *
 * Threads. open and close are called on one thread. Any thread may make the other
 * calls, several at once, but one queue is used by one thread at a time. A process may
 * open a device several times: a call on one dlc_device accepts memory, queues and
 * events that another one of the same index made, but what opened a thing also closes
 * it.
 *
 * Errors. DLC_ERR_NOMEM from alloc and open, DLC_ERR_UNSUPPORTED for types and units
 * that a device cannot do, DLC_ERR_DEVICE if the device has stopped working. Work on a
 * queue may report its failure in a later call on that queue. */
#ifndef DLCORE_DEVICE_H
#define DLCORE_DEVICE_H

#include <dlcore/plugin.h>
#include <dlcore/rule.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dlc_device dlc_device; /* an open device, defined by the plugin */
typedef struct dlc_queue dlc_queue;   /* work that is done in order; a CUDA stream */
typedef struct dlc_event dlc_event;   /* a point in a queue */
typedef struct dlc_captured_graph dlc_captured_graph; /* work that can be repeated */

/* Capability bits of a device feature; its tables of calls say what else it has. */
enum {
    DLC_DEVICE_HOST = 1u << 0, /* the CPU reads and writes its memory directly */
};

/* ---- Devices and links ------------------------------------------------------- */

/* One device of the machine. */
typedef struct dlc_device_info {
    uint32_t size;
    char name[64];         /* "AMD EPYC 9654", "NVIDIA H200" */
    uint64_t memory_bytes; /* total */
    int32_t compute_units; /* CPU cores or multiprocessors */
    char address[32];      /* PCI address, "0000:1b:00.0"; "" for a CPU */
    int32_t numa;          /* NUMA node; -1: not known */

    /* Driver and libraries with versions, for people; may be "". */
    char software[64];
} dlc_device_info;

/* The kind of a link between devices, other than the PCI bus. */
typedef enum dlc_link_kind {
    DLC_LINK_NVLINK = 1,
    DLC_LINK_XGMI = 2,
    DLC_LINK_OTHER = 3, /* vendor-specific; unknown kinds are treated as this one */
} dlc_link_kind;

/* What is at the other end of a link. */
typedef enum dlc_link_end {
    DLC_LINK_TO_DEVICE = 1, /* the device at the PCI address `peer` */

    /* The switch that `peer` names. Devices with links to one switch reach each other
     * through it. If `peer` is "", the switch cannot be identified, and all such links
     * of this kind on this machine are taken to lead to the same one. */
    DLC_LINK_TO_SWITCH = 2,

    DLC_LINK_TO_CPU = 3, /* `peer` is "" */
} dlc_link_end;

/* One or more parallel links from a device to the same peer. */
typedef struct dlc_link {
    uint32_t size;
    uint32_t kind; /* dlc_link_kind */
    uint32_t end;  /* dlc_link_end */
    int32_t width; /* number of parallel links, at least 1 */
    char peer[32]; /* PCI address, "0000:1b:00.0" */

    /* 1e9 bytes per second in one direction, all links together; 0: not known. */
    float gbs;

    uint32_t flags; /* 0; no flags are defined yet */
} dlc_link;

/* The arguments of open, valid during the call. */
typedef struct dlc_device_args {
    uint32_t size;
    const dlc_settings *settings; /* of the feature's option table */
    int32_t index;                /* which device, 0 .. count-1 */
    int32_t threads;              /* number of CPU threads that this rank may use */

    /* One hardware thread, in the numbering of the operating system, for each of
     * `threads`. The device binds its threads to them; the first one is for the thread
     * that calls open. NULL: leave the binding of threads alone (the user chose it). */
    const int32_t *cpus;
} dlc_device_args;

/* ---- Native handles ------------------------------------------------------------ */

/* What the libraries of a vendor call a device or a queue, and the C type of that. */
typedef enum dlc_native_kind {
    DLC_NATIVE_CUDA_DEVICE = 1, /* of a device: int, as cudaSetDevice takes it */
    DLC_NATIVE_CUDA_STREAM = 2, /* of a queue: cudaStream_t */

    /* From here on: what the plugins of another vendor agree on. */
    DLC_NATIVE_VENDOR = 0x10000,
} dlc_native_kind;

/* ---- Memory ------------------------------------------------------------------ */

/* Flags of alloc. */
enum {
    /* Other processes of this machine may map it (ipc_export). */
    DLC_MEM_SHARED = 1u << 0,

    /* Host memory from which copies to the device are fastest. */
    DLC_MEM_STAGING = 1u << 1
};

/* A block of memory: zeroed, aligned to at least 64 bytes. Filled in by alloc or
 * ipc_import, released by free. It is memory of the device unless it has the flag
 * DLC_MEM_STAGING: then it is host memory, which the CPU reads and writes. */
typedef struct dlc_memory {
    uint32_t size;
    uint32_t flags; /* DLC_MEM_SHARED and DLC_MEM_STAGING */
    void *base;     /* the address that the device's kernels use */
    size_t bytes;
    void *handle; /* for the plugin's use */
} dlc_memory;

/* How another process of the same machine can map shared memory. It contains no
 * pointers and may be sent to that process as bytes. */
typedef struct dlc_ipc_handle {
    uint32_t size;
    uint32_t pid; /* of the process that owns the memory */
    uint64_t bytes;
    unsigned char key[64]; /* for the plugin's use */
} dlc_ipc_handle;

/* ---- Queues, events and captured graphs ------------------------------------------ */

/* What a queue does at a semaphore. */
typedef enum dlc_semaphore_kind {
    /* *semaphore = value, after all earlier work of the queue. */
    DLC_SEMAPHORE_WRITE = 1,

    DLC_SEMAPHORE_WAIT = 2, /* wait until (int32_t)(*semaphore - value) >= 0 */
} dlc_semaphore_kind;

/* One operation on a semaphore, a 32-bit word that several processes have mapped. It
 * has no `size` and does not change within a major version. */
typedef struct dlc_semaphore_op {
    uint32_t kind; /* dlc_semaphore_kind */
    uint32_t value;

    /* In memory allocated with DLC_MEM_SHARED | DLC_MEM_STAGING, here or imported. */
    uint32_t *semaphore;
} dlc_semaphore_op;

/* The calls that only a device with queues has. All but the groups marked optional are
 * required. */
typedef struct dlc_device_queue_ops {
    uint32_t size;

    /* Creates a queue, which the caller releases with queue_close. */
    dlc_status (*queue_open)(dlc_device *device, dlc_queue **queue);

    /* Completes the work on a queue and releases it. */
    void (*queue_close)(dlc_device *device, dlc_queue *queue);

    /* Blocks until all work on the queue is done, and returns its errors. */
    dlc_status (*queue_sync)(dlc_device *device, dlc_queue *queue);

    /* Creates an event, which the caller releases with event_close. */
    dlc_status (*event_open)(dlc_device *device, dlc_event **event);

    /* Releases an event, whether or not the work before it is done. */
    void (*event_close)(dlc_device *device, dlc_event *event);

    /* Places the event after the work that is on the queue now. An event may be placed
     * again; then only its last place counts. */
    dlc_status (*event_record)(dlc_device *device, dlc_queue *queue, dlc_event *event);

    /* Makes the queue, not the caller, wait for the event. */
    dlc_status (*event_wait)(dlc_device *device, dlc_queue *queue, dlc_event *event);

    /* *done = 1 if the work before the event is done, or if the event was never placed,
     * otherwise 0. Queues and callers do not wait for such an event. */
    dlc_status (*event_done)(dlc_device *device, dlc_event *event, int *done);

    /* Blocks, sleeping, until the work before the event is done. */
    dlc_status (*event_sync)(dlc_device *device, dlc_event *event);

    /* Captured graphs (CUDA graphs), optional. All four calls or none. */

    /* Begins to capture: work that is submitted to the queue, and to queues that wait
     * for its events, is recorded instead of done. One thread captures at a time.
     * Blocking calls fail and invalidate the capture. */
    dlc_status (*capture_begin)(dlc_device *device, dlc_queue *queue);

    /* Ends the capture, which the caller does in any case. Other queues that took part
     * must have been joined to this one by events before. Returns the error of a
     * capture that was invalidated. The caller owns *graph. `graph` NULL: discard the
     * capture. */
    dlc_status (*capture_end)(dlc_device *device, dlc_queue *queue,
                              dlc_captured_graph **graph);

    /* Submits all work of the graph to the queue, with the pointers that it was
     * captured with. Launches of one graph never overlap. */
    dlc_status (*graph_launch)(dlc_device *device, dlc_queue *queue,
                               dlc_captured_graph *graph);

    /* Releases a graph whose launches are done. */
    void (*graph_close)(dlc_device *device, dlc_captured_graph *graph);

    /* Optional. Synchronizes queues of several processes: submits `count` operations
     * in order. A process that sees the value written sees the results of all earlier
     * work of that queue, and work after a wait sees the results of what the semaphore
     * announces. The CPU may read and write semaphores too, and so end a wait. The call
     * can be captured; each launch repeats the operations with the same values.
     * DLC_ERR_UNSUPPORTED: this device cannot do it. A call with `count` 0, whose queue
     * may be NULL, only asks that. */
    dlc_status (*queue_semaphores)(dlc_device *device, dlc_queue *queue,
                                   const dlc_semaphore_op *ops, int32_t count);
} dlc_device_queue_ops;

/* ---- Calls ------------------------------------------------------------------- */

/* The table of calls of a device. */
typedef struct dlc_device_ops {
    uint32_t size;

    /* The machine's devices. count, describe and links may be called before open, in a
     * process that forks later: they must not start anything (threads, driver contexts)
     * that a child process could not start again for itself. */

    /* Required. The number of devices that can be opened; may be 0. */
    dlc_status (*count)(int32_t *count);

    /* Required. Fills in as much of `info` as its size covers; the caller sets the
     * size. */
    dlc_status (*describe)(int32_t index, dlc_device_info *info);

    /* Optional. Lists the links of one device that are up. Fills in the first
     * `capacity` of them, whose sizes the caller has set; walk them with DLC_NEXT.
     * `links` may be NULL if `capacity` is 0. *count is the number of links, which may
     * be larger than `capacity`. NULL: only the PCI bus is known. */
    dlc_status (*links)(int32_t index, dlc_link *links, int32_t capacity,
                        int32_t *count);

    /* Required. Opens a device. The caller owns *device, which is not NULL, and
     * releases it with close. */
    dlc_status (*open)(const dlc_device_args *args, dlc_device **device);

    /* Required. Closes the device; does nothing if `device` is NULL. It does not
     * release memory, queues and events, which must be released first. */
    void (*close)(dlc_device *device);

    /* The calls of queues, events and captured graphs. NULL: the device has no
     * queues. */
    const dlc_device_queue_ops *queues;

    /* Optional. Stores what a library of the vendor calls the device, or, for kinds
     * that are of a queue, `queue`, which is not NULL then. `handle` points to a
     * variable of the type that belongs to `kind`, a dlc_native_kind. What is stored
     * belongs to the device and is valid as long as that, or the queue.
     * DLC_ERR_UNSUPPORTED: the device has nothing of this kind. <dlcore/cuda.h> has
     * functions that make this call. */
    dlc_status (*native)(dlc_device *device, dlc_queue *queue, uint32_t kind,
                         void *handle);

    /* Required. Allocates memory and fills in `memory`, whose size the caller has set.
     * `flags` is a combination of DLC_MEM_SHARED and DLC_MEM_STAGING. */
    dlc_status (*alloc)(dlc_device *device, size_t bytes, uint32_t flags,
                        dlc_memory *memory);

    /* Required. Releases memory from alloc or ipc_import. */
    void (*free)(dlc_device *device, dlc_memory *memory);

    /* Required. Copies `bytes` bytes, 0 or more. Each side is memory of this device or
     * host memory, allocated by whomever, and need not be aligned. */
    dlc_status (*copy)(dlc_device *device, dlc_queue *queue, void *dst, const void *src,
                       size_t bytes);

    /* Required. Sets `bytes` bytes of device memory, 0 or more, to `byte`. */
    dlc_status (*fill)(dlc_device *device, dlc_queue *queue, void *dst, int byte,
                       size_t bytes);

    /* Optional. *can_access = 1 if device `from` can read and write imported memory of
     * device `to`, otherwise 0. NULL: every device can access every other. */
    dlc_status (*can_access_peer)(dlc_device *device, int32_t from, int32_t to,
                                  int *can_access);

    /* Host memory, optional. Both calls or none. */

    /* Makes host memory that somebody else allocated (a file that processes share) as
     * fast to copy from and to as DLC_MEM_STAGING, until unpin. */
    dlc_status (*pin)(dlc_device *device, void *base, size_t bytes);

    /* Undoes pin. */
    void (*unpin)(dlc_device *device, void *base);

    /* Sharing memory between processes, optional. Both calls or none; without them
     * DLC_MEM_SHARED has no effect. */

    /* Makes a handle of memory that was allocated with DLC_MEM_SHARED, for another
     * process to import. */
    dlc_status (*ipc_export)(dlc_device *device, const dlc_memory *memory,
                             dlc_ipc_handle *handle);

    /* Maps another process's memory into this one; free releases the mapping. The
     * memory stays valid while it is mapped, even if the process that owns it ends. */
    dlc_status (*ipc_import)(dlc_device *device, const dlc_ipc_handle *handle,
                             dlc_memory *memory);

    /* Required kernels on float32. Pointers are device memory and n is a number of
     * elements, 0 or more. Arrays of pointers, and the update, are valid during the
     * call only, so a call with a queue copies them. A device on the CPU uses at most
     * the threads that it was given in open, and only the calling thread for n up to
     * 16,384. Results do not depend on the number of threads. */

    /* x *= alpha */
    dlc_status (*scale)(dlc_device *device, dlc_queue *queue, size_t n, float alpha,
                        float *x);

    /* y += x */
    dlc_status (*add)(dlc_device *device, dlc_queue *queue, size_t n, const float *x,
                      float *y);

    /* y += alpha * x */
    dlc_status (*axpy)(dlc_device *device, dlc_queue *queue, size_t n, float alpha,
                       const float *x, float *y);

    /* dst[i] = (to)src[i], rounded to nearest even. DLC_ERR_UNSUPPORTED for a pair of
     * types that the device has no kernel for. */
    dlc_status (*convert)(dlc_device *device, dlc_queue *queue, size_t n,
                          dlc_dtype from, const void *src, dlc_dtype to, void *dst);

    /* dst = the sum of `count` sources, added in pairwise order: ((s0+s1)+(s2+s3))+...
     * That is, for stride = 1, 2, 4, ...: s[i] += s[i+stride] for every i that is a
     * multiple of 2*stride. All devices add in this order, and so do transports with
     * DLC_TRANSPORT_PAIRWISE, so that results are bitwise identical. dst may be one of
     * the sources. */
    dlc_status (*sum)(dlc_device *device, dlc_queue *queue, size_t n,
                      const float *const *sources, int32_t count, float *dst);

    /* sums[k] = the sum of the squares of piece k of x: of its elements from
     * k * DLC_SQUARE_PIECE on, as many as a piece has or as there are. Added in double,
     * in an order that depends on that number alone, so that it does not matter who
     * adds which pieces. `sums` is device memory. */
    dlc_status (*square_sums)(dlc_device *device, dlc_queue *queue, size_t n,
                              const float *x, double *sums);

    /* *total = the sum of n numbers, added in an order that depends on n alone. Both
     * are device memory. */
    dlc_status (*total)(dlc_device *device, dlc_queue *queue, size_t n,
                        const double *sums, double *total);

    /* Updates n weights and their slots by the rule of `update`, in one pass over
     * memory. `slots` has a pointer for each slot of the rule. No two arrays overlap.
     * DLC_ERR_UNSUPPORTED: the rule has no code for this device. */
    dlc_status (*update)(dlc_device *device, dlc_queue *queue, size_t n,
                         const dlc_update *update, const float *gradient,
                         float *const *slots, float *weight);

    /* Optional kernels; as the required ones unless said otherwise. */

    /* y += x on DLC_BF16; added in float32 and rounded to nearest even. */
    dlc_status (*add_bf16)(dlc_device *device, dlc_queue *queue, size_t n,
                           const uint16_t *x, uint16_t *y);

    /* y += x on DLC_F16; added in float32 and rounded to nearest even. */
    dlc_status (*add_f16)(dlc_device *device, dlc_queue *queue, size_t n,
                          const uint16_t *x, uint16_t *y);

    /* *y += alpha * x[0] / x[1], a weighted mean; leaves *y unchanged if x[1] is 0.
     * Required of devices with queues, which add up the losses of a pass by it. */
    dlc_status (*add_mean)(dlc_device *device, dlc_queue *queue, float alpha,
                           const float *x, float *y);

    /* As sum, but writes the result to all of `dst_count` destinations in one pass. A
     * destination may be one of the sources. */
    dlc_status (*sum_to)(dlc_device *device, dlc_queue *queue, size_t n,
                         const float *const *sources, int32_t count, float *const *dsts,
                         int32_t dst_count);

    /* Sums `count` gradients as sum does, and updates with the result, in one pass over
     * memory. Reads weights[0] and writes all of `weight_count` copies of the weights.
     * The gradients are unchanged. No two arrays overlap. */
    dlc_status (*update_to)(dlc_device *device, dlc_queue *queue, size_t n,
                            const dlc_update *update, const float *const *gradients,
                            int32_t count, float *const *slots, float *const *weights,
                            int32_t weight_count);

    /* Converts images of bytes to what nets read:
     *     dst[i] = ((float)src[i] - mean[channel of i]) * scale[channel of i]
     * with the difference and the product each rounded. The n elements are in plain
     * layout: planes of `plane` elements, of channels 0 .. channels-1 in turn. `plane`
     * and `channels` are at least 1. */
    dlc_status (*normalize)(dlc_device *device, dlc_queue *queue, size_t n,
                            size_t plane, size_t channels, const uint8_t *src,
                            const float *mean, const float *scale, float *dst);

    /* Updates the loss scale from the squared norm of the gradients, in device memory:
     * inverse = 1 / scale; overflow = 1 if the norm is infinite or NaN, as it is if any
     * gradient is. Then scale is halved after an overflow (to no less than 1), or
     * doubled (to no more than 2^24) after `growth_interval` iterations without one. */
    dlc_status (*update_loss_scale)(dlc_device *device, dlc_queue *queue,
                                    const double *square, int32_t growth_interval,
                                    dlc_loss_scale *scale);

    /* Names for profilers (NVTX), optional. Both calls or none. */

    /* Names the work that the calling thread submits until the matching range_end.
     * Ranges nest. */
    void (*range_begin)(dlc_device *device, const char *name);

    /* Ends the innermost range of the calling thread. */
    void (*range_end)(dlc_device *device);
} dlc_device_ops;

#ifdef __cplusplus
}
#endif
#endif
