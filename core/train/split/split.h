/* Split layers in a job: which layers are split ([layer] parallel), the messages
 * between the ranks that go with it, and the weights of which each rank has rows of its
 * own, with their part of the solver. What is split how is the net's business
 * (net/split.h).
 *
 * Gradients of these weights are complete without any exchange, for each rank saw the
 * samples of all. So they lie in arenas of their own, and a second instance of the
 * solver updates them as if the job had one rank.
 *
 * Threads: the train thread.
 */
#ifndef DLC_TRAIN_SPLIT_H
#define DLC_TRAIN_SPLIT_H

#include "comm/mail.h"
#include "net/net.h"
#include "train/checkpoint/pieces.h"

struct dlc_session;

/* Start with {0}, which is: nothing is split. */
typedef struct dlc_split {
    int32_t count;               /* of layers that are split */
    char *layers;                /* own; one a layer of the graph */
    int64_t *first, *test_first; /* own */
    dlc_net_split train, test;
    dlc_mailbox *mail;
    dlc_mailbox *ahead; /* the courier's; NULL: no portions */
    dlc_courier *courier;
    dlc_memory slot[DLC_MAX_SLOTS];
    dlc_solver *solver;
    size_t border[2];
    dlc_exchange exchange;
} dlc_split;

/* Is anything left open (auto): which layers, or how? Then the ranks must be joined
 * before the choice. */
int dlc_split_is_open(const struct dlc_session *session);
/* Decides which layers are split, when the shares of the batch are known; all ranks
 * together. An error where the job has something that split layers don't go with. */
dlc_status dlc_split_choose(struct dlc_session *session);
/* What a net of this phase is built with; NULL: nothing is split. */
const dlc_net_split *dlc_split_of(const struct dlc_session *session, dlc_phase phase);

/* The mailboxes; all ranks together, before the net is first run. */
dlc_status dlc_split_open_mail(struct dlc_session *session);
/* The solver's slots; then who has what of weights and slots, for checkpoints. */
dlc_status dlc_split_open_slots(struct dlc_session *session);
dlc_status dlc_split_open_pieces(struct dlc_session *session);
/* The solver; weights and slots are those to begin with. */
dlc_status dlc_split_start(struct dlc_session *session);
void dlc_split_close(struct dlc_session *session);

/* Backward of a micro-batch is done; of all: the weights are updated. */
dlc_status dlc_split_ready(struct dlc_session *session, int32_t micro);
dlc_status dlc_split_finish(struct dlc_session *session);

/* All ranks together, behind `batches` passes of the test net: as many more, of no
 * samples, as another rank has that it shares layers with. */
dlc_status dlc_split_test_on(struct dlc_session *session, int64_t batches);

#endif
