/* Transports: how ranks reach each other.
 *
 * A transport must pass tagged messages between the ranks of a group and give a
 * score for a group of places. Everything else is optional; what is missing the
 * core builds from messages.
 *
 * Threads: all calls on one endpoint come from one thread at a time. Calls that
 * may block (open, wait and the collectives) must call args->check often enough
 * to leave within 100 ms when it fails, and must sleep rather than spin when
 * nothing moves.
 */
#ifndef DLCORE_TRANSPORT_H
#define DLCORE_TRANSPORT_H

#include <dlcore/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dlc_endpoint dlc_endpoint; /* the plugin's own */
typedef struct dlc_request dlc_request;   /* the plugin's own */
typedef struct dlc_region dlc_region;     /* registered memory; the plugin's own */

/* Capability bits of a transport feature. */
enum {
    /* Its reducing collectives sum in the pairwise order (see dlc_device_ops.sum)
     * over the group's ranks, whatever the size and the chunking. */
    DLC_TRANSPORT_PAIRWISE = 1u << 0,
    /* Reads and writes memory of devices that are not DLC_DEVICE_HOST. */
    DLC_TRANSPORT_DEVICE_MEMORY = 1u << 1,
    /* Its queue_ collectives may be recorded (dlc_device_ops.record_begin). */
    DLC_TRANSPORT_RECORDS = 1u << 2,
};

/* Where a rank is. */
typedef struct dlc_place {
    uint32_t size;
    int32_t node; /* ranks with the same number share a machine */
    uint32_t pid;
    uint32_t uid;
    char host[64];
    char device[32]; /* "cpu", "cuda" */
    int32_t device_index;
    /* Of the processor that its compute threads run on, or its device is nearest to,
     * as the operating system numbers them within the node; -1: not known. */
    int32_t package;
    int32_t numa;
} dlc_place;

typedef struct dlc_transport_args {
    uint32_t size;
    int32_t rank; /* mine, 0 .. ranks-1, in this group */
    int32_t ranks;
    const dlc_place *places;      /* one a rank; walk with DLC_NEXT */
    const dlc_settings *settings; /* of the feature's option table */
    const dlc_device_ops *device_ops;
    dlc_device *device; /* whose memory is sent and received */

    /* Services of the job, for `job` as the first argument. */
    void *job;
    /* Every rank of the group gives `bytes` bytes and gets all of them, in rank
     * order. Blocks; all ranks make the same calls in the same order. For set-up
     * only. NULL in score. */
    dlc_status (*allgather)(void *job, const void *mine, size_t bytes, void *all);
    /* DLC_OK, or what to return at once because the job is ending. Cheap. */
    dlc_status (*check)(void *job);
} dlc_transport_args;

/* What becomes of a stretch of a bucket's weights. */
typedef struct dlc_weight_step {
    uint32_t size;
    const dlc_momentum *how;
    size_t begin, count; /* elements, from the bucket's first on */
    float *velocity;     /* of these elements */
} dlc_weight_step;

/* One message: tag and size must agree on both sides. */
typedef uint64_t dlc_tag;

