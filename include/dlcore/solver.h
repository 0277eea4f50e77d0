/* Solvers: how gradients become weights, and in what order they are exchanged.
 *
 * Weights and gradients are one arena each, float32, cut into *segments* (one a
 * parameter tensor) in the order in which backward finishes them. The exchange
 * sees the gradient arena as consecutive *buckets*. The core calls `ready` as
 * soon as backward has filled a bucket; what to do with it is the solver's
 * business. Gradients come weighted: their sum over the ranks is the gradient of the
 * mean loss over the samples of all ranks.
 *
 * Threads: every call comes from the train thread.
 */
#ifndef DLCORE_SOLVER_H
#define DLCORE_SOLVER_H

#include <dlcore/transport.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dlc_solver dlc_solver; /* the plugin's own */

#define DLC_MAX_SLOTS 4

/* Capability bits of a solver feature. */
enum {
    /* Every rank has the same weights after every iteration. */
    DLC_SOLVER_SYNCHRONOUS = 1u << 0,
};

/* One parameter tensor in the arenas. */
typedef struct dlc_segment {
    uint32_t size;
    const char *name; /* "conv1.weight" */
    size_t offset;    /* in elements */
    size_t count;
    double rate, decay; /* multipliers */
} dlc_segment;

/* The exchange, as a solver sees it. Bucket b of the gradient arena is
 * [bucket_begin[b], bucket_begin[b + 1]). With one rank all calls succeed at
 * once and change nothing. */
typedef struct dlc_exchange {
    uint32_t size;
    void *context; /* first argument of the calls */
    int32_t rank, ranks;
    int32_t buckets;
    const size_t *bucket_begin; /* buckets + 1 elements */
    /* Begin to sum bucket b over all ranks, in place, once what the queue has to do now
     * is done. Non-blocking; every rank starts the same buckets in the same order. */
    dlc_status (*start)(void *context, int32_t bucket);
    /* Until that sum is there for what the queue does next. */
    dlc_status (*wait)(void *context, int32_t bucket);

    /* Sharded updates (dlc_solver_needs.shards): of bucket b only the elements
     * [own_begin[b], own_end[b]) are summed here, and only they are this rank's to
     * update; the others' weights and state slots are the others' business. When it has
     * updated a bucket the solver calls `spread`, which begins to give these weights to
     * everybody; and `settle` at the end of finish, which returns when all weights are
     * there. NULL: every rank has every sum and updates everything. */
    const size_t *own_begin, *own_end; /* buckets elements each */
    dlc_status (*spread)(void *context, int32_t bucket);
    dlc_status (*settle)(void *context);

    /* With these, or NULL: where the ranks' memory allows it. In place of start, wait,
     * momentum and spread of any bucket but the last: begins to sum what is this rank's
     * own of bucket b, does these steps with it (in rising order), and gives the
     * weights to everybody, all in one pass over memory. Gradients are undefined
     * afterwards. Non-blocking, and as start in all else; `steps` and what they point
     * to stay as they are until settle returns. */
    dlc_status (*step)(void *context, int32_t bucket, const dlc_weight_step *steps,
                       int32_t count);
} dlc_exchange;

/* Messages between the ranks, for a solver that asks for them (dlc_solver_needs.mail):
 * over an endpoint of its own, so the exchange and the core's collectives go on beside
 * it. One thread at a time calls, which need not be the train thread; from create to
 * destroy. Tags, orders and buffers as in dlc_transport_ops; a rank does not write to
 * itself. */
