/* Transports: how ranks reach each other.
 *
 * A transport passes tagged messages between the ranks of a group, and predicts how
 * long a reduction over a group takes. Everything else is optional: the core builds
 * collectives from messages if the transport has none of its own.
 *
 *     dlc_transport_ops             needed          thread    may block
 *     predict                       required        any       no
 *     open                          required        one       yes
 *     close                         required        one       never on a peer
 *     send recv test                required        one       no
 *     wait                          required        one       yes
 *     wait_any                      optional, both  one       yes
 *     wakeup                        optional, both  any       no
 *     all_reduce reduce_scatter
 *       all_gather broadcast        optional        one       yes
 *     register_buffer               optional        one       yes
 *     fused_update                  optional        one       yes
 *     describe                      optional        one       no
 *
 *     dlc_transport_queue_ops       needed          thread    may block
 *     all_reduce reduce_scatter
 *       all_gather                  required        one       no
 *     poll                          required        one       no
 *     supported                     optional        one       no
 *
 * Threads. "One" means that calls on one endpoint come from one thread at a time, not
 * always from the same one. Any thread may call wakeup at any time.
 *
 * Endpoints. A process may have several endpoints open at once, of one transport and of
 * one group, which different threads use: gradients go over one, messages of tensor or
 * pipeline parallelism over another. Messages and collectives of different endpoints
 * never meet.
 *
 * Memory. Buffers are memory of args->device; those of messages may also be host memory
 * that was allocated with DLC_MEM_STAGING. If that device has no queues, the CPU may
 * read and write them. Otherwise a transport without DLC_TRANSPORT_DEVICE_MEMORY must
 * not look into them: it copies with dlc_device_ops.copy, or predicts that it cannot.
 *
 * Blocking calls must call args->check often enough to return within 100 ms after it
 * fails, with the status that it returned; that is how a rank learns that another one
 * died. They must sleep rather than spin while nothing moves. After an error of class 3
 * the endpoint can only be closed. */
#ifndef DLCORE_TRANSPORT_H
#define DLCORE_TRANSPORT_H

#include <dlcore/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dlc_endpoint dlc_endpoint; /* a rank's end of a group; the plugin's */
typedef struct dlc_request dlc_request;   /* a pending operation; the plugin's */

/* Capability bits of a transport feature. */
enum {
    /* Its reductions add in the pairwise order of dlc_device_ops.sum over the ranks of
     * the group, whatever the size of the buffer and of its pieces. */
    DLC_TRANSPORT_PAIRWISE = 1u << 0,

    /* Can send and receive the memory of devices without DLC_DEVICE_HOST. */
    DLC_TRANSPORT_DEVICE_MEMORY = 1u << 1,

    /* Its stream-ordered collectives can be captured (capture_begin of
     * dlc_device_queue_ops). */
    DLC_TRANSPORT_CAPTURABLE = 1u << 2,
};

/* Levels of domains, from the innermost to the outermost: the ranks of a job, grouped
 * by how near they are. A domain is part of one domain of the next level. */
typedef enum dlc_domain_level {
    DLC_DOMAIN_DEVICE,  /* ranks on one accelerator; a rank on CPUs is alone */
    DLC_DOMAIN_ISLAND,  /* any two devices have a direct link (NVLink, XGMI) */
    DLC_DOMAIN_SWITCH,  /* behind the same PCIe switches */
    DLC_DOMAIN_BRIDGE,  /* behind one host bridge */
    DLC_DOMAIN_NUMA,    /* of one NUMA node */
    DLC_DOMAIN_MACHINE, /* of one machine */
    DLC_DOMAIN_RACK,    /* of one rack */
    DLC_DOMAIN_JOB,     /* all ranks */
    DLC_DOMAIN_LEVELS
} dlc_domain_level;

