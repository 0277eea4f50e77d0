/* Digests of the values in a device's memory, and their comparison over the ranks that
 * must hold the same values. A transport that changes a bit, or a plugin whose result
 * depends on the process, makes ranks drift apart without an error; the comparison ends
 * such a job.
 *
 * Compared are the weights and, where several ranks hold them, the solver's states, the
 * running averages, the learning rate and the loss scale.
 *
 * Threads: the train thread, between iterations. */
#ifndef DLC_SESSION_DIGEST_H
#define DLC_SESSION_DIGEST_H

#include "session/session.h"

/* Hashes `count` floats in the device's memory into *digest, which may be the digest of
 * what comes before them. */
dlc_status dlc_digest_floats(const dlc_session *session, const float *at, size_t count,
                             uint64_t *digest);

typedef enum dlc_digest_of {
    DLC_DIGEST_TRAINING, /* all that training goes on with */
    DLC_DIGEST_AVERAGES  /* the mean over the ranks of their running averages */
} dlc_digest_of;

/* Collective over the job. All ranks return DLC_ERR_INTERNAL, with the same sentence,
 * if any ranks differ that must not: it names them and a tensor. */
dlc_status dlc_digest_compare(dlc_session *session, dlc_digest_of what);

#endif
