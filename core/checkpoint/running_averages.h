/* Saves and restores running averages (those of batch_norm). Each rank has its own,
 * over the samples that it has seen. A checkpoint holds their mean, for any reader, and
 * each rank's own in addition, so that a run resumed with as many ranks is bitwise
 * identical. Called by save.c and resume.c.
 *
 * Threads: the train thread.
 */
#ifndef DLC_CHECKPOINT_RUNNING_AVERAGES_H
#define DLC_CHECKPOINT_RUNNING_AVERAGES_H

#include "checkpoint/safetensors.h"
#include "session/session.h"

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

/* Collective, after the mean was loaded: each rank takes its own averages, if the file
 * has those of as many ranks. `file` is NULL on all ranks but rank 0. */
dlc_status dlc_running_averages_restore(dlc_session *session,
                                        const dlc_safetensors *file);

#endif
