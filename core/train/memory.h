/* The memory that a job takes, before it is taken: of a rank, and of the ranks of a
 * machine against what that has. `dlcore check`, `plan` and `train` ask here.
 */
#ifndef DLC_TRAIN_MEMORY_H
#define DLC_TRAIN_MEMORY_H

#include "train/session.h"

/* The memory that a rank takes, in bytes: `process` as it was before ranks were
 * started, in steps of 4 MB, the rest as planned. On a device with memory of its own,
 * `peak` is of that. What a transport maps is not known here. */
typedef struct dlc_session_memory {
    uint64_t process; /* program, libraries, the data source, what plugins hold */
    uint64_t weights, gradients, solver, activations; /* with the test net's */
    uint64_t feeds;   /* batches read ahead, in host memory */
    uint64_t uploads; /* batches on their way to a device with a queue, there */
    uint64_t peak;    /* of all, at any time */
    /* Of that what the batches of [data] and [data.test] make. */
    uint64_t by_train, by_test;
} dlc_session_memory;

/* What of this process is in memory now: dlc_setup.resident_bytes, once that is done.
 */
uint64_t dlc_memory_resident(void);

/* Of a session whose nets are built and have no memory yet. */
dlc_status dlc_session_memory_plan(const dlc_session *session,
                                   dlc_session_memory *memory);

/* What the ranks of one machine take together. Start with {0}. */
typedef struct dlc_memory_sum {
    int32_t ranks;
    uint64_t own;             /* bytes that each has for itself, of all of them */
    uint64_t process;         /* the largest; most of it is shared */
    uint64_t device;          /* the most that one has on a device of its own */
    double by_train, by_test; /* bytes that the batches of both sections make */
} dlc_memory_sum;

/* Adds `ranks` ranks that take so much each. */
void dlc_memory_add(const dlc_setup *setup, const dlc_session_memory *memory,
                    int32_t ranks, dlc_memory_sum *sum);
/* In host memory. */
uint64_t dlc_memory_total(const dlc_memory_sum *sum);

/* Has this machine, or its cgroup, as much, and the device? DLC_ERR_CONFIG with a
 * sentence if not; a warning alone with [train] overcommit. */
dlc_status dlc_memory_judge(const dlc_session *session, const dlc_memory_sum *sum);

/* All ranks together, that train or only test, with their nets built and no memory
 * taken: each machine's ranks against what it has. All fail if one machine has too
 * little. Sets session->planned_bytes. */
dlc_status dlc_memory_check(dlc_session *session);

#endif
