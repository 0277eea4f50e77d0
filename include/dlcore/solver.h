/* Solvers: how gradients become weights, and in which order they are exchanged.
 *
 * Weights and gradients are one float32 arena each, cut into *segments* (one for each
 * parameter tensor) in the order in which backward finishes them. For the exchange the
 * gradient arena is cut into consecutive *buckets*. The core calls ready as soon as
 * backward has filled a bucket; the solver decides what to do with it. Gradients are
 * weighted, so that their sum over the ranks is the gradient of the mean loss over the
 * samples of all ranks.
 *
 *     call            needed                       may block
 *     needs           required                     no
 *     create destroy  required                     yes
 *     learning_rate   required                     no
 *     ready           required                     no
 *     finish          required                     yes, on other ranks
 *     update          optional                     yes, on other ranks
 *     save load       optional, both               yes, on other ranks
 *     check_schedule  optional                     no
 *     synchronize     unless SYNCHRONOUS           yes, on other ranks
 *     configure stats optional                     no
 *
 * SYNCHRONOUS is the capability bit DLC_SOLVER_SYNCHRONOUS.
 *
 * Threads: all calls come from the train thread. A solver may start threads of its own
 * in create; destroy joins them. */
#ifndef DLCORE_SOLVER_H
#define DLCORE_SOLVER_H

#include <dlcore/transport.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dlc_solver dlc_solver; /* defined by the plugin */

#define DLC_MAX_SLOTS 4

/* Capability bits of a solver feature. */
enum {
    /* All ranks have the same weights after every iteration. */
    DLC_SOLVER_SYNCHRONOUS = 1u << 0,
};

/* ---- What a solver works on ------------------------------------------------------ */

/* One parameter tensor in the arenas. */
typedef struct dlc_segment {
    uint32_t size;
    const char *name;  /* "conv1.weight" */
    size_t offset;     /* in elements, from the beginning of the arena */
    size_t count;      /* in elements */
    double lr_mult;    /* factor on the learning rate */
    double decay_mult; /* factor on the weight decay */
} dlc_segment;

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
     * Does not block. All ranks start the same buckets in the same order. */
    dlc_status (*start)(void *context, int32_t bucket);

    /* Waits until bucket b is reduced, as far as later work on the queue is concerned:
     * without a queue it blocks. */
    dlc_status (*wait)(void *context, int32_t bucket);

    /* Sharded updates (ZeRO stage 1), if the solver supports them
     * (dlc_solver_needs.sharding). Then start reduces only the elements
     * [shard_begin[b], shard_end[b]) of bucket b on this rank, and this rank updates
     * only those; the other weights and slots belong to other ranks. These fields are
     * NULL if each rank reduces and updates everything. */

    const size_t *shard_begin, *shard_end; /* `buckets` elements each */

    /* Starts to distribute the updated weights of this rank's shard of bucket b to all
     * ranks. Does not block. The solver calls it after it has updated the shard. */
    dlc_status (*all_gather)(void *context, int32_t bucket);

    /* Waits until the weights of all ranks have arrived. The solver calls it at the end
     * of finish. */
    dlc_status (*flush)(void *context);

    /* Sharded updates in one pass over memory. NULL: the transport or the device does
     * not support it. For any bucket but the last it replaces start, wait, momentum and
     * all_gather: it reduces this rank's shard of bucket b, updates it by the ranges
     * (in ascending order), and distributes the weights. The gradients are undefined
     * afterwards. Does not block, and otherwise obeys the rules of start; `ranges` and
     * what they point to must stay as they are until flush returns. */
    dlc_status (*fused_update)(void *context, int32_t bucket,
                               const dlc_update_range *ranges, int32_t count);
} dlc_exchange;

/* Point-to-point messages between the ranks, which the core provides if the solver asks
 * for them (dlc_solver_needs.p2p_channel). The channel has an endpoint of its own, so
 * the exchange and the core's collectives continue beside it. Valid from create to
 * destroy. One thread at a time uses it, which need not be the train thread. Tags,
 * order and buffers are as in dlc_transport_ops. A rank does not send to itself. */
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
     * It must be the last call. A solver that has requests in flight makes it in
     * destroy. */
    void (*cancel)(void *context);
} dlc_p2p_channel;

/* ---- Building a solver ----------------------------------------------------------- */

/* What a solver with certain settings needs. The core sets `size`, accumulation_steps
 * to 1 and all other fields to 0; the solver changes what differs. */
