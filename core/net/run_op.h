/* Runs one operation, forward or backward, with all that every kind needs around it: it
 * waits for weights, recomputes, adds up gradients, reports activity and measures time.
 * Schedules are made of these calls (run.c, run_chunks.c). */
#ifndef DLC_NET_RUN_OP_H
#define DLC_NET_RUN_OP_H

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

#endif
