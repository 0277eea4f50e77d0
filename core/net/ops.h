/* The kinds of operations. Each is a file, op_KIND.c, whose only secret is what it does
 * on each call of its table; these functions put one into a net.
 */
#ifndef DLC_NET_OPS_H
#define DLC_NET_OPS_H

#include "net/ir.h"

/* Adds a layer of the graph at the end. Its inputs are still to be set. */
dlc_status dlc_net_add_layer(dlc_net *net, int32_t node, net_op **op);
/* Opens the family of a layer unless it is open: `infer` does that, too. */
dlc_status dlc_net_open_family(dlc_net *net, net_op *layer);

/* Adds an operation at the end that sends a tensor to another pipeline stage. */
dlc_status dlc_net_add_boundary(dlc_net *net, int32_t i, int32_t tensor);

/* Gives operation `reader` its input `i` in another placement: inserts a reshard
 * operation before it unless there is one. `in_chunk`: the rows of a batch chunk. */
dlc_status dlc_net_reshard_input(dlc_net *net, net_op *reader, int32_t i,
                                 net_placement placement, int in_chunk);

/* Gives operation `reader` its input `i` as `wanted`: inserts a reorder of a family
 * before it unless there is one. */
dlc_status dlc_net_reorder_input(dlc_net *net, net_op *reader, int32_t i,
                                 const dlc_family *family, void *context,
                                 const dlc_tensor *wanted);
/* Have they the same layout, and the same type? */
int dlc_net_same_layout(const dlc_family *family, const dlc_tensor *a,
                        const dlc_tensor *b);
/* An operation whose output is its input, converted by its family: there and, if its
 * backward runs, back. What is NULL is copied instead. */
typedef struct net_conversion {
    net_op op;                       /* first */
    dlc_reorder *forward, *backward; /* own; the family's */
} net_conversion;

/* Creates the family's reorders between op->in[0] and op->out[0]. */
dlc_status dlc_net_conversion_make(net_op *op, int backward);
/* Calls of the table of such operations. */
dlc_status dlc_net_conversion_forward(const dlc_net *net, net_op *op, net_run kind);
dlc_status dlc_net_conversion_backward(const dlc_net *net, net_op *op, uint32_t parts);
void dlc_net_conversion_free(net_op *op);
/* Notes which family's layout or type a tensor has, and thus which family can convert
 * it to plain float32. */
void dlc_net_own_layout(net_tensor *tensor, const dlc_family *family, void *context);

#endif
