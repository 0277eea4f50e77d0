/* Consistency models: when the updates of one rank become visible to the others.
 *
 * Synchronous training is the core's own: after each iteration all ranks have the same
 * weights. A consistency model replaces that, for any solver. It moves gradients, steps
 * and weights between the ranks itself and applies the solver's rule by the updater
 * that the core gives it.
 *
 * Weights and gradients are one float32 arena each. For the exchange the gradient arena
 * is cut into consecutive *buckets*; the core calls ready as soon as backward has
 * filled one for the last time in an iteration. Gradients are weighted, so that their
 * sum over the ranks is the gradient of the mean loss over the samples of all ranks.
 *
 *     call            needed                       may block
 *     needs           required                     no
 *     create destroy  required                     yes
 *     ready           required                     no
 *     finish          required                     yes, on other ranks
 *     synchronize     required                     yes, on other ranks
 *     update          optional                     yes, on other ranks
 *     save load       optional, both               yes, on other ranks
 *     configure stats optional                     no
 *     memory          optional                     no
 *
 * Threads: all calls come from the train thread. A model may start threads of its own
 * in create; destroy joins them. */
#ifndef DLCORE_CONSISTENCY_H
#define DLCORE_CONSISTENCY_H

#include <dlcore/transport.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dlc_consistency dlc_consistency; /* defined by the plugin */

/* ---- What a model works with ----------------------------------------------------- */

/* The exchange of gradients, which the core provides. Bucket b of the gradient arena is
 * [bucket_begin[b], bucket_begin[b + 1]). The train thread makes the calls. With one
 * rank they all succeed at once and change nothing. */
typedef struct dlc_exchange {
    uint32_t size;
    void *context; /* the first argument of the calls */
    int32_t rank, ranks;
    int32_t buckets;
    const size_t *bucket_begin; /* buckets + 1 elements */

    /* Starts to all-reduce bucket b in place, after the work that is on the queue now.
     * Does not block. All ranks start the same buckets in the same order. A bucket may
     * be started again once it was waited for: a model may reduce anything in this way,
     * such as weights that it has copied there, and an iteration need not start any. */
    dlc_status (*start)(void *context, int32_t bucket);

    /* Waits until bucket b is reduced, as far as later work on the queue is concerned:
     * without a queue it blocks. */
    dlc_status (*wait)(void *context, int32_t bucket);

    /* Sharded updates (ZeRO stage 1), of the core's own synchronous model: for a model
     * of a plugin these fields and the calls below are NULL. Then start reduces only
     * the elements [shard_begin[b], shard_end[b]) of bucket b on this rank, and this
     * rank updates only those; the other weights belong to other ranks. Slots hold
     * nothing else: element shard_begin[b] of the arena is element slot_begin[b] of
     * each slot. NULL: each rank reduces and updates everything. */

    const size_t *shard_begin, *shard_end, *slot_begin; /* `buckets` elements each */

    /* Starts to distribute the updated weights of this rank's shard of bucket b to all
     * ranks. Does not block. Called after the shard has been updated. */
    dlc_status (*all_gather)(void *context, int32_t bucket);

    /* Waits until the weights of all ranks have arrived. Called at the end of
     * finish. */
    dlc_status (*flush)(void *context);

    /* `sums` has a number for each piece of the arena (DLC_SQUARE_PIECE elements), in
     * device memory: distributes those of this rank's shards to all ranks, as far as
     * later work on the queue is concerned; without a queue it blocks. Shards begin and
     * end on pieces. Called when all buckets are reduced and none is being gathered. */
    dlc_status (*gather_sums)(void *context, double *sums);

    /* Sharded updates in one pass over memory. NULL: the transport or the device does
     * not support it. For any bucket but the last it replaces start, wait, the
     * update and all_gather: it reduces this rank's shard of bucket b, updates it by
     * the ranges (in ascending order), and distributes the weights. The gradients are
     * undefined afterwards. Does not block, and otherwise obeys the rules of start;
     * `ranges` and what they point to must stay as they are until flush returns. */
    dlc_status (*fused_update)(void *context, int32_t bucket,
                               const dlc_update_range *ranges, int32_t count);
} dlc_exchange;

/* Point-to-point messages between the ranks, which the core provides if they are asked
 * for (dlc_consistency_needs.p2p_channel). The channel has an endpoint of its own, so
 * the exchange and the core's collectives continue beside it. Valid from create to
 * destroy. One thread at a time uses it, which need not be the train thread. Tags and
 * order are as in dlc_transport_ops. Buffers are memory of the device, or host memory
 * that was allocated with DLC_MEM_STAGING. Nothing waits for work on queues: what is
 * sent must be complete, and what is received is complete when its request is done. A
 * rank does not send to itself. */
