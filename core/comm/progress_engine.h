/* The progress engine posts transfers on a P2P channel and drives them until they are
 * complete. Whoever in the core sends messages between ranks uses one: pipeline stages,
 * tensor-parallel layers, checkpoint shards.
 *
 * Without a thread of its own an engine makes progress while its caller polls or waits.
 * With one it also does while the caller computes, for many transports move a long
 * message only while they are polled.
 *
 * Threads: one thread makes the calls. From open to close nobody else may use the p2p
 * channel.
 */
#ifndef DLC_COMM_PROGRESS_ENGINE_H
#define DLC_COMM_PROGRESS_ENGINE_H

#include "base/status.h"
#include "comm/tags.h"

struct dlc_comm_args;

/* One message, which is sent or received. Its buffer must not be used until the
 * transfer is complete. */
typedef struct dlc_transfer {
    int32_t peer;
    dlc_tag tag;
    const void *from; /* NULL: it is received */
    void *to;         /* NULL: it is sent */
    size_t bytes;     /* above 0 */
    /* Without a thread: counts the transfers in flight that name it. NULL: none does.
     */
    int32_t *pending;
} dlc_transfer;

typedef struct dlc_progress_engine dlc_progress_engine;

/* `most`: the engine has a thread, and at most so many transfers are in flight at once;
 * 0: it has no thread, and any number may be. */
dlc_status dlc_progress_engine_open(const dlc_p2p_channel *p2p, int32_t most,
                                    dlc_progress_engine **engine);
/* The same on a p2p channel of its own. Collective, as dlc_p2p_open. */
dlc_status dlc_progress_engine_connect(const struct dlc_comm_args *args, int32_t most,
                                       dlc_progress_engine **engine);
/* Stops the thread without waiting for transfers in flight, and closes the engine's own
 * channel, which cancels them; a channel of the caller is to be closed next. NULL is
 * allowed. */
void dlc_progress_engine_close(dlc_progress_engine *engine);

/* Submits transfers; does not block. *handle identifies these and all earlier ones;
 * NULL is allowed. DLC_ERR_INTERNAL if more than `most` would be in flight. */
dlc_status dlc_progress_engine_submit(dlc_progress_engine *engine,
                                      const dlc_transfer *transfer, int32_t count,
                                      uint64_t *handle);
/* Blocks until these transfers, and all submitted before, are complete, or fails with
 * the reason why they will not be. */
dlc_status dlc_progress_engine_wait(dlc_progress_engine *engine, uint64_t handle);
/* Blocks until all transfers are complete. */
dlc_status dlc_progress_engine_drain(dlc_progress_engine *engine);

/* Seconds that the caller has waited since open; NULL: 0. */
double dlc_progress_engine_waited(const dlc_progress_engine *engine);

/* The calls below are for engines without a thread. */

/* Makes progress; does not block. */
dlc_status dlc_progress_engine_poll(dlc_progress_engine *engine);
/* Blocks until a transfer completes, or for a short time; fails when the job ends.
 * DLC_ERR_INTERNAL if none is in flight. */
dlc_status dlc_progress_engine_wait_any(dlc_progress_engine *engine);

/* ---- An all-gather of small blocks ----------------------------------------------- */

/* The ranks first, first + stride, ... of an engine's channel; the caller is one of
 * them. */
typedef struct dlc_gather_group {
    dlc_progress_engine *engine; /* without a thread */
    dlc_tag_user tag;            /* whose messages these are */
    int32_t first, rank, ranks;  /* rank: of the caller in the group */
    int32_t stride;              /* 0: they are neighbours */
    int32_t *pending; /* 0; for the engine, which may use it until it is closed */
} dlc_gather_group;

/* Collective. Gathers small blocks among some of the ranks of an engine by Bruck's
 * algorithm (Bruck et al. 1997, "Efficient algorithms for all-to-all communications in
 * multiport message-passing systems"): after round k a rank has the blocks of 2^k
 * ranks, itself and those after it, so it takes log2(n) messages to get n blocks, which
 * is what matters for small ones.
 *
 * `blocks` has `ranks` blocks of `bytes` bytes in memory of the channel's device. The
 * caller fills in block 0, its own; block i receives the block of rank (rank + i)
 * modulo `ranks`. Blocks until all have arrived; other transfers of the engine go on
 * meanwhile. */
dlc_status dlc_gather_blocks(const dlc_gather_group *group, void *blocks, size_t bytes);

#endif
