/* Tensor parallelism: layers that are split over the ranks ([layer] parallel). How
 * layers are split is up to the net (net/placement.h); the session updates the weights
 * of which each rank has rows of its own (session/param_sets.h).
 *
 * Threads: the training thread. */
#ifndef DLC_PARALLEL_TENSOR_TENSOR_PARALLEL_H
#define DLC_PARALLEL_TENSOR_TENSOR_PARALLEL_H

#include "comm/progress_engine.h"
#include "parallel/process_group.h"
#include "session/session.h"

typedef struct dlc_tensor_parallel {
    dlc_session *session;
    int32_t count;               /* how many layers are split */
    char *layers;                /* own; one flag for each layer of the graph */
    int64_t *first, *test_first; /* own; first sample of each rank of the group */
    int64_t *share;              /* own; of the channels, likewise */
    dlc_net_tensor_parallel train, test;
    dlc_process_group group;           /* of ranks that divide the layers */
    dlc_process_group replicas;        /* of ranks that have the same rows */
    dlc_comm *comm;                    /* of the latter; NULL: there is one */
    dlc_progress_engine *world_engine; /* between all ranks, for shards; or NULL */
    dlc_progress_engine *engine;
    dlc_progress_engine *chunk_engine; /* for batch chunks; NULL without them */
} dlc_tensor_parallel;

/* Must the interconnect be measured before layers and their schedule are chosen? */
int dlc_tensor_parallel_needs_connection(const dlc_session *session);
/* Collective. Opens session->tensor if at least one layer is split. */
dlc_status dlc_tensor_parallel_plan(dlc_session *session);
/* After the batch was split anew: this rank has other samples. */
dlc_status dlc_tensor_parallel_divide(dlc_tensor_parallel *tensor);
void dlc_tensor_parallel_shape_net(const dlc_tensor_parallel *tensor,
                                   dlc_net_args *args);
/* Collective, once the ranks and a pipeline's stages are connected and the nets
 * allocated, before the exchange. */
dlc_status dlc_tensor_parallel_connect(dlc_tensor_parallel *tensor);
/* Collective, once nets, exchange, slots and pipeline are open. */
dlc_status dlc_tensor_parallel_open(dlc_tensor_parallel *tensor);
void dlc_tensor_parallel_disconnect(dlc_tensor_parallel *tensor);
void dlc_tensor_parallel_close(dlc_tensor_parallel *tensor); /* NULL is allowed */

/* Collective. Raises the number of passes of a test, which ranks make together. */
dlc_status dlc_tensor_parallel_count_test_passes(const dlc_tensor_parallel *tensor,
                                                 int64_t *passes);
/* Seconds that this rank has waited for others of its groups. */
double dlc_tensor_parallel_waited(const dlc_tensor_parallel *tensor);
void dlc_tensor_parallel_find_part(const dlc_tensor_parallel *tensor,
                                   dlc_rank_part *part);

#endif