typedef struct dlc_p2p_channel {
    uint32_t size;
    void *context; /* the first argument of the calls */
    int32_t rank, ranks;
    const int32_t *node; /* of each rank; equal numbers are on the same machine */

    /* Start sending or receiving. Do not block. test or wait_any releases *request when
     * it is done. */

    dlc_status (*send)(void *context, int32_t peer, dlc_tag tag, const void *buffer,
                       size_t bytes, dlc_request **request);
    dlc_status (*recv)(void *context, int32_t peer, dlc_tag tag, void *buffer,
                       size_t bytes, dlc_request **request);

    /* Makes progress. *done = 1 if the request is done, and released; otherwise 0. */
    dlc_status (*test)(void *context, dlc_request *request, int *done);

    /* Blocks until one of `count` requests is done, releases it and stores its index in
     * *which; stores -1 after `seconds` or after wakeup. NULL entries are skipped.
     * Sleeps while it waits, and fails within 100 ms after the job has begun to end. */
    dlc_status (*wait_any)(void *context, dlc_request *const *requests, int32_t count,
                           double seconds, int32_t *which);

    /* DLC_OK, or the status to return at once because the job is ending. Cheap; any
     * thread. */
    dlc_status (*check)(void *context);

    /* Makes the wait_any that is running, or otherwise the next one, return soon, with
     * *which = -1 if no request is done. Any thread. */
    void (*wakeup)(void *context);

    /* Cancels all requests that are in flight, so that their buffers can be released.
     * It must be the last call. Who has requests in flight makes it in destroy. */
    void (*cancel)(void *context);
} dlc_p2p_channel;

/* The solver's rule, as the core applies it. Any thread may make the calls, several at
 * once. */
typedef struct dlc_updater {
    uint32_t size;
    void *context;       /* the first argument of the calls */
    int32_t slots;       /* of the rule: 0 .. DLC_MAX_SLOTS */
    int32_t needs_norms; /* 1: of whole tensors, see measure */

    /* The hyperparameters of an iteration; the first iteration is 0. Does not block. */
    dlc_status (*values)(void *context, int64_t iteration, dlc_rule_values *values);

    /* Updates the elements [begin, begin + count) of the arena, each with the
     * multipliers of its parameter; elements that belong to none, and those that are
     * never updated, stay as they are. The pointers are to element `begin`, in memory
     * of the device, and need not be in the arenas; `slots` has `slots` of them.
     * `grad_scale` is a factor of the gradients, 1 for those of the whole batch. The
     * work is submitted to `queue`; NULL: it is done on return, for a count of up to
     * 16,384 by the calling thread alone. */
    dlc_status (*update)(void *context, dlc_queue *queue, const dlc_rule_values *values,
                         size_t begin, size_t count, float grad_scale,
                         const float *gradient, float *const *slots, float *weight);

    /* With needs_norms: takes the norms that the calls of update read until the next
     * call of this one, of whole arenas; may change the slots. The work is submitted to
     * `queue`, or done on return. One thread at a time calls it, and update only after
     * it has returned, on the same queue. */
    dlc_status (*measure)(void *context, dlc_queue *queue,
                          const dlc_rule_values *values, float grad_scale,
                          const float *gradients, float *const *slots, float *weights);
} dlc_updater;

/* The control words after the first that are votes (dlc_consistency_ops.finish). */
enum { DLC_CONTROL_VOTES = 3 };

/* ---- Building a model ------------------------------------------------------------ */

/* What a model with certain settings needs. The core sets `size` and all other fields
 * to 0; the model changes what differs. */
typedef struct dlc_consistency_needs {
    uint32_t size;

    int32_t p2p_channel; /* 1: sends messages itself (dlc_consistency_args.p2p) */

    /* The last `servers` ranks are parameter servers: they have no samples and get no
     * ready, but finish (or update of all buckets) in every iteration like the
     * others. */
    int32_t servers;

    int32_t deferred_update; /* 1: update may be called instead of finish */

    /* 1: with these settings ranks may be in different iterations. The batch is then
     * split by the measured throughput of the ranks, unless [parallel] batch_split
     * says otherwise. */
    int32_t allows_skew;
} dlc_consistency_needs;

/* The parameters that a model would have, and the ranks that would share them: what its
 * memory depends on. */
typedef struct dlc_consistency_extent {
    uint32_t size;
    size_t trained; /* elements of each arena, without control words */
    size_t largest; /* of the largest parameter, which is not divided between buckets */
    int32_t slots;
    int32_t rank, ranks;
    double share; /* of the batch, that this rank computes; 0: a server */
} dlc_consistency_extent;

/* The arguments of create. The struct is valid during the call, and what it points to
 * until destroy: a model may keep a copy. */
typedef struct dlc_consistency_args {
    uint32_t size;
    const dlc_settings *settings; /* of the feature's option table */
    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_queue *queue; /* submit all work here; NULL: work is done on return */

    /* The arenas, in device memory. */

    size_t count; /* elements of each arena, control words included */

    /* The last `control_words` elements, if there are any, are the core's own values:
     * the loss, DLC_CONTROL_VOTES votes (a request to stop), then other sums. They are
     * exchanged with the last bucket and never updated. */
    size_t control_words;

    float *weights;
    float *gradients;
    float *slots[DLC_MAX_SLOTS]; /* initial values, or as the checkpoint had them;
                                    with sharded updates this rank's shards */

    /* For names of files: the rank in the job (exchange and p2p have only the ranks
     * that share these parameters), and, where a rank has a model for each of two sets
     * of parameters, a word for the second set; otherwise NULL. */
    int32_t job_rank;
    const char *parameters;

    const dlc_updater *updater;
    const dlc_exchange *exchange; /* over the ranks that have these parameters */
    const dlc_p2p_channel *p2p;   /* NULL with one rank, or if it was not asked for */

    /* The number of samples of each of these ranks in a batch. NULL: equal. */
    const int64_t *batch_split;

    int64_t iteration; /* the first one; not 0 in a resumed job */
} dlc_consistency_args;

