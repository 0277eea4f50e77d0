/* A session's parameters as a checkpoint has them: whole and in plain layout, whichever
 * rank has which rows of them. Saving and resuming go through here.
 *
 * Threads: the train thread, between iterations.
 */
#ifndef DLC_TRAIN_TENSORS_H
#define DLC_TRAIN_TENSORS_H

#include "train/session.h"

typedef struct dlc_whole_param {
    const char *name; /* "conv1.weight" */
    const dlc_shape *shape;
    int is_buffer; /* a running average: it has no slots */
} dlc_whole_param;

/* NULL where every rank has all of `net`'s parameters. */
dlc_pieces *dlc_whole_pieces(const dlc_session *session, const dlc_net *net);

/* In the order of files: first layers first. */
int32_t dlc_whole_count(const dlc_session *session, const dlc_net *net);
dlc_whole_param dlc_whole_at(const dlc_session *session, const dlc_net *net, int32_t i);

/* Rank 0: parameter `i` of the trained net (slot -1), or the solver's slot of it, into
 * `plain`; and from there into any net. */
dlc_status dlc_whole_export(dlc_session *session, int32_t i, int32_t slot,
                            float *plain);
dlc_status dlc_whole_import(dlc_session *session, dlc_net *net, int32_t i, int32_t slot,
                            const float *plain);

/* All ranks, behind what rank 0 alone has done with `status`: it lets the others go,
 * who until then hand it what it lacks, or take what is theirs. */
dlc_status dlc_whole_end(dlc_session *session, const dlc_net *net, dlc_status status);

/* Is the solver's slot part of a checkpoint? */
int dlc_whole_slot_is_saved(const dlc_session *session, int32_t slot);

/* Rank 0's status and detail sentence for all ranks. */
dlc_status dlc_whole_share_status(dlc_session *session, dlc_status status);

#endif
