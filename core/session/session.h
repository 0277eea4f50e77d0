/* A session is one rank at work: what it opened from the setup (device, feeds, nets,
 * transport, exchange, consistency model) and its progress. `dlcore train`, `test`,
 * `check`, `time` and `plan` open one.
 *
 * Threads: the train thread. The feeds and the exchange each have a thread of their
 * own.
 */
#ifndef DLC_SESSION_SESSION_H
#define DLC_SESSION_SESSION_H

#include "comm/exchange.h"
#include "comm/p2p_channel.h"
#include "data/feed.h"
#include "job/job.h"
#include "net/net.h"
#include "parallel/tensor/tensor_parallel.h"
#include "session/connection.h"
#include "session/control.h"
#include "session/updates.h"
#include "setup/setup.h"
#include "solver/accumulate.h"
#include "solver/ema.h"
#include "solver/slots.h"
#include "solver/updater.h"

typedef struct dlc_session {
    dlc_setup *setup;
    dlc_job *job;
    int32_t rank, ranks;
    int is_plan; /* only to be shown, not run: there are no peers */

    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_queue *queue;        /* for all computation; NULL: calls are synchronous */
    dlc_memory loss_scale;   /* a dlc_loss_scale, where gradients need one */
    dlc_control control;     /* with a queue */
    dlc_net *net, *test_net; /* test_net: NULL without [data.test] */
    char *plain;             /* own; dlc_net_args.plain */
    dlc_feed *feed, *test_feed;

    dlc_connection connection;
    dlc_exchanger *exchanger;
    size_t *bucket_begin;
    int32_t buckets;

    dlc_solver solver;
    dlc_accumulator accumulator;
    dlc_solver_updater *updater;
    const dlc_consistency_ops *consistency_ops;
    dlc_consistency *consistency;
    dlc_consistency_needs needs;
    int deferred_update; /* weights are updated when the next forward needs them */
    dlc_updates updates; /* deferred ones that are still pending */
    dlc_memory slot[DLC_MAX_STATES];
    dlc_ema
        ema[2]; /* of `slot` and of those of tensor-parallel layers (session/ema.h) */
    dlc_tensor_parallel tensor_parallel;
    struct dlc_pipeline *pipeline; /* NULL: every rank has the whole net (pipeline.h) */
    dlc_shards *shards;            /* NULL: every rank has all parameters */
    struct dlc_run_folder *run_folder; /* of its checkpoints; NULL: there are none */
    const dlc_lr_schedule *resumed_schedule; /* of the run that is resumed, or NULL */
    /* Own; the consistency model's bytes from a checkpoint, until it is started; NULL.
     */
    void *model_state;
    size_t model_state_bytes;

    int asynchronous; /* ranks may be in different iterations (asynchronous.h) */
    dlc_p2p *p2p;     /* the consistency model's p2p channel; NULL: it needs none */
    dlc_consistency_stats earlier_stats; /* of models that were closed (staleness.h) */
    int64_t synchronized; /* iteration after which the ranks last had equal weights */

    int64_t local_offset, local_batch; /* this rank's samples in the global batch */
    int64_t global_batch;              /* samples of one pass over all ranks */
    int64_t accumulation_steps;        /* passes per update of the weights */
    uint64_t planned_bytes;   /* memory that this rank takes: dlc_session_memory.peak */
    int64_t epoch_iterations; /* at least 1 */
    int64_t max_iterations;
    int64_t iteration;            /* completed; with a queue, submitted to it */
    dlc_exchange_stats exchanged; /* until the exchange was last reopened */
} dlc_session;

/* Opens everything for training but the consistency model. Collective: all ranks call
 * it. */
dlc_status dlc_session_open(dlc_setup *setup, dlc_job *job, dlc_session *session);
/* Opens the consistency model, which begins with the session's current weights, slots
 * and iteration. Collective. */
dlc_status dlc_session_start(dlc_session *session);
/* Closes and reopens everything but the device and its queue, after the batch was split
 * anew; weights and slots have their initial values again. Collective. On failure the
 * caller still closes the session. */
dlc_status dlc_session_reopen(dlc_session *session);
/* Opens what a test of saved weights needs. Collective. */
dlc_status dlc_session_open_test(dlc_setup *setup, dlc_job *job, dlc_session *session);
/* Opens what `dlcore check` shows: nets are built, but no tensor memory is allocated
 * and there are no peers. The session is that of `rank` among `ranks`, which need not
 * exist; choices that ranks make by measuring keep their defaults. */
dlc_status dlc_session_open_plan(dlc_setup *setup, dlc_job *job, int32_t rank,
                                 int32_t ranks, dlc_session *session);
void dlc_session_close(dlc_session *session);

/* Blocks until the queue has reached the event, or until a stream-ordered reduction on
 * it has failed. */
dlc_status dlc_session_wait(const dlc_session *session, dlc_event *event);

/* The queue that iterations are submitted to before earlier ones have finished; NULL:
 * iterations run one by one. Pipeline stages get NULL, since they send results as soon
 * as they are computed. */
dlc_queue *dlc_session_async_queue(const dlc_session *session);

/* May each rank update a shard of the weights? May the update of a bucket be deferred,
 * with this solver? */
int dlc_session_may_shard(const dlc_session *session);
int dlc_session_may_defer(const dlc_session *session);

/* Samples of an iteration, over all ranks and accumulation steps. */
int64_t dlc_session_samples(const dlc_session *session);

#endif