/* Where a rank runs. */
typedef struct dlc_rank_info {
    uint32_t size;
    int32_t node; /* ranks with the same number are on the same machine */
    uint32_t pid;
    uint32_t uid;
    char host[64];
    char device[32]; /* "cpu", "cuda" */
    int32_t device_index;

    /* Of the CPU that its compute threads run on, or that its device is nearest to: the
     * operating system's numbers of the socket and the NUMA node on that machine. -1:
     * not known. */
    int32_t package;
    int32_t numa;

    /* From the topology of the whole job. All 0 and "" if that is not known. */

    int32_t domain[DLC_DOMAIN_LEVELS]; /* the number of its domain on each level, unique
                                          in the job */
    int32_t order;    /* its place if ranks stand so that neighbors are near */
    char adapter[32]; /* the nearest network adapter: "mlx5_0", "eth0" */
} dlc_rank_info;

/* The arguments of predict and open. */
typedef struct dlc_transport_args {
    uint32_t size;
    int32_t rank;                   /* of the caller in this group, 0 .. ranks-1 */
    int32_t ranks;                  /* number of ranks in this group */
    const dlc_rank_info *rank_info; /* one for each rank; walk with DLC_NEXT */
    const dlc_settings *settings;   /* of the feature's option table */
    const dlc_device_ops *device_ops;
    dlc_device *device; /* whose memory is sent and received */

    /* Services of the job. */

    void *job; /* the first argument of the calls below */

    /* Out-of-band all-gather, for set-up only: each rank of the group passes `bytes`
     * bytes in `mine` and gets those of all ranks in `all`, in the order of the ranks.
     * Blocks. All ranks make the same calls in the same order. NULL in predict. */
    dlc_status (*oob_all_gather)(void *job, const void *mine, size_t bytes, void *all);

    /* DLC_OK, or the status to return at once because the job is ending. Cheap; any
     * thread. */
    dlc_status (*check)(void *job);

    /* 1: the ranks send messages at any time and in any order, so that their tags alone
     * tell them apart (bounded staleness). A transport that matches messages by their
     * order, and not by tags as it should, predicts that it cannot connect them then.
     */
    int32_t tagged_messages;

    /* For predict: the slowest link between two ranks of the group. Seconds of a
     * message of a few bytes, without software; bytes a second in each direction, of
     * one rank if all ranks that share the link use it. 0: not known. */
    double link_latency, link_bandwidth;

    /* For predict: 1 if the topology does not let the devices of all ranks access each
     * other's memory. A transport with a `device` asks that instead. */
    int32_t no_peer_access;
} dlc_transport_args;

/* The size of buffers up to which a reduction is small: it is likely in caches. */
#define DLC_SMALL_REDUCTION ((size_t)1 << 20)

/* What a transport predicts of the all-reduces of a group: one of n bytes takes
 * latency + n / bandwidth seconds. */
typedef struct dlc_transport_prediction {
    uint32_t size;
    double latency;         /* seconds of an all-reduce of a few bytes; above 0 */
    double small_bandwidth; /* bytes a second, of up to DLC_SMALL_REDUCTION bytes */
    double bandwidth; /* bytes a second, of more; 0: it cannot connect this group */
} dlc_transport_prediction;

/* The prediction for algorithms in which each rank of the group sends and receives
 * 2 (ranks - 1) / ranks times the buffer: small or large ones at these fractions of the
 * link's bandwidth, in two rounds of as many steps as a tree has levels, each of which
 * takes `overhead` seconds besides the link's latency. */
static inline dlc_transport_prediction dlc_predict(const dlc_transport_args *args,
                                                   double overhead, double small,
                                                   double large) {
    double link = args->link_bandwidth > 0 ? args->link_bandwidth : 1e10;
    double ranks = args->ranks > 1 ? (double)args->ranks : 2, steps = 0;
    for (int64_t reached = 1; reached < (int64_t)ranks; reached *= 2)
        steps += 2;
    dlc_transport_prediction made = {(uint32_t)sizeof made,
                                     steps * (overhead + args->link_latency),
                                     small * link * ranks / (2 * (ranks - 1)),
                                     large * link * ranks / (2 * (ranks - 1))};
    return made;
}

