/* The passes of which building a net consists, as a compiler's. Each takes the net as
 * the one before has left it, and is a file of its own: dlc_net_pass_NAME is in
 * pass_NAME.c. build.c lists them in their order.
 */
#ifndef DLC_NET_PASSES_H
#define DLC_NET_PASSES_H

#include "net/ir.h"

typedef dlc_status dlc_net_pass_call(dlc_net *net);

dlc_net_pass_call dlc_net_pass_stage, dlc_net_pass_shard, dlc_net_pass_infer,
    dlc_net_pass_fuse, dlc_net_pass_gradients, dlc_net_pass_layouts,
    dlc_net_pass_params, dlc_net_pass_fork_sums, dlc_net_pass_recompute,
    dlc_net_pass_chunks, dlc_net_pass_memory, dlc_net_pass_chunk_memory,
    dlc_net_pass_offsets;

#endif
