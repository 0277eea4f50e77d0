/* A session's parameters as a checkpoint has them: complete and in plain layout,
 * whichever rank holds which shards of them. Used by save.c, resume.c and weights.c.
 *
 * Threads: the train thread, between iterations.
 */
#ifndef DLC_CHECKPOINT_FULL_PARAMS_H
#define DLC_CHECKPOINT_FULL_PARAMS_H

#include "base/names.h"
#include "checkpoint/safetensors.h"
#include "session/session.h"

typedef struct dlc_full_param {
    const char *name; /* "conv1.weight" */
    const dlc_shape *shape;
    int is_buffer; /* not trained, so without solver slots */
} dlc_full_param;

/* In the order of checkpoint files: first layers first. */
int32_t dlc_full_param_count(const dlc_session *session, const dlc_net *net);
dlc_full_param dlc_full_param_at(const dlc_session *session, const dlc_net *net,
                                 int32_t i);

/* Adds the names of all to an index, with their `i`. */
dlc_status dlc_full_params_index(const dlc_session *session, const dlc_net *net,
                                 dlc_names *names);

/* A tensor of a checkpoint: parameter `i` ("conv1.weight"), or the solver's state
 * `slot` of it ("momentum/conv1.weight"). */
typedef struct dlc_full_tensor {
    const char *name;
    const dlc_shape *shape;
    int32_t i, slot; /* slot -1: the parameter itself */
} dlc_full_tensor;

/* Calls `visit` with each tensor of the training net and of the states that the solver
 * saves, in the order of checkpoint files, until that fails. */
dlc_status dlc_full_tensors_visit(const dlc_session *session,
                                  dlc_status (*visit)(void *context,
                                                      const dlc_full_tensor *tensor),
                                  void *context);

/* The elements that plain copies need at least. */
size_t dlc_full_params_room(const dlc_session *session, const dlc_net *net);

/* Rank 0: gives elements of parameter `i` of the training net (slot -1), or of the
 * solver's slot of it, from element `at` on, which begins a row: *count of them, in
 * `plain`, which has room for `room`. */
dlc_status dlc_full_param_export(dlc_session *session, int32_t i, int32_t slot,
                                 size_t at, float *plain, size_t room,
                                 const float **data, size_t *count);
/* Rank 0: copies `plain` to a parameter of any net, or to the solver's slot of it. */
dlc_status dlc_full_param_import(dlc_session *session, dlc_net *net, int32_t i,
                                 int32_t slot, const float *plain);

/* Collective: ends what rank 0 has done, with its status. The other ranks serve their
 * shards from here until rank 0 arrives. */
dlc_status dlc_full_params_end(dlc_session *session, const dlc_net *net,
                               dlc_status status);

/* Collective: gives all ranks what rank 0 has imported, the solver's slots too if
 * `with_slots`. Parameters that are sharded are there already. */
dlc_status dlc_full_params_share(dlc_session *session, dlc_net *net, int with_slots);

/* The tensor with the consistency model's own bytes. */
#define DLC_MODEL_STATE_TENSOR "consistency"

/* Broadcasts rank 0's status and detail sentence. A failure of another rank is returned
 * on that rank alone, which ends the job. */
dlc_status dlc_broadcast_status(dlc_job *job, dlc_status status);

/* ---- Running averages of batch_norm -----------------------------------------------
 *
 * Each rank has its own, over the samples that it has seen. A checkpoint holds their
 * mean, for any reader, and each rank's own in addition, so that a run resumed with as
 * many ranks is bitwise identical. */

/* The name of the tensor with each rank's own averages, one rank per row. */
#define DLC_RUNNING_AVERAGES_TENSOR "dlcore.running"

typedef struct dlc_running_averages {
    float *all;     /* own; of every rank, in plain layout; NULL: there are none */
    size_t each;    /* elements of one rank */
    dlc_memory own; /* this rank's, in the layout of the arena */
} dlc_running_averages;

/* The number of ranks that have averages, since they see samples: the first ranks, all
 * but the parameter servers. */
int32_t dlc_running_averages_ranks(const dlc_session *session);

/* Collective: gathers the averages of all ranks, and sets the arena to their mean. */
dlc_status dlc_running_averages_begin(dlc_session *session,
                                      dlc_running_averages *running);
/* Restores this rank's averages, and frees what was gathered; called even if
 * dlc_running_averages_begin has failed. */
dlc_status dlc_running_averages_end(dlc_session *session,
                                    dlc_running_averages *running);

/* Collective, after the mean was loaded: each rank takes its own averages, if the
 * file was written by as many ranks. `file` is NULL on all ranks but rank 0. */
dlc_status dlc_running_averages_restore(dlc_session *session,
                                        const dlc_safetensors *file);

#endif
