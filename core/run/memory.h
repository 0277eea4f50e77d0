/* Predicts the memory that a job needs, before it is allocated: of one rank, and of all
 * ranks of a machine compared to what the machine has. Used by `dlcore check`, `plan`
 * and `train`.
 */
#ifndef DLC_RUN_MEMORY_H
#define DLC_RUN_MEMORY_H

#include "session/session.h"

/* The memory of a rank in bytes: `process` as it was before the ranks were started,
 * rounded to 4 MB, the rest as planned. If the device has memory of its own, `peak` is
 * that memory. Memory that a transport maps is not included. */
typedef struct dlc_session_memory {
    uint64_t process; /* program, libraries, the data source, plugins */
    uint64_t weights, gradients, activations; /* including the test net's */
    uint64_t solver;                          /* and the consistency model */
    uint64_t feeds;                           /* batches read ahead, in host memory */
    uint64_t uploads;    /* batches being uploaded, in the memory of the device */
    uint64_t checkpoint; /* copies of tensors, in host memory */
    uint64_t peak;       /* of all of these, at any time */
    /* The part that grows with the batch of [data], and with that of [data.test]. */
    uint64_t train_batch, test_batch;
} dlc_session_memory;

/* Predicts the memory of a session whose nets are built but not yet allocated. */
dlc_status dlc_session_memory_plan(const dlc_session *session,
                                   dlc_session_memory *memory);

/* The memory of all ranks of one machine, in bytes. Start with {0}. */
typedef struct dlc_memory_sum {
    int32_t ranks;
    uint64_t own;     /* private memory, of all ranks together */
    uint64_t process; /* the largest of any rank; most of it is shared */
    uint64_t device;  /* the most that one rank needs on a device with its own memory */
    double train_batch, test_batch; /* see dlc_session_memory, added over the ranks */
} dlc_memory_sum;

/* Adds `ranks` ranks that need `memory` each. */
void dlc_memory_add(const dlc_setup *setup, const dlc_session_memory *memory,
                    int32_t ranks, dlc_memory_sum *sum);

/* Checks that this machine (or its cgroup) and the device have that much memory.
 * DLC_ERR_CONFIG if not; only a warning with [train] overcommit. */
dlc_status dlc_memory_check_fits(const dlc_session *session, const dlc_memory_sum *sum);

/* Collective, for training or only testing, with nets built but not yet allocated:
 * checks the ranks of each machine against its memory. All ranks fail if one machine
 * has too little. Sets session->planned_bytes. */
dlc_status dlc_memory_check(dlc_session *session);

#endif
