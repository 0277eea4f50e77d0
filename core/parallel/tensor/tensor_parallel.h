/* The state of the tensor axis: which layers are split over which ranks, and their
 * progress engines. Owned by axis.c; the planner (planning.h) fills it in.
 *
 * Threads: the training thread. */
#ifndef DLC_PARALLEL_TENSOR_TENSOR_PARALLEL_H
#define DLC_PARALLEL_TENSOR_TENSOR_PARALLEL_H

#include "comm/progress_engine.h"
#include "parallel/process_group.h"
#include "session/session.h"

typedef struct dlc_tensor_parallel {
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

#endif
