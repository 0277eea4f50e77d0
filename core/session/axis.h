/* An axis of parallelism: one way in which the ranks of a job divide its work. Each is
 * a table of calls (core/parallel/axes.h lists them), so that the session, the training
 * loop and the tools do the same for every axis and know none.
 *
 * A call that is NULL has nothing to do. All but `check`, `needs_connection`, `plan`,
 * `reload` and `json` are made only once `plan` has set `in_use`. In the order of the
 * list, and when closing in reverse.
 *
 * Threads: the training thread. */
#ifndef DLC_SESSION_AXIS_H
#define DLC_SESSION_AXIS_H

#include "base/json.h"
#include "base/text.h"
#include "data/feed.h"
#include "net/net.h"
#include "session/evaluation.h"
#include "session/schedule.h"

struct dlc_session;
struct dlc_session_layer_group;
struct dlc_session_memory;
struct dlc_exchange_schedule;
struct dlc_param_set;
typedef struct dlc_axis_ops dlc_axis_ops;

typedef struct dlc_axis {
    const dlc_axis_ops *ops;
    struct dlc_session *session;
    int in_use;
    void *state; /* the axis's own */
} dlc_axis;

/* What an axis can rule out for the job that it is used in. */
enum {
    DLC_ALLOW_QUEUE = 1,       /* to submit an iteration before earlier ones are done */
    DLC_ALLOW_SHARDS = 2,      /* to update only a shard of the weights on each rank */
    DLC_ALLOW_OVERLAP = 4,     /* to begin forward before all weights are updated */
    DLC_ALLOW_REBALANCE = 8,   /* to split the batch anew without being asked to */
    DLC_ALLOW_COLLECTIVE = 16, /* layers that ranks run together, in one iteration */
};

/* The part of the net that a rank has, if not all ranks have the whole net. */
typedef struct dlc_rank_part {
    int32_t ranks;   /* that have the same part, from this one on */
    int64_t samples; /* that a pass takes through this part */
    int is_counted;  /* a lower rank's part has, or counts, its parameters */
    dlc_text *text;  /* NULL, or appended to: a few words */
    dlc_json *json;  /* NULL, or open: added to */
} dlc_rank_part;

struct dlc_axis_ops {
    const char *name;
    unsigned rules_out; /* DLC_ALLOW_* */
    const char
        *capture_obstacle; /* why iterations cannot be captured; NULL: they can */

    /* ---- Opening, collective ---- */
    /* Refuses a job that the axis cannot be part of; the reason is a sentence. */
    dlc_status (*check)(const dlc_axis *axis);
    /* Does `plan` depend on the interconnect? Then the ranks are connected before. */
    int (*needs_connection)(const dlc_axis *axis);
    /* Decides, with the device open and the batch split, whether the axis is used and
     * how. May change which samples are this rank's. */
    dlc_status (*plan)(dlc_axis *axis);
    /* Before the nets are built. *is_split = 1: it has split the batch anew. */
    dlc_status (*split_batch)(dlc_axis *axis, int *is_split);
    /* The batch was split anew while the job runs, and is about to be opened again:
     * divides this rank's samples again. */
    dlc_status (*divide)(dlc_axis *axis);
    /* Once the ranks are connected and the nets allocated, before the exchange. */
    dlc_status (*connect)(dlc_axis *axis);
    /* Once nets, exchange and slots are open. */
    dlc_status (*open)(dlc_axis *axis);
    /* Weights, slots and iteration have the values that training begins with. */
    dlc_status (*start)(dlc_axis *axis);

    /* ---- What the session opens ---- */
    void (*shape_net)(const dlc_axis *axis, dlc_net_args *args);
    void (*shape_feed)(const dlc_axis *axis, dlc_feed_args *args);
    /* Who else has samples of this rank's layers, and how to reach them once connected.
     */
    void (*shape_group)(const dlc_axis *axis, struct dlc_session_layer_group *group);
    int (*reads_batch)(const dlc_axis *axis, dlc_phase phase);
    void (*add_memory)(const dlc_axis *axis, struct dlc_session_memory *memory);
    /* Returns 1 if it has chosen. */
    int (*choose_exchange)(const dlc_axis *axis, const struct dlc_param_set *set,
                           struct dlc_exchange_schedule *chosen);
    void (*part)(const dlc_axis *axis, dlc_rank_part *part);

    /* ---- Running ---- */
    /* The order of forward and backward, with `state` as context; NULL: a pass of the
     * whole net. */
    const dlc_schedule_ops *schedule;
    /* Collective over ranks in the same iteration. In: the words that the replicas
     * (session/replicas.h) have agreed on; out: those of the whole job. */
    dlc_status (*reduce_control)(dlc_axis *axis, float words[DLC_CONTROL_WORDS]);
    /* Collective. Runs this rank's part of a test: lists the metrics, adds the sums. */
    dlc_status (*test)(dlc_axis *axis, dlc_evaluation *evaluation);
    /* Collective. Raises the number of passes of a test, which ranks make together. */
    dlc_status (*count_test_passes)(dlc_axis *axis, int64_t *passes);
    /* Around each iteration; `computed`: seconds of it spent on samples. */
    void (*begin_iteration)(dlc_axis *axis);
    void (*end_iteration)(dlc_axis *axis, double computed);
    /* Collective, between iterations: afterwards all ranks have the same weights. */
    dlc_status (*synchronize)(dlc_axis *axis);
    /* Collective, after an iteration. *reopens = 1: `reopen` must follow. */
    dlc_status (*needs_reopen)(dlc_axis *axis, int *reopens);
    /* Collective, right after a synchronization: reopens the session otherwise than it
     * was. The caller has closed what points to its nets and feeds. */
    dlc_status (*reopen)(dlc_axis *axis);
    /* Collective, right after a synchronization: the user has changed net.ini. */
    dlc_status (*reload)(dlc_axis *axis);
    /* Seconds that this rank has waited for others, the exchange left out. */
    double (*waited)(const dlc_axis *axis);

    /* ---- Reporting ---- */
    void (*announce)(const dlc_axis *axis);                 /* logs the plan */
    void (*progress)(const dlc_axis *axis, dlc_json *json); /* of this rank, so far */
    /* Collective, at the end of training: gathers and logs. May correct the throughput
     * of the job, which is this rank's view of it. */
    dlc_status (*report)(dlc_axis *axis, double *images_per_s);
    void (*json)(const dlc_axis *axis, dlc_json *json); /* of the report; also unused */

    /* ---- Closing ---- */
    dlc_status (*keep)(dlc_axis *axis); /* what is to outlive `disconnect` */
    void (*disconnect)(dlc_axis *axis); /* what connect, open and start have opened */
    void (*close)(dlc_axis *axis);      /* what plan has; also after it has failed */
};

#endif
