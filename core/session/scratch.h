/* Memory for plain copies of tensors between iterations, as checkpoints need it. What a
 * pass works in is idle then and is lent; memory is only allocated where that is too
 * small or the CPU cannot write there.
 *
 * Threads: the train thread, between iterations. */
#ifndef DLC_SESSION_SCRATCH_H
#define DLC_SESSION_SCRATCH_H

#include "session/session.h"

typedef struct dlc_scratch {
    float *base;
    size_t count; /* elements; at least as many as were asked for */
    int is_own, is_gradients;
} dlc_scratch;

/* Elements of the largest message of a checkpoint, which rank 0 needs room for to
 * receive what others have. */
enum { DLC_SCRATCH_MESSAGE = 1 << 20 };

dlc_status dlc_scratch_take(const dlc_session *session, size_t least,
                            dlc_scratch *scratch);
dlc_status dlc_scratch_give_back(const dlc_session *session, dlc_scratch *scratch);

/* The bytes that a checkpoint will allocate, with nets built but not yet allocated.
 * `holds_states`: states may be put together in the gradients' arena. */
uint64_t dlc_scratch_planned(const dlc_session *session, int holds_states);

#endif
