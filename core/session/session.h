/* A session is one rank at work: what it opened from the setup (device, feeds, nets,
 * transport, exchange, consistency model) and its progress. `dlcore train`, `test`,
 * `check`, `time` and `plan` open one.
 *
 * Threads: the train thread. The feeds and the exchange each have a thread of their
 * own.
 */
#ifndef DLC_SESSION_SESSION_H
#define DLC_SESSION_SESSION_H

#include "data/feed.h"
#include "job/job.h"
#include "net/net.h"
#include "session/axis.h"
#include "session/connection.h"
#include "session/control.h"
#include "session/layer_group.h"
#include "session/output.h"
#include "session/param_set.h"
#include "setup/mesh.h"
#include "setup/setup.h"
#include "solver/slots.h"

typedef struct dlc_session {
    dlc_setup *setup;
    dlc_job *job;
    int32_t rank, ranks;
    int is_plan;    /* only to be shown, not run: there are no peers */
    int is_timed;   /* passes wait for the queue, so that it is known what they take */
    dlc_mesh mesh;  /* of the ranks; axes that are not used are 1 rank long */
    dlc_axis *axis; /* own; those that it was opened with */
    int32_t axes;

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
        /* Of all ranks, and of those that divide layers with this one, set by axes;
         * NULL: each rank has the whole model, or no layer is divided. */
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

/* Opens everything for training but the consistency model. `axes`: of parallelism, that
 * the job may use; ends with NULL. Collective: all ranks call it. */
dlc_status dlc_session_open(dlc_setup *setup, dlc_job *job,
                            const dlc_axis_ops *const *axes, dlc_session *session);
/* Opens the consistency model, which begins with the session's current weights, slots
 * and iteration. Collective. */
dlc_status dlc_session_start(dlc_session *session);
/* Closes and reopens everything but the device and its queue, after the batch was split
 * anew; weights and slots have their initial values again. Collective. On failure the
 * caller still closes the session. */
dlc_status dlc_session_reopen(dlc_session *session);
/* Opens what a test of saved weights needs. `output`: what is handed out beside the
 * metrics, or NULL. Collective. */
dlc_status dlc_session_open_test(dlc_setup *setup, dlc_job *job,
                                 const dlc_session_output *output,
                                 dlc_session *session);
/* Opens what `dlcore check` shows: nets are built, but no tensor memory is allocated
 * and there are no peers. The session is that of `rank` among `ranks`, which need not
 * exist; choices that ranks make by measuring keep their defaults. */
dlc_status dlc_session_open_plan(dlc_setup *setup, dlc_job *job,
                                 const dlc_axis_ops *const *axes, int32_t rank,
                                 int32_t ranks, dlc_session *session);
void dlc_session_close(dlc_session *session);

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

/* Seconds that this rank has waited for others, exchanges left out. */
double dlc_session_waited(const dlc_session *session);

/* Do axes measure the interconnect, and the memory, before they decide? */
int dlc_session_measures(const dlc_session *session);
/* Does no axis in use rule out `what`, one of DLC_ALLOW_*? */
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

/* Describes the part of the net that this rank has; part->text and part->json are the
 * caller's. Returns 0 if all ranks have the whole net: then only `samples` is set. */
int dlc_session_part(const dlc_session *session, dlc_rank_part *part);

/* The first axis in use from `axis` on, or NULL. */
dlc_axis *dlc_axis_in_use(const dlc_session *session, dlc_axis *axis);

/* For each axis in use that has this call. */
// NOLINTBEGIN(bugprone-macro-parentheses): `axis` is declared, `call` is a member
#define DLC_EACH_AXIS(session, axis, call) \
    for (dlc_axis *axis = dlc_axis_in_use((session), (session)->axis); axis; \
         axis = dlc_axis_in_use((session), axis + 1)) \
        if (axis->ops->call)
// NOLINTEND(bugprone-macro-parentheses)

#endif
