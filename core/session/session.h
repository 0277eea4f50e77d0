/* A session is one rank at work: what it opened from the setup (device, feeds, nets,
 * transport, exchange, consistency model) and its progress. core/run opens it for
 * `dlcore train`, `test`, `check`, `time` and `plan`.
 *
 * Threads: the train thread. The feeds and the exchange each have a thread of their
 * own.
 */
#ifndef DLC_SESSION_SESSION_H
#define DLC_SESSION_SESSION_H

#include "data/feed.h"
#include "job/job.h"
#include "net/net.h"
#include "session/connection.h"
#include "session/control.h"
#include "session/layer_group.h"
#include "session/output.h"
#include "session/param_set.h"
#include "setup/mesh.h"
#include "setup/setup.h"
#include "solver/slots.h"

/* What the ways of dividing the work can rule out for a job. */
enum {
    DLC_ALLOW_QUEUE = 1,       /* to submit an iteration before earlier ones are done */
    DLC_ALLOW_SHARDS = 2,      /* to update only a shard of the weights on each rank */
    DLC_ALLOW_OVERLAP = 4,     /* to begin forward before all weights are updated */
    DLC_ALLOW_REBALANCE = 8,   /* to split the batch anew without being asked to */
    DLC_ALLOW_COLLECTIVE = 16, /* layers that ranks run together, in one iteration */
};

/* The part of the net that a rank has. */
typedef struct dlc_rank_part {
    int is_divided;  /* not all ranks have the whole net */
    int32_t ranks;   /* that have the same part, from this one on */
    int64_t samples; /* that a pass takes through this part */
    int is_counted;  /* a lower rank's part has, or counts, its parameters */
} dlc_rank_part;

typedef struct dlc_session {
    dlc_setup *setup;
    dlc_job *job;
    int32_t rank, ranks;
    int is_plan;   /* only to be shown, not run: there are no peers */
    int is_timed;  /* passes wait for the queue, so that it is known what they take */
    dlc_mesh mesh; /* of the ranks; axes that are not used are 1 rank long */

    /* How the job divides its work (core/parallel); own. */
    struct dlc_pipeline *pipeline;      /* NULL: the net is one stage */
    struct dlc_tensor_parallel *tensor; /* NULL: no layer is split over ranks */
    struct dlc_rebalance *rebalance;    /* NULL: the batch stays split as it is */
    struct dlc_staleness *staleness;    /* NULL: all ranks are in the same iteration */
    unsigned rules_out;                 /* DLC_ALLOW_* */
    dlc_rank_part part;

    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_queue *queue;        /* for all computation; NULL: calls are synchronous */
    dlc_memory loss_scale;   /* a dlc_loss_scale, where gradients need one */
    dlc_control control;     /* with a queue */
    dlc_net *net, *test_net; /* test_net: NULL without [data.test] */
    char *plain;             /* own; dlc_net_args.plain */
    dlc_feed *feed, *test_feed;
    dlc_session_output output; /* of the test net, that is handed out */

    dlc_connection connection;
    dlc_param_set set[DLC_PARAM_SETS];

    dlc_solver solver;
    const dlc_consistency_ops *consistency_ops;
    dlc_consistency_needs needs;
    struct {
        int writes, from_rank_0;
    } full_state; /* see full_state.h */
    struct {
        /* Of all ranks, and of those that divide layers with this one; NULL: each rank
         * has the whole model, or no layer is divided. */
        dlc_progress_engine *all, *rows;
        dlc_memory numbers;            /* own; staging: a row of each rank, the sum */
        dlc_memory square;             /* own */
        int32_t pending;               /* transfers */
    } model_norms;                     /* see model_norms.h */
    struct dlc_shards *shards;         /* NULL: every rank has all parameters */
    struct dlc_run_folder *run_folder; /* of its checkpoints; NULL: there are none */
    const dlc_lr_schedule *resumed_schedule; /* of the run that is resumed, or NULL */
    /* Own; the consistency model's bytes from a checkpoint, until it is started; NULL.
     */
    void *model_state;
    size_t model_state_bytes;

    dlc_session_layer_group layer_group; /* of collective layers */
    struct dlc_loss_shares *loss_shares; /* own; NULL: every sample counts alike */

    int64_t local_offset, local_batch; /* this rank's samples in the global batch */
    int32_t micro_batches;             /* that a pass of this rank is cut into */
    struct {
        int64_t train, test;
    } stage_samples; /* that the ranks of a stage compute at once; 0: all of a pass */
    int64_t global_batch;       /* samples of one pass over all ranks */
    int64_t accumulation_steps; /* passes per update of the weights */
    uint64_t planned_bytes;   /* memory that this rank takes: dlc_session_memory.peak */
    int64_t epoch_iterations; /* at least 1 */
    int64_t max_iterations;
    int64_t iteration;            /* completed; with a queue, submitted to it */
    dlc_exchange_stats exchanged; /* until the exchange was last reopened */
} dlc_session;

/* Blocks until the queue has reached the event, or until a stream-ordered reduction on
 * it has failed. */
dlc_status dlc_session_wait(const dlc_session *session, dlc_event *event);

/* Names the device's plugin in a DLC_ERR_DEVICE without a sentence. Other calls of
 * plugins are named where they are made, but copies, kernels and events are made
 * everywhere. */
dlc_status dlc_session_explain(const dlc_session *session, dlc_status status);

/* Waits until the queue, if there is one, uses no memory and no communicator any more,
 * also after an error. Comes before anything is freed that it may use. */
void dlc_session_drain(const dlc_session *session);

/* The queue that iterations are submitted to before earlier ones have finished; NULL:
 * iterations run one by one. */
dlc_queue *dlc_session_async_queue(const dlc_session *session);

/* Does nothing rule out `what`, one of DLC_ALLOW_*? */
int dlc_session_allows(const dlc_session *session, unsigned what);
/* Is no weight updated before all gradients are reduced, because updates need norms? */
int dlc_session_needs_all_gradients(const dlc_session *session);
/* May each rank update a shard of the weights? In one pass with the reduction? May the
 * update of a bucket be deferred, with this solver? */
int dlc_session_may_shard(const dlc_session *session);
int dlc_session_may_fuse(const dlc_session *session);
int dlc_session_may_defer(const dlc_session *session);

/* What an update of the arenas is of; on the session's queue, without values in device
 * memory. */
dlc_update_target dlc_session_update_target(const dlc_session *session,
                                            const dlc_arenas *arenas);

/* Samples of an iteration, over all ranks and accumulation steps. */
int64_t dlc_session_samples(const dlc_session *session);

/* Adds to *loss the part that samples [first, first + samples) of this rank's batch of
 * this number, through which the net has just run, have in the mean losses of the
 * iteration. */
dlc_status dlc_session_add_loss(const dlc_session *session, int64_t batch,
                                int64_t first, int64_t samples, double *loss);

#endif
