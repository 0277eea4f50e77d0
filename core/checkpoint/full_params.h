/* A session's parameters as a checkpoint has them: complete and in plain layout,
 * whichever rank holds which shards of them. Used by save.c and resume.c.
 *
 * Threads: the train thread, between iterations.
 */
#ifndef DLC_CHECKPOINT_FULL_PARAMS_H
#define DLC_CHECKPOINT_FULL_PARAMS_H

#include "base/names.h"
#include "checkpoint/shards.h"
#include "session/session.h"

typedef struct dlc_full_param {
    const char *name; /* "conv1.weight" */
    const dlc_shape *shape;
    int is_buffer; /* not trained, so without solver slots */
} dlc_full_param;

/* NULL if every rank has all parameters of `net`. */
dlc_shards *dlc_full_param_shards(const dlc_session *session, const dlc_net *net);

/* In the order of checkpoint files: first layers first. */
int32_t dlc_full_param_count(const dlc_session *session, const dlc_net *net);
dlc_full_param dlc_full_param_at(const dlc_session *session, const dlc_net *net,
                                 int32_t i);

/* Adds the names of all to an index, with their `i`. */
dlc_status dlc_full_params_index(const dlc_session *session, const dlc_net *net,
                                 dlc_names *names);

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

/* The tensor with the consistency model's own bytes. */
#define DLC_MODEL_STATE_TENSOR "consistency"

/* Broadcasts rank 0's status and detail sentence. A failure of another rank is returned
 * on that rank alone, which ends the job. */
dlc_status dlc_broadcast_status(dlc_session *session, dlc_status status);

#endif
