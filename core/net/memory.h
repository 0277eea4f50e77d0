/* Takes the memory that the passes have planned, and points operations to it. Used when
 * a net is allocated, and by the executor when buffers change places. */
#ifndef DLC_NET_MEMORY_H
#define DLC_NET_MEMORY_H

#include "net/ir.h"

/* params.c: allocates the arenas and initializes them; a test net takes those of the
 * training net. */
dlc_status dlc_net_take_params(dlc_net *net);
/* Allocates activations, or borrows those of the training net; sets all pointers. */
dlc_status dlc_net_take_memory(dlc_net *net);

/* Allocates memory that the net owns until dlc_net_free_memory; 0 bytes are allowed.
 * `flags` are those of the device's `alloc`. */
dlc_status dlc_net_take(dlc_net *net, size_t bytes, uint32_t flags,
                        const dlc_memory **memory);
void dlc_net_free_memory(dlc_net *net);

/* Points tensors, and all operations from this index on, to where buffers are now. */
void dlc_net_point_from(dlc_net *net, int32_t first);

#endif
