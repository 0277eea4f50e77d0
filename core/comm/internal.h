/* What comm.c and collectives.c share. */
#ifndef DLC_COMM_INTERNAL_H
#define DLC_COMM_INTERNAL_H

#include <stdatomic.h>

#include "comm/comm.h"

struct dlc_comm {
    const dlc_feature *feature;
    const dlc_transport_ops *ops; /* NULL: a single rank */
    dlc_transport_args args;      /* as the transport sees them, with our check */
    dlc_endpoint *endpoint;
    dlc_place *places; /* own */
    void *job;
    dlc_status (*check)(void *job);
    dlc_status (*gather)(void *job, const void *mine, size_t bytes, void *all);
    atomic_int cancelled;
    dlc_status failed; /* the first error */
    int messages_only; /* its collectives do not serve this group */

    /* For sums built from messages: made when they are needed first. */
    dlc_memory scratch;
    float **piece;          /* where a rank's summand comes to; two sets */
    const float **sources;  /* the summands of one sum */
    dlc_request **requests; /* two sets of twice as many as there are ranks */
    size_t pending[2];      /* requests in each set */
};

/* collectives.c: from messages alone. More than one rank; sizes are not 0. */
dlc_status dlc_messages_broadcast(dlc_comm *comm, int32_t root, void *buffer,
                                  size_t bytes);
dlc_status dlc_messages_all_reduce_small(dlc_comm *comm, float *buffer, size_t count);
dlc_status dlc_messages_reduce_scatter(dlc_comm *comm, float *buffer, size_t count);
dlc_status dlc_messages_all_gather(dlc_comm *comm, float *buffer, size_t count);
dlc_status dlc_messages_barrier(dlc_comm *comm);
void dlc_messages_free(dlc_comm *comm);

/* Buffers up to this many elements are summed in one step. */
enum { DLC_COMM_SMALL = 2048 };

#endif
