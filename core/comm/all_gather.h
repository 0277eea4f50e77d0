/* An all-gather of small blocks among some of the ranks of a progress engine. Used by
 * the session for what layers gather in a pass.
 *
 * Bruck's algorithm (Bruck et al. 1997, "Efficient algorithms for all-to-all
 * communications in multiport message-passing systems"): after round k a rank has the
 * blocks of 2^k ranks, itself and those after it, so it takes log2(n) messages to get n
 * blocks, which is what matters for small ones.
 *
 * Threads: one at a time, that which uses the engine. */
#ifndef DLC_COMM_ALL_GATHER_H
#define DLC_COMM_ALL_GATHER_H

#include "comm/progress_engine.h"

/* The ranks first, first + stride, ... of an engine's channel, one of which is its own.
 */
typedef struct dlc_gather_group {
    dlc_progress_engine *engine; /* without a thread */
    dlc_tag_user tag;            /* whose messages these are */
    int32_t first, rank, ranks;  /* rank: of the caller in the group */
    int32_t stride;              /* 0: they are neighbours */
    int32_t *pending; /* 0; for the engine, which may use it until it is closed */
} dlc_gather_group;

/* Collective. `blocks` has `ranks` blocks of `bytes` bytes in memory of the channel's
 * device: block i becomes that of rank (rank + i) modulo `ranks`, so block 0 is given.
 * Blocks until all have arrived; other transfers of the engine go on meanwhile. */
dlc_status dlc_gather_blocks(const dlc_gather_group *group, void *blocks, size_t bytes);

#endif
