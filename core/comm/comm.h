/* Communicators: the collectives of a group of ranks, over one transport for all of
 * them, or over several levels (nodes.h): reduced inside domains, exchanged between
 * them, and spread inside.
 *
 * A reduction gives the same bits on every rank, whatever the size, the chunking and
 * the levels: it is pairwise in the order of nodes.h (dlc_device_ops.sum). Transports
 * that reduce in another order are used for reductions only if args.any_order allows
 * it.
 *
 * Threads: one thread at a time; dlc_comm_cancel may be called from any thread. After
 * an error a communicator can only be closed: every other call returns that error.
 */
#ifndef DLC_COMM_COMM_H
#define DLC_COMM_COMM_H

#include "comm/nodes.h"

typedef struct dlc_comm dlc_comm;

/* One of a communicator's levels. */
typedef struct dlc_comm_level {
    const dlc_feature *feature;
    const dlc_settings *settings;
    dlc_domain_level within; /* the domains that it connects the ranks of */
} dlc_comm_level;

/* Copied by dlc_comm_open, except for settings, `job` and the plugins' strings and
 * tables, which must stay valid until close. */
typedef struct dlc_comm_args {
    /* The innermost first; the last is within DLC_DOMAIN_JOB. A level on which no two
     * ranks meet needs no feature. One rank needs no levels. */
    dlc_comm_level level[DLC_COMM_LEVELS];
    int32_t levels;
    int32_t rank, ranks;
    const dlc_rank_info *rank_info; /* one per rank */
    const dlc_device_ops *device_ops;
    /* The device whose memory is exchanged. The communicator opens it once more, with
     * one thread, so that reductions don't wake the threads that run the layers. */
    dlc_device_args device;
    int any_order; /* transports may reduce in an order of their own */
    /* As in dlc_transport_args. */
    void *job;
    dlc_status (*oob_all_gather)(void *job, const void *mine, size_t bytes, void *all);
    dlc_status (*check)(void *job);
    /* Called when a message of a collective has been sent or received, since a large
     * buffer may take minutes on a slow link. May be NULL. */
    void (*on_progress)(void *progress_context);
    /* Called over and over during a wait for a message, with the transport and the rank
     * of the job at the other end (-1: the transport does not say). May be NULL. */
    void (*on_wait)(void *progress_context, const char *transport, int32_t rank);
    /* Called where this rank cannot open a level, before the ranks compare how opening
     * ended: others may be waiting for it inside of a transport. May be NULL. */
    void (*on_failure)(void *progress_context, dlc_status status);
    void *progress_context;
    /* Rank r is rank job_first + r * job_stride of the job; a stride of 0: rank r. */
    int32_t job_first, job_stride;
} dlc_comm_args;

static inline int32_t dlc_comm_job_rank(const dlc_comm_args *args, int32_t rank) {
    return args->job_stride ? args->job_first + rank * args->job_stride : rank;
}

/* Collective over all ranks; blocks until all have called it. */
dlc_status dlc_comm_open(const dlc_comm_args *args, dlc_comm **comm);
/* If a level cannot be opened on some rank, this fails on all of them, with
 * DLC_ERR_PEER on the others, and *failed is the level. -1: another error. */
dlc_status dlc_comm_try_open(const dlc_comm_args *args, dlc_comm **comm,
                             int32_t *failed);
/* Never waits for a peer. NULL is allowed. */
void dlc_comm_close(dlc_comm *comm);

/* Collective. Registers memory that collectives will work in, at the same offset on all
 * ranks. It must have been allocated with DLC_MEM_SHARED and stay allocated until
 * close. Optional: collectives on other memory work too, possibly slower. */
dlc_status dlc_comm_register_buffer(dlc_comm *comm, const dlc_memory *memory);

/* Writes what the transports say that they use ("A: tcp/eth0"), or "". */
void dlc_comm_describe(dlc_comm *comm, char *text, size_t bytes);

/* An error if the calls were cancelled, are late, or the job has failed. Any thread;
 * whoever waits for another one that uses the communicator calls it often. */
dlc_status dlc_comm_check(void *comm);

/* Makes the call in progress and all later ones return DLC_ERR_CANCELLED. */
void dlc_comm_cancel(dlc_comm *comm);

/* Makes calls return DLC_ERR_TIMEOUT from that time of dlc_now_ns on; 0: never. For
 * probe.c. */
void dlc_comm_set_deadline(dlc_comm *comm, uint64_t ns);

/* This rank's team on a level, and the ranks of it; NULL: it has none. For probe.c. */
struct dlc_team *dlc_comm_team(const dlc_comm *comm, int32_t level, int32_t *members);

/* Collective: dlc_comm_args.oob_all_gather, for small amounts of host memory. */
dlc_status dlc_comm_oob_all_gather(dlc_comm *comm, const void *mine, size_t bytes,
                                   void *all);

int32_t dlc_comm_rank(const dlc_comm *comm);
int32_t dlc_comm_ranks(const dlc_comm *comm);

/* Collectives: every rank makes the same calls in the same order. They block. Buffers
 * are device memory; any count is allowed, including 0 and less than the number of
 * ranks. */
dlc_status dlc_comm_broadcast(dlc_comm *comm, int32_t root, void *buffer, size_t bytes);
dlc_status dlc_comm_all_reduce(dlc_comm *comm, float *buffer, size_t count);
/* Reduces this rank's shard; the rest of the buffer is undefined afterwards. */
dlc_status dlc_comm_reduce_scatter(dlc_comm *comm, float *buffer, size_t count);
/* Sends every rank's shard to all ranks. */
dlc_status dlc_comm_all_gather(dlc_comm *comm, float *buffer, size_t count);
dlc_status dlc_comm_barrier(dlc_comm *comm);

/* Stream-ordered collectives: work submitted to a queue of the device. The calls return
 * at once. Allowed if dlc_comm_can_queue (all ranks share one transport, which supports
 * them), and within a capture if dlc_comm_can_capture. */
int dlc_comm_can_queue(const dlc_comm *comm);
int dlc_comm_can_capture(const dlc_comm *comm);
dlc_status dlc_comm_queue_all_reduce(dlc_comm *comm, dlc_queue *queue, float *buffer,
                                     size_t count);
dlc_status dlc_comm_queue_reduce_scatter(dlc_comm *comm, dlc_queue *queue,
                                         float *buffer, size_t count);
dlc_status dlc_comm_queue_all_gather(dlc_comm *comm, dlc_queue *queue, float *buffer,
                                     size_t count);
/* Returns an error if a stream-ordered collective has failed or the job is ending;
 * the queue must then no longer be waited for. */
dlc_status dlc_comm_poll(dlc_comm *comm);

/* Reduce-scatter, update and all-gather in one pass (dlc_transport_ops.fused_update).
 * Allowed if dlc_comm_can_fuse_update (all ranks share one transport, which supports
 * it) and both arenas are registered. */
int dlc_comm_can_fuse_update(const dlc_comm *comm);
dlc_status dlc_comm_fused_update(dlc_comm *comm, float *gradients, float *weights,
                                 size_t count, const dlc_update_range *ranges,
                                 int32_t range_count);

/* This rank's shard of `count` elements: [*begin, *end), a slice (dlc_slice) of a slice
 * for each level. If levels have teams of unequal sizes it is everything, and
 * dlc_comm_reduce_scatter is an all-reduce. */
void dlc_comm_shard(const dlc_comm *comm, size_t count, size_t *begin, size_t *end);
/* Whether every rank has a shard of its own. */
int dlc_comm_has_shards(const dlc_comm *comm);

#endif
