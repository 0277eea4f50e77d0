/* Places buffers in one block of memory, so that buffers that are never in use at the
 * same time share bytes. Used by the memory plan. */
#ifndef DLC_NET_BUFFERS_H
#define DLC_NET_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct dlc_buffer {
    size_t bytes;
    int32_t first, last; /* steps at which it is in use, both included */
    size_t offset;       /* out; a multiple of DLC_BUFFER_ALIGNMENT */
} dlc_buffer;

#define DLC_BUFFER_ALIGNMENT 64

/* Sets every offset; *total is the size of the block. Greedy by size: the largest
 * buffer first, each in the lowest gap between those that are in use at the same time
 * (Pisarchyk and Lee 2020, "Efficient memory management for deep neural net inference",
 * 5.2). */
dlc_status dlc_buffers_place(dlc_buffer *buffers, size_t count, size_t *total);

#endif
