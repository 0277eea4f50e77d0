/* Running averages (batch_norm's) at a checkpoint. Each rank has its own, of the
 * samples that it has seen. A checkpoint has their mean, for whoever takes it; and each
 * rank's own beside it, so that as many ranks as before go on with the same bits.
 *
 * Threads: the train thread.
 */
#ifndef DLC_TRAIN_RUNNING_H
#define DLC_TRAIN_RUNNING_H

#include "train/checkpoint/safetensors.h"
#include "train/session.h"

/* The name of the tensor with each rank's own, one rank a row. */
#define DLC_RUNNING_TENSOR "dlcore.running"

typedef struct dlc_running {
    float *all;     /* own; of each rank, plain; NULL: there are none to keep */
    size_t each;    /* elements of a rank */
    dlc_memory own; /* this rank's, as the arena has them */
} dlc_running;

/* The ranks that see samples, so have averages: the first ones, without the servers. */
int32_t dlc_running_ranks(const dlc_session *session);

/* All ranks together: notes what the ranks have, and makes the mean of it. */
dlc_status dlc_running_begin(dlc_session *session, dlc_running *running);
/* Puts back what the rank had, and frees what was noted; also behind a failed begin. */
dlc_status dlc_running_end(dlc_session *session, dlc_running *running);

/* All ranks together, when rank 0 (`file`; NULL on the others) has handed out the mean:
 * each takes its own, where the file has one for each of as many ranks. */
dlc_status dlc_running_take(dlc_session *session, const dlc_safetensors *file);

#endif
