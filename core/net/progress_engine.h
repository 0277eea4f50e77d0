/* A progress engine: a thread that drives transfers while the train thread computes,
 * for many transports make progress with a long message only while they are polled.
 * Used by tensor-parallel layers that work on batch chunks.
 *
 * Threads: one thread submits and waits. From open to close nobody else may use the p2p
 * channel.
 */
#ifndef DLC_NET_PROGRESS_ENGINE_H
#define DLC_NET_PROGRESS_ENGINE_H

#include <dlcore/consistency.h>

#include "base/status.h"

/* One message. Its buffer must not be used until the transfer is complete. */
typedef struct dlc_transfer {
    int32_t peer;
    int is_sent; /* 0: it is received */
    dlc_tag tag;
    void *buffer; /* only read if it is sent */
    size_t bytes;
} dlc_transfer;

typedef struct dlc_progress_engine dlc_progress_engine;

/* `most`: transfers that may be in flight at once. */
dlc_status dlc_progress_engine_open(const dlc_p2p_channel *p2p, int32_t most,
                                    dlc_progress_engine **engine);
/* Stops the thread without waiting for transfers in flight; the caller closes the p2p
 * channel next, which cancels them. NULL allowed. */
void dlc_progress_engine_close(dlc_progress_engine *engine);

/* Submits transfers; does not block. *handle identifies these and all earlier ones.
 * DLC_ERR_INTERNAL if more than `most` would be in flight. */
dlc_status dlc_progress_engine_submit(dlc_progress_engine *engine,
                                      const dlc_transfer *transfer, int32_t count,
                                      uint64_t *handle);
/* Blocks until these transfers, and all submitted before, are complete, or fails with
 * the reason why they will not be. */
dlc_status dlc_progress_engine_wait(dlc_progress_engine *engine, uint64_t handle);

#endif
