/* Runs operations. A schedule is made of calls for one operation, forward or backward,
 * each with all that every kind needs around it: run.c runs the whole batch,
 * run_chunks.c batch chunks. */
#ifndef DLC_NET_RUN_H
#define DLC_NET_RUN_H

#include "net/ir.h"

/* What is called as gradients become final. */
typedef struct net_done {
    dlc_net_done *call; /* or NULL */
    void *context;
} net_done;

/* Do nothing for an operation that is fused into another, or that has no backward. */
dlc_status dlc_net_forward_op(dlc_net *net, net_op *op);
dlc_status dlc_net_backward_op(dlc_net *net, net_op *op);

/* Reports that the gradients of an operation's parameters are final, if it has any. */
dlc_status dlc_net_gradients_done(const dlc_net *net, const net_op *op,
                                  const net_done *done);

/* Reports that an operation is about to run. */
void dlc_net_note_activity(const dlc_net *net, const char *phase, const net_op *op);

/* ---- Batch chunks (placement.h) -------------------------------------------------- */

/* Run the chunked part for all chunks of a batch: forward alone, or with backward.
 * Without batch chunks there is no such part, and they do nothing. */
dlc_status dlc_net_chunks_forward(dlc_net *net);
dlc_status dlc_net_chunks_train(dlc_net *net, const net_done *done);

#endif
