/* Tensor parallelism, in numbers: each rank computes some channels of a layer's output,
 * for the samples of all ranks (Krizhevsky 2014, "One weird trick for parallelizing
 * convolutional neural networks", arXiv:1404.5997). Which channels a rank has, and what
 * it has of a tensor. Pure functions; used by the operations and passes that split
 * layers.
 */
#ifndef DLC_NET_PLACEMENT_H
#define DLC_NET_PLACEMENT_H

#include "base/status.h"
#include "net/net.h"

/* The samples and channels that a rank has of a tensor. */
typedef enum net_placement {
    SAMPLE_SHARDED, /* its own samples, all channels: away from tensor-parallel layers
                     */
    REPLICATED, /* the samples of all ranks, all channels: what such a layer reads */
    CHANNEL_SHARDED /* the samples of all ranks, its own channels: such a layer's output
                     */
} net_placement;

/* Is a layer of the graph tensor-parallel? `tp` may be NULL. */
int dlc_net_is_tensor_parallel(const dlc_net_tensor_parallel *tp, int32_t node);

/* Is a layer cheap enough to be computed along with tensor-parallel ones: by every rank
 * for the samples of all ranks? */
int dlc_net_is_light(const dlc_graph_layer *layer);

/* The first of `channels` that a rank computes; its last one comes before the first of
 * the next rank (that of rank `ranks` is `channels`). Channels are split in proportion
 * to channel_share, but each rank has at least one; there must be that many. */
int64_t dlc_net_channel_begin(const dlc_net_tensor_parallel *tp, int64_t channels,
                              int32_t rank);

/* Checks that there is a channel of layer `name` for every rank. */
dlc_status dlc_net_check_channels(const dlc_net_tensor_parallel *tp, const char *name,
                                  int64_t channels);

#endif
