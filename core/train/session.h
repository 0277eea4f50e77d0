/* One rank at work: what it opened from the setup (device, feeds, nets, transport,
 * exchange, solver) and how far it has come.
 *
 * Threads: the train thread. The feeds and the exchange have one of their own each.
 */
#ifndef DLC_TRAIN_SESSION_H
#define DLC_TRAIN_SESSION_H

#include "comm/exchange.h"
#include "comm/mail.h"
#include "job/job.h"
#include "net/net.h"
#include "train/connection.h"
#include "train/control.h"
#include "train/feed/feed.h"
#include "train/setup.h"
#include "train/split/split.h"
#include "train/updates.h"

typedef struct dlc_session {
    dlc_setup *setup;
    dlc_job *job;
    int32_t rank, ranks;
    int is_plan; /* to be shown, not run: there are no peers */

    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_queue *queue;        /* that all computes on; NULL: done when a call returns */
    dlc_memory loss_scale;   /* a dlc_loss_scale, where gradients need one */
    dlc_control control;     /* with a queue */
    dlc_net *net, *test_net; /* test_net: NULL without [data.test] */
    char *plain;             /* own; see dlc_net_args and alike.h */
    dlc_feed *feed, *test_feed;

    dlc_connection connection;
    dlc_exchanger *exchanger;
    size_t *bucket_begin;
    int32_t buckets;

    const dlc_solver_ops *solver_ops;
    dlc_solver *solver;
    dlc_solver_needs needs;
    int late;            /* weights are updated when forward needs them: */
    dlc_updates updates; /* those that are still due */
    dlc_memory slot[DLC_MAX_SLOTS];
    dlc_split split;
    struct dlc_pipeline *pipeline; /* NULL: every rank has the whole net (pipeline.h) */
    dlc_pieces *pieces;            /* NULL: every rank has all parameters */
    struct dlc_run_folder *run_folder; /* of its checkpoints; NULL: there are none */
    void
        *saved; /* own; the solver's bytes in a checkpoint, until it is started; NULL */
    size_t saved_bytes;

    int asynchronous;  /* ranks need not be in the same iteration: see asynchronous.h */
    dlc_mailbox *mail; /* NULL: the solver has no need of it */
    dlc_solver_stats seen; /* by solvers that were closed: see staleness.h */
    int64_t met;           /* iterations behind which the ranks last were alike */

    int64_t share_offset, share; /* of this rank in a global batch */
    int64_t global_batch;        /* samples of one pass over all ranks */
    int64_t micro_batches;
    uint64_t planned_bytes;   /* memory that this rank takes: dlc_session_memory.peak */
    int64_t epoch_iterations; /* at least 1 */
    int64_t max_iterations;
    int64_t iteration;            /* done so far; with a queue, given to it */
    dlc_exchange_stats exchanged; /* before it was last reopened */
} dlc_session;

/* Opens everything for training but the solver; all ranks together. */
dlc_status dlc_session_open(dlc_setup *setup, dlc_job *job, dlc_session *session);
/* Opens the solver; weights, slots and iteration are those to begin with. */
dlc_status dlc_session_start(dlc_session *session);
/* All ranks together, when the batch has been shared out anew: all but device and queue
 * is closed and opened again, with weights and slots as they were at first. On failure
 * it is still to be closed. */
dlc_status dlc_session_reopen(dlc_session *session);
/* Opens what a test of saved weights needs. */
dlc_status dlc_session_open_test(dlc_setup *setup, dlc_job *job, dlc_session *session);
/* Opens what `dlcore check` shows: nets built, no tensor memory taken, no peers. As one
 * of `ranks`, which need not be there; what they would choose by measuring is left as
 * it is without. */
dlc_status dlc_session_open_plan(dlc_setup *setup, dlc_job *job, int32_t rank,
                                 int32_t ranks, dlc_session *session);
void dlc_session_close(dlc_session *session);

/* Until the queue has come to the event, or what it does beside others has failed. */
dlc_status dlc_session_wait(const dlc_session *session, dlc_event *event);

/* That iterations are given to ahead; NULL: to none. A stage looks at what was
 * computed: its messages leave when they are made. */
dlc_queue *dlc_session_queue_ahead(const dlc_session *session);

/* Samples that an iteration takes, over all ranks and micro-batches. */
int64_t dlc_session_samples(const dlc_session *session);

#endif