typedef struct dlc_solver_needs {
    uint32_t size;

    /* State arenas, each laid out like the weights (momentum, variance). */
    int32_t slots;

    const char *slot_name[DLC_MAX_SLOTS]; /* constant; the name in a checkpoint */
    uint32_t slot_saved;                  /* bit i: slot i is saved in checkpoints */

    /* Micro-batches (forward and backward) in an iteration. */
    int32_t accumulation_steps;

    /* 1: supports sharded updates (dlc_exchange.shard_begin), of its slots too. */
    int32_t sharding;

    /* 1: update may be called instead of finish, with these settings. */
    int32_t deferred_update;

    /* 1: all work is submitted to the queue, and is the same in every iteration
     * except for what learning_rate_at and loss_scale point to, so that it can be
     * captured. */
    int32_t capturable;

    int32_t p2p_channel; /* 1: sends messages itself (dlc_solver_args.p2p) */

    /* The last `servers` ranks are parameter servers: they have no samples and get
     * no ready, but finish (or update of all buckets) in every iteration like the
     * others. */
    int32_t servers;

    /* 1: with these settings ranks may be in different iterations. The batch is then
     * split by the measured throughput of the ranks, unless [parallel] batch_split
     * says otherwise. */
    int64_t allows_skew;
} dlc_solver_needs;

/* How iterations count in the learning-rate schedule of a run that was resumed with
 * another batch size or length: the learning rate continues from where it was. */
typedef struct dlc_lr_schedule {
    /* Of the run as it began: use these in the schedule. */
    int64_t max_iterations, epoch_iterations;

    int64_t begin; /* the iteration at which the run was resumed */

    /* Iteration i counts as from + (i - begin) * step, in iterations of the batch size
     * that the run began with. */
    double from, step;

    /* In a schedule that ends with the run (and so depends on max_iterations),
     * iteration i counts as from_to_end + (i - begin) * step_to_end instead, so that
     * the rest of the schedule fits the rest of the run. */
    double from_to_end, step_to_end;
} dlc_lr_schedule;

/* The arguments of create. All pointers except `schedule` are valid until destroy. */
typedef struct dlc_solver_args {
    uint32_t size;
    const dlc_settings *settings; /* of the feature's option table */
    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_queue *queue; /* submit all work here; NULL: work is done on return */

    /* The arenas, in device memory. */

    size_t count; /* elements of each arena, control words included */

    /* The last `control_words` elements are the core's own values (the sum of the
     * losses, a request to stop). The solver exchanges them with the last bucket and
     * never updates them. */
    size_t control_words;

    float *weights;
    float *gradients;
    float *slots[DLC_MAX_SLOTS]; /* zeroed, or as the checkpoint had them */
    int32_t segments;            /* number of segments */
    const dlc_segment *segment;  /* walk with DLC_NEXT */

    const dlc_exchange *exchange;
    const dlc_p2p_channel *p2p; /* NULL with one rank, or if it was not asked for */

    /* The number of samples of each rank in a batch of the job. NULL: equal. */
    const int64_t *batch_split;

    int64_t iteration;        /* the first one; not 0 in a resumed job */
    int64_t max_iterations;   /* of the whole job; -1: not known */
    int64_t epoch_iterations; /* iterations of an epoch, at least 1 */

    /* Valid during create; NULL: iterations count as they are. */
    const dlc_lr_schedule *schedule;

    /* Not NULL: the learning rate of the current iteration in device memory (what
     * learning_rate returned), to be used instead of a value in the arguments of
     * kernels, so that the work can be captured. */
    const float *learning_rate_at;

    /* Not NULL: gradients are multiplied by a loss scale, in device memory. After all
     * of them are reduced and before any weight is updated, the solver passes them to
     * update_loss_scale, and then sets dlc_momentum.loss_scale. Never together with
     * sharded or deferred updates. */
    dlc_loss_scale *loss_scale;
} dlc_solver_args;

/* ---- Statistics ------------------------------------------------------------------ */

/* Number of elements of dlc_solver_stats.staleness. */
enum { DLC_STALENESS_BINS = 16 };

/* What a solver that is not DLC_SOLVER_SYNCHRONOUS has seen on this rank since create.
 * A read of the weights for iteration c is n iterations stale if it missed the updates
 * of iterations c-1 .. c-n of some rank. */