/* ---- Statistics ------------------------------------------------------------------ */

/* Number of elements of dlc_consistency_stats.staleness. */
enum { DLC_STALENESS_BINS = 16 };

/* What a consistency model has seen on this rank since create.
 * A read of the weights for iteration c is n iterations stale if it missed the updates
 * of iterations c-1 .. c-n of some rank. */
typedef struct dlc_consistency_stats {
    uint32_t size;
    double wait_seconds; /* that iterations were idle, waiting for other ranks */
    int64_t reads;

    /* Reads by staleness; the last element counts that staleness and more. */
    int64_t staleness[DLC_STALENESS_BINS];

    int32_t slowest;             /* the rank that it waited for longest; -1: none */
    double slowest_wait_seconds; /* how long it waited for that rank */
} dlc_consistency_stats;

/* ---- Calls ----------------------------------------------------------------------- */

/* The table of calls of a consistency model. Ranks may be in different iterations, but
 * each rank does all of them. */
typedef struct dlc_consistency_ops {
    uint32_t size;

    /* Required. Fills in `needs` from the settings, before create. DLC_ERR_CONFIG with
     * a sentence if settings contradict each other. */
    dlc_status (*needs)(const dlc_settings *settings, dlc_consistency_needs *needs);

    /* Required. Creates a model, which the caller owns. */
    dlc_status (*create)(const dlc_consistency_args *args, dlc_consistency **model);

    /* Required. Releases the model; does nothing if `model` is NULL. */
    void (*destroy)(dlc_consistency *model);

    /* Required. The gradients of a bucket are complete on this rank. The buckets of an
     * iteration come in the order 0, 1, ... */
    dlc_status (*ready)(dlc_consistency *model, int64_t iteration, int32_t bucket);

    /* Required. Called when all buckets are ready. On return the weights are those that
     * this rank computes iteration + 1 with, and the control words are exchanged, as
     * far as later work on the queue is concerned: each is the sum of what the ranks
     * gave last, except for the votes. They gave it in this iteration, unless the model
     * starts no bucket with control words in it, or lets ranks be in different ones
     * (allows_skew): then it may be older, but finish never goes back. As long as
     * nothing has arrived from a rank, the others stand for it by their shares of the
     * batch: before the first exchange these are a rank's own words, divided by its
     * share.
     *
     * If a rank makes a vote positive, before the last bucket is ready (a server:
     * before finish), it becomes positive once on all ranks, in the same iteration on
     * each, which may be a later one. */
    dlc_status (*finish)(dlc_consistency *model, int64_t iteration);

    /* Optional, see dlc_consistency_needs.deferred_update. Called instead of finish, to
     * bring the weights of one bucket up to date, so that the next forward can begin
     * before all buckets are. Called once for each bucket in any order, before anything
     * reads its weights. */
    dlc_status (*update)(dlc_consistency *model, int64_t iteration, int32_t bucket);

    /* Required. All ranks call it together when each of them has done `iteration`
     * iterations: applies all updates, so that all ranks have the same weights, and the
     * slots are those of the whole job. With one rank these are the weights of
     * synchronous training. Called before each test and checkpoint and at
     * the end, at most once for each number. */
    dlc_status (*synchronize)(dlc_consistency *model, int64_t iteration);

    /* Optional, both or none: state beside the slots (clocks, counters), as bytes. */

    /* Called on rank 0. `blob` NULL: stores the size of the state in *bytes. Otherwise
     * writes it to `blob`, which has room for *bytes. */
    dlc_status (*save)(dlc_consistency *model, void *blob, size_t *bytes);

    /* Called on all ranks, right after create. */
    dlc_status (*load)(dlc_consistency *model, const void *blob, size_t bytes);

    /* Optional. Called right after synchronize, on all ranks with the same values:
     * takes over the settings that may change (DLC_OPT_LIVE). An error leaves
     * everything as it was. `settings` are valid until destroy, as the earlier ones
     * are. */
    dlc_status (*configure)(dlc_consistency *model, const dlc_settings *settings);

    /* Optional. Fills in `stats`, whose size the caller has set. */
    dlc_status (*stats)(dlc_consistency *model, dlc_consistency_stats *stats);

    /* Optional, before create. *bytes: memory of the device that a model with these
     * settings would allocate. DLC_ERR_CONFIG with a sentence if they do not suit these
     * ranks: `dlcore check` then says so, too. NULL: none that counts beside the
     * arenas. */
    dlc_status (*memory)(const dlc_settings *settings,
                         const dlc_consistency_extent *extent, uint64_t *bytes);
} dlc_consistency_ops;

#ifdef __cplusplus
}
#endif
#endif