/* The part of a bucket that is updated with one set of hyperparameters. A transport
 * passes it to dlc_device_ops.update_to and need not know what is in it. */
typedef struct dlc_update_range {
    uint32_t size;
    const dlc_update *update;
    size_t begin, count;         /* in elements, from the beginning of the bucket */
    float *slots[DLC_MAX_SLOTS]; /* of these elements; NULL beyond the rule's */
} dlc_update_range;

/* Tells messages between the same two ranks apart. All 64 bits count, and all values
 * are allowed. Both sides use the same tag. */
typedef uint64_t dlc_tag;

/* Stream-ordered collectives: submitted to a queue of the device, as in NCCL. They
 * return at once and do not block on a peer. Slices are those of the blocking ones
 * (dlc_transport_ops), and all ranks make all collective calls in the same order. */
typedef struct dlc_transport_queue_ops {
    uint32_t size;

    /* Required. The buffer becomes the sum over all ranks. */
    dlc_status (*all_reduce)(dlc_endpoint *endpoint, dlc_queue *queue, float *buffer,
                             size_t count);

    /* Required. Slice `rank` becomes the sum over all ranks. */
    dlc_status (*reduce_scatter)(dlc_endpoint *endpoint, dlc_queue *queue,
                                 float *buffer, size_t count);

    /* Required. Slice r becomes that of rank r, for all r. */
    dlc_status (*all_gather)(dlc_endpoint *endpoint, dlc_queue *queue, float *buffer,
                             size_t count);

    /* Required. Returns the error of a stream-ordered collective that failed, or
     * DLC_ERR_PEER if a peer is gone. Work that waits on the queue is then cancelled,
     * and the endpoint can only be closed. Cheap. */
    dlc_status (*poll)(dlc_endpoint *endpoint);

    /* Optional. *supported = 1 if this endpoint supports stream-ordered collectives,
     * otherwise 0. All ranks must get the same answer. NULL: every endpoint does. */
    dlc_status (*supported)(dlc_endpoint *endpoint, int *supported);
} dlc_transport_queue_ops;

