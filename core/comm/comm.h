/* Communicators: the collectives of a job's ranks, over any transport, or over two:
 * one inside the nodes and another between them.
 *
 * A sum has the same bits on every rank, whatever the size and the chunks: pairwise
 * over the ranks of each node, then pairwise over the nodes (dlc_device_ops.sum), on
 * every transport but those that sum in an order of their own, where that is allowed
 * (any_order).
 *
 * Threads: one thread at a time; dlc_comm_cancel from any. After an error a
 * communicator is good for closing only: every call then returns that error.
 */
#ifndef DLC_COMM_COMM_H
#define DLC_COMM_COMM_H

#include <dlcore/transport.h>

typedef struct dlc_comm dlc_comm;

/* One of a communicator's transports. */
typedef struct dlc_comm_level {
    const dlc_feature *feature;
    const dlc_settings *settings;
} dlc_comm_level;

/* All of it is copied but settings, `job` and the strings and tables of the plugins,
 * which stay valid until close. */
typedef struct dlc_comm_args {
    /* Joins all ranks; or, where `between` has a feature, those of each node. No
     * feature is needed for one rank, or for nodes of one rank. */
    dlc_comm_level level;
    dlc_comm_level between;
    int32_t rank, ranks;
    const dlc_place *places; /* one a rank */
    const dlc_device_ops *device_ops;
    /* The device whose memory is exchanged. It is opened once more, with one
     * thread, so that sums don't wake the threads that run the layers. */
    dlc_device_args device;
    int any_order; /* a transport may sum in an order of its own */
    /* Of dlc_transport_args. */
    void *job;
    dlc_status (*allgather)(void *job, const void *mine, size_t bytes, void *all);
    dlc_status (*check)(void *job);
} dlc_comm_args;

/* All ranks of the job together. */
dlc_status dlc_comm_open(const dlc_comm_args *args, dlc_comm **comm);
void dlc_comm_close(dlc_comm *comm); /* NULL allowed; never waits for a peer */

/* All ranks together: collectives will work in this memory, at the same offset on all
 * ranks; it was allocated with DLC_MEM_SHARED and stays until close. Only makes them
 * faster, where the transport can. */
dlc_status dlc_comm_attach(dlc_comm *comm, const dlc_memory *memory);

/* What the transports say that they use: "A: tcp/eth0"; "" where they say nothing. */
void dlc_comm_describe(dlc_comm *comm, char *text, size_t bytes);

/* Makes a call that waits, and every later one, return DLC_ERR_CANCELLED. */
void dlc_comm_cancel(dlc_comm *comm);

/* dlc_comm_args.allgather: host memory, small things. */
dlc_status dlc_comm_gather(dlc_comm *comm, const void *mine, size_t bytes, void *all);

int32_t dlc_comm_rank(const dlc_comm *comm);
int32_t dlc_comm_ranks(const dlc_comm *comm);

/* Collectives: every rank makes the same calls in the same order. They block. The
 * buffer is device memory; any count, also 0 and less than there are ranks. */
dlc_status dlc_comm_broadcast(dlc_comm *comm, int32_t root, void *buffer, size_t bytes);
dlc_status dlc_comm_all_reduce(dlc_comm *comm, float *buffer, size_t count);
/* This rank's shard ends up summed; the rest of the buffer is undefined. */
dlc_status dlc_comm_reduce_scatter(dlc_comm *comm, float *buffer, size_t count);
/* Every rank's shard goes to everybody. */
dlc_status dlc_comm_all_gather(dlc_comm *comm, float *buffer, size_t count);
dlc_status dlc_comm_barrier(dlc_comm *comm);

/* The same as work given to a queue of the device, where one transport that can joins
 * all ranks (dlc_comm_can_queue): the calls return at once. They may be recorded, if
 * dlc_comm_can_record. dlc_comm_poll tells whether any of it has failed, or the job is
 * ending: then nobody may wait for that queue any more. */
int dlc_comm_can_queue(const dlc_comm *comm);
int dlc_comm_can_record(const dlc_comm *comm);
dlc_status dlc_comm_queue_all_reduce(dlc_comm *comm, dlc_queue *queue, float *buffer,
                                     size_t count);
dlc_status dlc_comm_queue_reduce_scatter(dlc_comm *comm, dlc_queue *queue,
                                         float *buffer, size_t count);
dlc_status dlc_comm_queue_all_gather(dlc_comm *comm, dlc_queue *queue, float *buffer,
                                     size_t count);
dlc_status dlc_comm_poll(dlc_comm *comm);

/* Sums, updates and gathers in one pass (dlc_transport_ops.update), where one transport
 * that can joins all ranks (dlc_comm_can_update) and the arenas are attached. */
int dlc_comm_can_update(const dlc_comm *comm);
dlc_status dlc_comm_update(dlc_comm *comm, float *gradients, float *weights,
                           size_t count, const dlc_weight_step *steps,
                           int32_t step_count);

/* This rank's shard of `count` elements: [*begin, *end). With one level slice `rank`
 * (dlc_slice in team.h); with two the slice of a slice; where nodes have unequal
 * numbers of ranks all of it, and reduce_scatter is an all-reduce. */
void dlc_comm_shard(const dlc_comm *comm, size_t count, size_t *begin, size_t *end);
/* Has every rank a shard of its own? */
int dlc_comm_has_shards(const dlc_comm *comm);

#endif
