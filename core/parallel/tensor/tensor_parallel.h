/* Tensor parallelism in a session: which layers are split over the ranks ([layer]
 * parallel), the p2p channels for them, and the weights of which each rank has rows of
 * its own, with their part of the solver's state. How layers are split is up to the net
 * (net/tensor_parallel.h).
 *
 * Gradients of these weights need no reduction, because each rank saw the samples of
 * all ranks. They are in arenas of their own, which are updated as in a job of one
 * rank.
 *
 * Threads: the training thread. */
#ifndef DLC_PARALLEL_TENSOR_TENSOR_PARALLEL_H
#define DLC_PARALLEL_TENSOR_TENSOR_PARALLEL_H

#include "checkpoint/shards.h"
#include "net/net.h"
#include "solver/local_update.h"
#include "solver/slots.h"

struct dlc_session;

/* Initialize with {0}: no layer is split. */
typedef struct dlc_tensor_parallel {
    int32_t count;               /* how many layers are split */
    char *layers;                /* own; one flag for each layer of the graph */
    int64_t *first, *test_first; /* own; first sample of each rank */
    dlc_net_tensor_parallel train, test;
    dlc_progress_engine *engine;
    dlc_progress_engine *chunk_engine; /* for batch chunks; NULL without them */
    dlc_memory slot[DLC_MAX_STATES];
    dlc_local_update update;
} dlc_tensor_parallel;

/* Is something left to the planner (auto)? Then the ranks must be connected before
 * dlc_tensor_parallel_choose. */
int dlc_tensor_parallel_is_open(const struct dlc_session *session);
/* Collective, once the batch split is known. Decides which layers are split.
 * DLC_ERR_CONFIG if the job has something that tensor parallelism does not support. */
dlc_status dlc_tensor_parallel_choose(struct dlc_session *session);
/* What nets of this phase are built with; NULL: no layer is split. */
const dlc_net_tensor_parallel *
dlc_tensor_parallel_net_split(const struct dlc_session *session, dlc_phase phase);

/* Collective, before the net first runs. Opens the p2p channels. */
dlc_status dlc_tensor_parallel_open_p2p(struct dlc_session *session);
/* Allocate the solver's slots; then tell the checkpoint which rows this rank has. */
dlc_status dlc_tensor_parallel_open_slots(struct dlc_session *session);
dlc_status dlc_tensor_parallel_open_shards(struct dlc_session *session);
/* Opens the update; weights and slots must have their initial values. */
dlc_status dlc_tensor_parallel_start(struct dlc_session *session);
void dlc_tensor_parallel_close(struct dlc_session *session);

/* Backward of a micro-batch is done; of all micro-batches: updates the weights. */
dlc_status dlc_tensor_parallel_ready(struct dlc_session *session, int32_t micro_batch);
dlc_status dlc_tensor_parallel_finish(struct dlc_session *session);

/* Collective, after `batches` passes of the test net: runs as many more, on no samples,
 * as the rank with the most batches has run, because split layers need all ranks in
 * every pass. */
dlc_status dlc_tensor_parallel_pad_test(struct dlc_session *session, int64_t batches);

#endif
