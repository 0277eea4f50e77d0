/* What the user asks of a running job (DLC_JOB_* of job/job.h), from the moment in
 * which a rank learns of it until all ranks have agreed on it.
 *
 * A rank asks in the control words of an iteration (iterate.c). In synchronous
 * training all ranks see the request in the words of that iteration; others need
 * several, and a consistency model that is closed meanwhile forgets it. So every rank
 * remembers what it has asked.
 *
 * Threads: the training thread. */
#ifndef DLC_TRAIN_REQUESTS_H
#define DLC_TRAIN_REQUESTS_H

#include "job/job.h"

/* Of one rank. Initialize with {0}. */
typedef struct dlc_requests {
    unsigned asked; /* by this rank, and not agreed on yet */
    unsigned late;  /* agreed on in the iteration before, when others had asked */
} dlc_requests;

/* This rank has learned of `requests`: returns those that it asks of all ranks in its
 * next control words. A signal reaches all ranks, some of them a moment later; there it
 * is not asked for a second time. */
unsigned dlc_requests_ask(dlc_requests *requests, unsigned learned);

/* All ranks have agreed on `agreed` in the same iteration. */
void dlc_requests_agree(dlc_requests *requests, unsigned agreed);

/* Collective. Agrees at once on all that any of the job's `ranks` ranks has asked or
 * learned: for the moment before the model is closed, and for the end. */
dlc_status dlc_requests_settle(dlc_requests *requests, dlc_job *job, int32_t ranks,
                               unsigned *agreed);

#endif
