/* Tensor-parallel layers: each rank computes some channels of the output, for the
 * samples of all ranks (Krizhevsky 2014, "One weird trick for parallelizing
 * convolutional neural networks", arXiv:1404.5997). A tensor has one of three
 * placements:
 *
 *     sample-sharded   this rank's samples, all channels: away from such layers
 *     replicated       the samples of all ranks, all channels: what such a layer reads
 *     channel-sharded  the samples of all ranks, this rank's channels: its output
 *
 * If a reader needs another placement than the writer gives, a reshard operation is
 * inserted: an operation of the net, like a reorder, that takes part in the memory
 * plan. In backward gradients take the opposite direction; those of a replicated tensor
 * are added up over the ranks. Included by the files of core/net only.
 */
#ifndef DLC_NET_TENSOR_PARALLEL_H
#define DLC_NET_TENSOR_PARALLEL_H

#include "net/internal.h"

struct net_reshard {
    net_placement from, to;
    int in_chunk;                       /* the output has the rows of a batch chunk */
    int64_t samples, channels, spatial; /* of the tensor, over all ranks */
    char *name;                         /* own; the operation's */
    uint64_t *received;                 /* own; handle of the transfer from each rank */
    const float **source; /* own; what each rank contributes, this one included */
    const float **pack;   /* own; what is sent to each rank */
};

/* Is a layer of the graph tensor-parallel in this net? */
int dlc_net_is_tensor_parallel(const dlc_net *net, int32_t node);

/* The placement in which a layer of the graph reads its inputs, which must be in the
 * net already. */
net_placement dlc_net_input_placement(const dlc_net *net, int32_t node);

/* Gives the tensor in another placement, for layer `node` of the graph; adds a reshard
 * operation unless there is one. Needs room for one more operation. */
dlc_status dlc_net_reshard_to(dlc_net *net, int32_t tensor, net_placement placement,
                              int32_t node, int32_t *result);

/* The first of `channels` that a rank computes; its last one comes before the first of
 * the next rank (that of rank `ranks` is `channels`). Channels are split in proportion
 * to channel_share, but each rank has at least one; there must be that many. */
int64_t dlc_net_channel_begin(const dlc_net_tensor_parallel *tp, int64_t channels,
                              int32_t rank);

/* Checks that there is a channel for every rank. */
dlc_status dlc_net_check_channels(const dlc_net *net, const char *name,
                                  int64_t channels);
/* Checks that the layer infers as many channels as it was asked for. */
dlc_status dlc_net_check_channel_shapes(const net_op *op, int64_t channels);

/* The scratch bytes of a reshard operation, the larger of both directions. */
size_t dlc_net_reshard_scratch(const dlc_net *net, net_reshard *reshard);

/* Run a reshard operation in either direction; they block. */
dlc_status dlc_net_reshard_forward(const dlc_net *net, net_op *op, const void *in,
                                   void *out);
dlc_status dlc_net_reshard_backward(const dlc_net *net, net_op *op,
                                    const void *out_diff, void *in_diff);

void dlc_net_reshard_free(net_reshard *reshard); /* NULL allowed */

#endif
