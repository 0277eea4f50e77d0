/* Communicators: the collectives of a group of ranks, over any transport.
 *
 * What a transport has no call for, or sums in another order than the SDK's, is
 * built here from its messages. Either way a sum has the same bits on every rank,
 * whatever the size, the chunks and the transport.
 *
 * Threads: one thread at a time; dlc_comm_cancel from any. After an error a
 * communicator is good for closing only: every call then returns that error.
 */
#ifndef DLC_COMM_COMM_H
#define DLC_COMM_COMM_H

#include <dlcore/transport.h>

typedef struct dlc_comm dlc_comm;

/* All of it is copied but `settings`, `job` and the strings and tables of the
 * plugins, which stay valid until close. */
typedef struct dlc_comm_args {
    const dlc_feature *feature; /* a transport; may be NULL for one rank */
    const dlc_settings *settings;
    int32_t rank, ranks;
    const dlc_place *places; /* one a rank */
    const dlc_device_ops *device_ops;
    /* The device whose memory is exchanged. It is opened once more, with one
     * thread, so that sums don't wake the threads that run the layers. */
    dlc_device_args device;
    /* Of dlc_transport_args. */
    void *job;
    dlc_status (*allgather)(void *job, const void *mine, size_t bytes, void *all);
    dlc_status (*check)(void *job);
} dlc_comm_args;

/* All ranks of the group together. */
dlc_status dlc_comm_open(const dlc_comm_args *args, dlc_comm **comm);
void dlc_comm_close(dlc_comm *comm); /* NULL allowed; never waits for a peer */

/* All ranks together: collectives will work in this memory, at the same offset on all
 * ranks; it was allocated with DLC_MEM_SHARED and stays until close. Only makes them
 * faster, where the transport can. */
dlc_status dlc_comm_attach(dlc_comm *comm, const dlc_memory *memory);

/* Makes a call that waits, and every later one, return DLC_ERR_CANCELLED. */
void dlc_comm_cancel(dlc_comm *comm);

int32_t dlc_comm_rank(const dlc_comm *comm);
int32_t dlc_comm_ranks(const dlc_comm *comm);

/* Collectives: every rank makes the same calls in the same order. They block. The
 * buffer is device memory; any count, also 0 and less than there are ranks. Slice r
 * is as dlc_comm_slice says. */
dlc_status dlc_comm_broadcast(dlc_comm *comm, int32_t root, void *buffer, size_t bytes);
dlc_status dlc_comm_all_reduce(dlc_comm *comm, float *buffer, size_t count);
/* Slice `rank` ends up summed; the rest of the buffer is undefined. */
dlc_status dlc_comm_reduce_scatter(dlc_comm *comm, float *buffer, size_t count);
/* Slice r of rank r goes to everybody. */
dlc_status dlc_comm_all_gather(dlc_comm *comm, float *buffer, size_t count);
dlc_status dlc_comm_barrier(dlc_comm *comm);

/* Where slice r of `count` elements begins: count * r / ranks. */
static inline size_t dlc_comm_slice(size_t count, int32_t r, int32_t ranks) {
    size_t n = (size_t)ranks, i = (size_t)r;
    return count / n * i + count % n * i / n;
}

#endif