typedef struct dlc_solver_stats {
    uint32_t size;
    double wait_seconds; /* that iterations were idle, waiting for other ranks */
    int64_t reads;

    /* Reads by staleness; the last element counts that staleness and more. */
    int64_t staleness[DLC_STALENESS_BINS];

    int32_t slowest;             /* the rank that it waited for longest; -1: none */
    double slowest_wait_seconds; /* how long it waited for that rank */
} dlc_solver_stats;

/* ---- Calls ----------------------------------------------------------------------- */

/* The table of calls of a solver. */
typedef struct dlc_solver_ops {
    uint32_t size;

    /* Required. Fills in `needs` from the settings, before create. DLC_ERR_CONFIG with
     * a sentence if settings contradict each other. */
    dlc_status (*needs)(const dlc_settings *settings, dlc_solver_needs *needs);

    /* Required. Creates a solver, which the caller owns. */
    dlc_status (*create)(const dlc_solver_args *args, dlc_solver **solver);

    /* Required. Releases the solver; does nothing if `solver` is NULL. */
    void (*destroy)(dlc_solver *solver);

    /* Required. The learning rate of an iteration; the first iteration is 0. */
    double (*learning_rate)(dlc_solver *solver, int64_t iteration);

    /* Required. Backward has filled a bucket for a micro-batch. In each micro-batch the
     * buckets come in the order 0, 1, ... */
    dlc_status (*ready)(dlc_solver *solver, int64_t iteration, int32_t micro_batch,
                        int32_t bucket);

    /* Required. Called when all buckets of all micro-batches are ready. On return the
     * weights are those of iteration + 1 and the control words are reduced, as far as
     * later work on the queue is concerned. */
    dlc_status (*finish)(dlc_solver *solver, int64_t iteration);

    /* Optional, see dlc_solver_needs.deferred_update. Called instead of finish, to
     * update the weights of one bucket, so that the next forward can begin before all
     * buckets are reduced. Called once for each bucket in any order, before anything
     * reads its weights. Never with sharded updates. */
    dlc_status (*update)(dlc_solver *solver, int64_t iteration, int32_t bucket);

    /* Optional, both or none: state beside the slots (clocks, counters), as bytes. */

    /* Called on rank 0. `blob` NULL: stores the size of the state in *bytes. Otherwise
     * writes it to `blob`, which has room for *bytes. */
    dlc_status (*save)(dlc_solver *solver, void *blob, size_t *bytes);

    /* Called on all ranks, right after create. */
    dlc_status (*load)(dlc_solver *solver, const void *blob, size_t bytes);

    /* Optional. Checks the learning rates of a job of `iterations` iterations (at least
     * 1), from settings that `needs` has accepted. DLC_ERR_CONFIG with a sentence if
     * nothing can be learned (the learning rate is always 0). If something is merely
     * suspicious, writes a sentence to `warning` (of `bytes` bytes, empty at first) and
     * returns DLC_OK. Sentences may begin with dlc_host.where. */
    dlc_status (*check_schedule)(const dlc_settings *settings, int64_t iterations,
                                 int64_t epoch_iterations, char *warning, size_t bytes);

    /* Calls of solvers that are not DLC_SOLVER_SYNCHRONOUS.
     *
     * Their ranks may be in different iterations, but each rank does all of them.
     * finish (or update) leaves the weights that this rank computes with next. A rank
     * fills the control words before its last bucket is ready (a server: before
     * finish). After finish (or update of the last bucket) the first control word is
     * the sum of what the ranks gave last. If a rank makes any other control word
     * positive, it becomes positive once on all ranks, in the same iteration on each,
     * which may be a later one. */

    /* Required for them. All ranks call it together when each of them has done
     * `iteration` iterations: applies all updates, so that all ranks have the same
     * weights, and the saved slots are those of the whole job. Called before each test
     * and checkpoint and at the end, at most once for each number. */
    dlc_status (*synchronize)(dlc_solver *solver, int64_t iteration);

    /* Optional. Called right after synchronize, on all ranks with the same values:
     * takes over the settings that may change (DLC_OPT_LIVE). An error leaves
     * everything as it was. `settings` are valid until destroy, as the earlier ones
     * are. */
    dlc_status (*configure)(dlc_solver *solver, const dlc_settings *settings);

    /* Optional. Fills in `stats`, whose size the caller has set. */
    dlc_status (*stats)(dlc_solver *solver, dlc_solver_stats *stats);
} dlc_solver_ops;

#ifdef __cplusplus
}
#endif
#endif