/* The table of calls of a transport. */
typedef struct dlc_transport_ops {
    uint32_t size;

    /* Required. Predicts the all-reduces of this group from what the transport does and
     * the link that is given, without measuring and without side effects. A bandwidth
     * of 0: it cannot connect this group. `reason` gets a short explanation: "shared
     * memory, 2 ranks on one node", "rank 2 is on another node". All ranks must predict
     * the same. The core weighs predictions of several transports, and of several
     * levels of domains, for the buckets of the job. */
    dlc_status (*predict)(const dlc_transport_args *args,
                          dlc_transport_prediction *prediction, char *reason,
                          size_t reason_bytes);

    /* Required. Connects the ranks; all ranks of the group call it together. `args` and
     * what it points to, except for rank_info, are valid until close. The caller owns
     * *endpoint, which is not NULL. */
    dlc_status (*open)(const dlc_transport_args *args, dlc_endpoint **endpoint);

    /* Required. Closes the endpoint and cancels what is in flight, without waiting for
     * a peer. Does nothing if `endpoint` is NULL. */
    void (*close)(dlc_endpoint *endpoint);

    /* Point-to-point messages, required. */

    /* Start sending or receiving `bytes` bytes, 0 or more. The transport uses the
     * buffer until the request is done. Any number of requests may be in flight.
     * Messages between two ranks with the same tag arrive in the order in which they
     * were sent. `peer` is another rank of the group: the core never sends to the rank
     * itself, and a transport need not support that. Both sides name the same size; if
     * they do not, the receive fails with DLC_ERR_CONFIG, at the latest in the call
     * that finds it done, and writes nothing beyond its buffer, while the send may
     * succeed. The caller passes *request to test, wait or wait_any until one of them
     * finds it done or fails; that call releases it. */

    dlc_status (*send)(dlc_endpoint *endpoint, int32_t peer, dlc_tag tag,
                       const void *buffer, size_t bytes, dlc_request **request);
    dlc_status (*recv)(dlc_endpoint *endpoint, int32_t peer, dlc_tag tag, void *buffer,
                       size_t bytes, dlc_request **request);

    /* Makes progress on all requests. *done = 1 if this one is done, and released;
     * otherwise 0. */
    dlc_status (*test)(dlc_endpoint *endpoint, dlc_request *request, int *done);

    /* Blocks until the request is done, and releases it. */
    dlc_status (*wait)(dlc_endpoint *endpoint, dlc_request *request);

    /* Waiting for several requests, optional. Both calls or none; without them the core
     * calls test in turn. */

    /* Blocks until one of `count` requests is done, releases it and stores its index in
     * *which. NULL entries are skipped. Stores -1 if none is done after `seconds`, or
     * after wakeup. It is fair to all requests, and sleeps at once if nothing moves. */
    dlc_status (*wait_any)(dlc_endpoint *endpoint, dlc_request *const *requests,
                           int32_t count, double seconds, int32_t *which);

    /* Makes the wait_any that is running, or otherwise the next one, return. Any
     * thread. */
    void (*wakeup)(dlc_endpoint *endpoint);

    /* Collectives over all ranks of the group, in place, blocking; each is optional.
     * All ranks make the same calls in the same order. Slice r of `count` elements is
     * [count*r/ranks, count*(r+1)/ranks). */

    /* The buffer becomes the sum over all ranks. The last elements of a buffer may be
     * control words of the core instead of gradients (the loss, votes of the ranks),
     * added like all others. Every rank reads them, so the bucket that has them is
     * all-reduced even if the updates of the other buckets are sharded, and
     * fused_update never gets them. */
    dlc_status (*all_reduce)(dlc_endpoint *endpoint, float *buffer, size_t count);

    /* Slice `rank` becomes the sum over all ranks; the rest of the buffer is
     * undefined. */
    dlc_status (*reduce_scatter)(dlc_endpoint *endpoint, float *buffer, size_t count);

    /* Slice r becomes that of rank r, for all r. */
    dlc_status (*all_gather)(dlc_endpoint *endpoint, float *buffer, size_t count);

    /* The buffer becomes that of rank `root`. */
    dlc_status (*broadcast)(dlc_endpoint *endpoint, int32_t root, void *buffer,
                            size_t bytes);

    /* Optional. All ranks together, each with memory of the same size that was
     * allocated with DLC_MEM_SHARED: later collectives will use it, at the same offset
     * on all ranks. The transport may map the memory of the peers or register it with
     * its adapter. Collectives in other memory must still work. May be called several
     * times. The memory stays valid until close. */
    dlc_status (*register_buffer)(dlc_endpoint *endpoint, const dlc_memory *memory);

    /* Optional, for devices with update_to: reduce_scatter of `count` gradients, update
     * of this rank's slice, and all_gather of the weights, in one pass over memory.
     * Both buffers are registered, and no rank reads the weights meanwhile. The ranges
     * are in ascending order within the slice; weights between them do not change. The
     * gradients are undefined afterwards. */
    dlc_status (*fused_update)(dlc_endpoint *endpoint, float *gradients, float *weights,
                               size_t count, const dlc_update_range *ranges,
                               int32_t range_count);

    /* The stream-ordered collectives. NULL: there are none. */
    const dlc_transport_queue_ops *queues;

    /* Optional. Writes what the endpoint found and uses to `text`, in a few words for
     * people: "rc_mlx5/mlx5_0:1, cma". Always ends with a NUL. */
    dlc_status (*describe)(dlc_endpoint *endpoint, char *text, size_t text_bytes);
} dlc_transport_ops;

#ifdef __cplusplus
}
#endif
#endif
