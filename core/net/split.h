/* Split layers: each rank makes some channels of the output, for the samples of all
 * ranks (Krizhevsky 2014, "One weird trick for parallelizing convolutional neural
 * networks", arXiv:1404.5997). A tensor is then in one of three *spreads*:
 *
 *     own     this rank's samples, all channels: everywhere but near split layers
 *     whole   the samples of all ranks, all channels: what a split layer reads
 *     sliced  the samples of all ranks, this rank's channels: what it gives
 *
 * Where a reader wants another spread than the writer gives, an *exchange* is put in:
 * an operation of the net, like a reorder, that takes part in the memory plan.
 * Gradients go the other way: where everybody had the whole, they are summed.
 */
#ifndef DLC_NET_SPLIT_H
#define DLC_NET_SPLIT_H

#include "net/internal.h"

struct net_exchange {
    net_spread from, to;
    int of_portion;                     /* what it gives (portions.h) */
    int64_t samples, channels, spatial; /* of the tensor, over all ranks */
    char *name;                         /* own; the operation's */
    dlc_request **request; /* own; one a rank for what comes, one for what goes */
    const float **source; /* own; what comes from each rank, or is this one's summand */
    const float **pack;   /* own; what goes to each rank */
};

/* Is a layer of the graph split here? */
int dlc_net_is_split(const dlc_net *net, int32_t node);

/* The spread in which a layer of the graph reads what it reads. Its inputs are there.
 */
net_spread dlc_net_reads(const dlc_net *net, int32_t node);

/* An existing tensor in another spread for a layer of the graph, by an exchange that
 * may be there already. Needs room for one operation. */
dlc_status dlc_net_bring(dlc_net *net, int32_t tensor, net_spread spread, int32_t node,
                         int32_t *result);

/* The first of `channels` that a rank makes, up to the first of the next rank (that of
 * rank `ranks` is `channels`): in proportion to the cut, but each makes one at least.
 * There are as many as ranks. */
int64_t dlc_net_cut(const dlc_net_split *split, int64_t channels, int32_t rank);

/* Are there channels for every rank? */
dlc_status dlc_net_check_slices(const dlc_net *net, const char *name, int64_t channels);
/* Did infer plan what it was asked for? */
dlc_status dlc_net_check_sliced(const net_op *op, int64_t channels);

/* What the exchange needs while it runs, the larger of both ways. */
size_t dlc_net_exchange_scratch(const dlc_net *net, net_exchange *exchange);

/* Both ways of an exchange; they block. */
dlc_status dlc_net_exchange_forward(const dlc_net *net, net_op *op, const void *in,
                                    void *out);
dlc_status dlc_net_exchange_backward(const dlc_net *net, net_op *op,
                                     const void *out_diff, void *in_diff);

void dlc_net_exchange_free(net_exchange *exchange); /* NULL allowed */

#endif