typedef struct dlc_transport_ops {
    uint32_t size;

    /* How well it fits this group: 0 cannot run here, 1 .. 100 better. `reason`
     * says why, in words ("shared memory, 2 ranks on one node"; "rank 2 is on
     * another node"). No side effects; every rank computes the same. */
    dlc_status (*score)(const dlc_transport_args *args, int32_t *score, char *reason,
                        size_t reason_bytes);

    /* All ranks of the group together. args and what it points to (but `places`)
     * stay valid until close. */
    dlc_status (*open)(const dlc_transport_args *args, dlc_endpoint **endpoint);
    /* Gives up what is still under way. NULL allowed. Never blocks on a peer. */
    void (*close)(dlc_endpoint *endpoint);

    /* Non-blocking; the buffer is the transport's until the request is done. A
     * request that is found done by test or wait is released by that call. Any
     * size, 0 too; any number under way; between two ranks and for one tag, in
     * order. */
    dlc_status (*send)(dlc_endpoint *endpoint, int32_t peer, dlc_tag tag,
                       const void *buffer, size_t bytes, dlc_request **request);
    dlc_status (*recv)(dlc_endpoint *endpoint, int32_t peer, dlc_tag tag, void *buffer,
                       size_t bytes, dlc_request **request);
    /* Moves things on; *done says whether the request is. */
    dlc_status (*test)(dlc_endpoint *endpoint, dlc_request *request, int *done);
    /* Until the request is done, or the job ends. */
    dlc_status (*wait)(dlc_endpoint *endpoint, dlc_request *request);

    /* From here on: optional. */

    /* Make memory known, so that it can be sent from without copying and peers can
     * put and get it. `remote` (up to 256 bytes) is for the peers. */
    dlc_status (*region_open)(dlc_endpoint *endpoint, void *base, size_t bytes,
                              dlc_region **region, void *remote, size_t *remote_bytes);
    void (*region_close)(dlc_endpoint *endpoint, dlc_region *region);
    /* A peer's region, from the bytes that its region_open gave. */
    dlc_status (*region_import)(dlc_endpoint *endpoint, int32_t peer,
                                const void *remote, size_t remote_bytes,
                                dlc_region **region);
    /* One-sided; done (by test, wait) means the bytes are at their place. */
    dlc_status (*put)(dlc_endpoint *endpoint, const void *local, dlc_region *remote,
                      size_t offset, size_t bytes, dlc_request **request);
    dlc_status (*get)(dlc_endpoint *endpoint, void *local, dlc_region *remote,
                      size_t offset, size_t bytes, dlc_request **request);

    /* Collectives over the whole group on float32, in place, blocking; every rank
     * makes the same calls in the same order. Slice r of `count` elements is
     * [count*r/ranks, count*(r+1)/ranks). */
    dlc_status (*all_reduce)(dlc_endpoint *endpoint, float *buffer, size_t count);
    /* Slice `rank` ends up summed; the rest of the buffer is undefined. */
    dlc_status (*reduce_scatter)(dlc_endpoint *endpoint, float *buffer, size_t count);
    /* Slice r of rank r goes to everybody. */
    dlc_status (*all_gather)(dlc_endpoint *endpoint, float *buffer, size_t count);
    dlc_status (*broadcast)(dlc_endpoint *endpoint, int32_t root, void *buffer,
                            size_t bytes);

    /* All ranks of the group together, each with memory of one size, allocated with
     * DLC_MEM_SHARED: collectives will work in it, at the same offset on all ranks.
     * The transport may map everybody's, or make it known to its adapter. It stays
     * until close. Collectives on other memory must work, too. More than once. */
    dlc_status (*attach)(dlc_endpoint *endpoint, const dlc_memory *memory);
    /* What it found and uses, in a few words ("rc_mlx5/mlx5_0:1, cma"), for people. */
    dlc_status (*describe)(dlc_endpoint *endpoint, char *text, size_t text_bytes);

    /* Collectives as work given to a queue of the device: they return at once and block
     * on nobody. All three or none. */
    dlc_status (*queue_all_reduce)(dlc_endpoint *endpoint, dlc_queue *queue,
                                   float *buffer, size_t count);
    dlc_status (*queue_reduce_scatter)(dlc_endpoint *endpoint, dlc_queue *queue,
                                       float *buffer, size_t count);
    dlc_status (*queue_all_gather)(dlc_endpoint *endpoint, dlc_queue *queue,
                                   float *buffer, size_t count);
    /* With these: has any of it failed, or has a peer gone? Cheap; then what waits on
     * the queue is given up and the endpoint is good for close alone. */
    dlc_status (*poll)(dlc_endpoint *endpoint);
    /* Optional, with these: may they be called for this endpoint? All ranks get the
     * same answer. Without it they may. */
    dlc_status (*queues)(dlc_endpoint *endpoint, int *may);
    /* Both or none. Until one of `count` requests (NULLs are passed over) is done,
     * which is released: *which is its index. Or it is -1, and `seconds` are over or
     * somebody nudged. Gives each its turn; sleeps at once where nothing moves. */
    dlc_status (*wait_any)(dlc_endpoint *endpoint, dlc_request *const *requests,
                           int32_t count, double seconds, int32_t *which);
    /* The wait_any under way, or else the next one, returns. Any thread. */
    void (*nudge)(dlc_endpoint *endpoint);

    /* Optional, where the device has momentum_to: reduce_scatter of `count` gradients,
     * momentum for what is this rank's slice, and all_gather of its weights, in one
     * pass over memory. Both buffers are attached, and the weights are nobody's to read
     * on any rank. The steps, rising, lie in the slice; weights between them stay as
     * they are. The gradients are undefined afterwards. */
    dlc_status (*update)(dlc_endpoint *endpoint, float *gradients, float *weights,
                         size_t count, const dlc_weight_step *steps,
                         int32_t step_count);
} dlc_transport_ops;

#ifdef __cplusplus
}
#endif
#endif