typedef struct dlc_mail {
    uint32_t size;
    void *context; /* first argument of the calls */
    int32_t rank, ranks;
    const int32_t *node; /* of each rank; ranks with the same number share a machine */
    dlc_status (*send)(void *context, int32_t peer, dlc_tag tag, const void *buffer,
                       size_t bytes, dlc_request **request);
    dlc_status (*recv)(void *context, int32_t peer, dlc_tag tag, void *buffer,
                       size_t bytes, dlc_request **request);
    /* Moves things on; a request that is done is released. */
    dlc_status (*test)(void *context, dlc_request *request, int *done);
    /* Until one of `count` requests (NULLs are passed over) is done, which is released,
     * or `seconds` are over: *which is its index, or -1. Sleeps; fails within 100 ms
     * when the job ends. */
    dlc_status (*wait_any)(void *context, dlc_request *const *requests, int32_t count,
                           double seconds, int32_t *which);
    /* DLC_OK, or what to return at once because the job is ending. Cheap; any thread.
     */
    dlc_status (*check)(void *context);
    /* The wait_any under way, or else the next one, returns soon, with *which -1 if no
     * request is done. Any thread. */
    void (*wake)(void *context);
    /* Gives up all requests that are under way, so that their buffers may go. The last
     * call; of who destroys a solver that has some. */
    void (*give_up)(void *context);
} dlc_mail;

/* What a solver that is not DLC_SOLVER_SYNCHRONOUS has seen on this rank since create.
 * A read at clock c (of the weights that iteration c computes with) is n clocks stale
 * when of some rank the updates of c-1 .. c-n were missing. */
enum { DLC_STALENESS_BINS = 16 };

typedef struct dlc_solver_stats {
    uint32_t size;
    double waited; /* seconds that iterations stood still for other ranks */
    int64_t reads;
    int64_t staleness[DLC_STALENESS_BINS]; /* reads by staleness; the last: and more */
    int32_t slowest; /* the rank that it waited for longest, and how long; -1: none */
    double slowest_waited;
} dlc_solver_stats;

/* What a solver needs, from its settings alone. */
typedef struct dlc_solver_needs {
    uint32_t size;
    int32_t slots; /* state arenas, each laid out as the weights */
    const char *slot_name[DLC_MAX_SLOTS];
    uint32_t slot_saved;   /* bit i: slot i belongs in a checkpoint */
    int32_t micro_batches; /* forward+backward passes an iteration, >= 1 */
    int32_t shards;        /* 1: it can work with sharded updates (dlc_exchange), its
                              slots too; comes as 0 */
    int32_t late;          /* 1: it has `update` and these settings allow it; comes
                              as 0 */
    int32_t queued;        /* 1: with these settings all that it does is work given to
                              the queue, the same at every iteration but for what
                              rate_at and loss_scale point to; comes as 0 */
    int32_t mail;          /* 1: it writes to the other ranks itself
                              (dlc_solver_args.mail); comes as 0 */
    int32_t servers; /* the last so many ranks compute nothing: they have no samples
                        and get no `ready`, but finish (or update, of all buckets)
                        at every iteration as the others; comes as 0 */
    int64_t loose;   /* 1: with these settings a rank may be ahead of others. Then the
                        batch is shared out by what is seen of their speeds, unless
                        [parallel] batch_split says otherwise; comes as 0 */
} dlc_solver_needs;

/* How the iterations of a run that was resumed with another batch or length count in
 * its learning-rate schedule, so that the rate goes on from where it was. Iteration i
 * counts as from + (i - begin) * step, in iterations of the batch that the run began
 * with; in a schedule that ends with the run (and so depends on max_iterations) as
 * from_to_end + (i - begin) * step_to_end, so that what is left of the schedule fits
 * what is left of the run. */
typedef struct dlc_rate_schedule {
    int64_t max_iterations,
        epoch_iterations; /* as the run began: what to reckon with */
    int64_t begin;        /* the iteration that it was resumed at */
    double from, step;
    double from_to_end, step_to_end;
} dlc_rate_schedule;

typedef struct dlc_solver_args {
    uint32_t size;
    const dlc_settings *settings; /* of the feature's option table */
    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_queue *queue;
    size_t count; /* elements of each arena; the last
                     `tail` of them are the core's own: exchange
                     them, never update them */
    size_t tail;
    float *weights;
    float *gradients;
    float *slots[DLC_MAX_SLOTS]; /* zeroed, or as the checkpoint had them */
    int32_t segments;
    const dlc_segment *segment; /* walk with DLC_NEXT */
    const dlc_exchange *exchange;
    int64_t max_iterations;   /* of the whole job; -1: not known */
    int64_t epoch_iterations; /* iterations an epoch takes (at least 1) */
    /* In device memory, NULL where there is no need. What `rate` answers for the
     * iteration at work, to be used instead of it; and what gradients come multiplied
     * with: once all are summed they go through adapt_scale, before any weight is
     * updated, and dlc_momentum gets it. Then there are neither shards nor `update`. */
    const float *rate_at;
    dlc_loss_scale *loss_scale;
    const dlc_mail *mail;  /* NULL with one rank, and where it was not asked for */
    int64_t iteration;     /* that comes first; not 0 in a job that was resumed */
    const int64_t *shares; /* samples of each rank of a batch of the job; NULL: alike */
    const dlc_rate_schedule *schedule; /* during create; NULL: iterations count as what
                                          they are */
} dlc_solver_args;

