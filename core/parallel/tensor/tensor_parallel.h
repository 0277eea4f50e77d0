/* Tensor parallelism in a session: which layers are split over the ranks ([layer]
 * parallel), and their progress engines. How layers are split is up to the net
 * (net/placement.h); the session updates the weights of which each rank has rows
 * of its own (session/sharded.h).
 *
 * Threads: the training thread. */
#ifndef DLC_PARALLEL_TENSOR_TENSOR_PARALLEL_H
#define DLC_PARALLEL_TENSOR_TENSOR_PARALLEL_H

#include "comm/progress_engine.h"
#include "session/session.h"

/* The state of the axis. */
typedef struct dlc_tensor_parallel {
    int32_t count;               /* how many layers are split */
    char *layers;                /* own; one flag for each layer of the graph */
    int64_t *first, *test_first; /* own; first sample of each rank */
    dlc_net_tensor_parallel train, test;
    dlc_progress_engine *engine;
    dlc_progress_engine *chunk_engine; /* for batch chunks; NULL without them */
} dlc_tensor_parallel;

extern const dlc_axis_ops dlc_tensor_parallel_axis;

#endif