typedef struct dlc_solver_ops {
    uint32_t size;

    /* `needs` comes with its size set, slots 0 and micro_batches 1. */
    dlc_status (*needs)(const dlc_settings *settings, dlc_solver_needs *needs);

    dlc_status (*create)(const dlc_solver_args *args, dlc_solver **solver);
    void (*destroy)(dlc_solver *solver); /* NULL allowed */

    /* Learning rate in force at an iteration (0-based). */
    double (*rate)(dlc_solver *solver, int64_t iteration);

    /* Bucket `bucket` of micro-batch `micro` is filled. Buckets come in order
     * 0, 1, ... once per micro-batch. */
    dlc_status (*ready)(dlc_solver *solver, int64_t iteration, int32_t micro,
                        int32_t bucket);
    /* All buckets of all micro-batches were ready; when it returns the weights are
     * those of iteration + 1, and the tail of the gradient arena is summed. */
    dlc_status (*finish)(dlc_solver *solver, int64_t iteration);

    /* Optional: state beyond the slots (clocks, counters), as bytes. save, of rank 0,
     * with `blob` NULL tells how many. load comes right behind create, on all ranks. */
    dlc_status (*save)(dlc_solver *solver, void *blob, size_t *bytes);
    dlc_status (*load)(dlc_solver *solver, const void *blob, size_t bytes);

    /* Optional, in place of finish: the weights of one bucket. So the next forward may
     * begin before all sums are there. Each bucket once, in any order, each before
     * anything reads its weights; without shards. */
    dlc_status (*update)(dlc_solver *solver, int64_t iteration, int32_t bucket);

    /* From here on: of a solver that is not DLC_SOLVER_SYNCHRONOUS.
     *
     * Its ranks need not be in the same iteration, and finish (or update) leaves the
     * weights that the rank computes with next. Iterations are counted alike on all
     * ranks: each does every one of them. The tail of the gradient arena, which each
     * rank fills before the last bucket is ready (a server: before finish), holds
     * behind finish (or update of the last bucket) in its first word the sum of what
     * the ranks gave last. Another word that a rank makes positive becomes positive on
     * all ranks in one and the same iteration, which may be a later one; once. */

    /* All ranks together, when each has done `iteration` iterations (0-based, so this
     * is the number of the next): all updates are applied, all ranks have the same
     * weights, and in slots that are saved what the job as a whole has there. Before
     * each test and checkpoint and at the end; not twice for one number. */
    dlc_status (*meet)(dlc_solver *solver, int64_t iteration);
    /* Right behind meet, on all ranks with the same values: takes what has changed of
     * settings that may (staleness); an error leaves all as it was. `settings` stay
     * until destroy, as those before do. */
    dlc_status (*configure)(dlc_solver *solver, const dlc_settings *settings);
    /* `stats` comes with its size set. */
    dlc_status (*stats)(dlc_solver *solver, dlc_solver_stats *stats);

    /* Optional, for any solver: looks at the learning rates of a job of `iterations`
     * (at least 1), from the settings alone, which `needs` has found sound.
     * DLC_ERR_CONFIG with a sentence: nothing can be learnt so, as with a rate that is
     * 0 throughout. What is merely odd is a sentence in `warning` (`bytes` long, comes
     * empty). Sentences may begin with dlc_host.where. */
    dlc_status (*check_schedule)(const dlc_settings *settings, int64_t iterations,
                                 int64_t epoch_iterations, char *warning, size_t bytes);
} dlc_solver_ops;

#ifdef __cplusplus
}
#endif
#endif
