/* Consistency model ssp: bounded staleness (stale synchronous parallel), a parameter
 * server inside the job, for any solver. Included by all files of the plugin.
 *
 * The weights are partitioned: every bucket of the arenas is cut into slices, one for
 * each *owner* (every rank, its slice in proportion to its part of the batch, or the
 * last `servers` ranks, which then compute nothing), and the owner's copy of a slice is
 * the authoritative one. A *worker* computes with a copy of all weights. For each
 * bucket that backward has filled it *pushes* its update to the owners, and each push
 * also requests an *answer*: the weights, as soon as they contain the updates that the
 * worker's next iteration must see. The rule (Ho et al., "More effective distributed ML
 * via a stale synchronous parallel parameter server", NIPS 2013): with staleness s, a
 * read at clock c, which is of the weights that iteration c computes with, waits for
 * the updates of all workers through clock c-1-s, and for the worker's own through c-1.
 * Weights arrive while the worker computes (Cui et al., "Exploiting bounded staleness
 * to speed up big data analytics", USENIX ATC 2014); it waits only where those that it
 * has are too old for the rule.
 *
 * With s = 0 workers push gradients; the owner reduces those of one clock in the SDK's
 * fixed order and applies the solver's rule, with its slices of the slots: the weights
 * are bitwise identical to those of synchronous training. With s > 0 each worker
 * applies the rule to its own gradients, with slots of its own, and pushes the step
 * that results, times its share of the batch; owners add steps in the order of arrival
 * (steps.c). A worker applies its own step at once. The workers of a *group* act as one
 * worker towards the others: their steps are added together.
 *
 * Two threads: the training thread, which calls the model, and the communication
 * thread, the only one that sends and receives. They exchange requests and answers
 * under one lock. An owner's data belongs to its communication thread alone.
 *
 * Weights, updates and slots stay in memory of the device; device.c says why, and how
 * the threads work with a device that has queues. */
#ifndef DLC_SSP_H
#define DLC_SSP_H

#include <pthread.h>
#include <stdio.h>

#include <dlcore/consistency.h>

extern const dlc_host *host;

/* The training thread may end an iteration whose words the queue has not read yet, but
 * not the one after it (worker_ready waits), so two slots of `words_out` suffice. */
enum { MAX_CONTROL_WORDS = 16, WORD_SLOTS = 2 };

/* The control words that are sums: the loss, and those after the votes. */
enum { CONTROL_SUMS = MAX_CONTROL_WORDS - DLC_CONTROL_VOTES };

typedef struct control_sums {
    float of[CONTROL_SUMS];
} control_sums;

/* The place of a sum among the control words. */
static inline size_t control_sum_at(int sum) {
    return sum ? (size_t)(sum + DLC_CONTROL_VOTES) : 0;
}

/* ---- Messages ---------------------------------------------------------------- */

typedef enum message_kind {
    /* Worker to owner. A push is followed by its slice. */
    PUSH_GRADIENT = 1,
    PUSH_STEP,
    PUSH_SLOT,
    REQUEST_WEIGHTS, /* requests an answer as a push does, without pushing */
    REQUEST_SLOT,
    /* Owner to worker, followed by the slice. */
    ANSWER,
    /* Control words: agree.c. */
    VOTE,
    FREEZE,
    FROZEN,
    RELEASE,
    /* The barrier at the end of a synchronization: synchronize.c. */
    BARRIER_ENTER,
    BARRIER_LEAVE,
} message_kind;

/* Begins every message. One clock for each worker follows it (header_clocks), so all
 * headers have one size. */
typedef struct header {
    uint32_t kind;
    int32_t bucket;
    int64_t clock;       /* pushes: of the update; others: an iteration */
    int64_t own, others; /* the answer must contain the updates of the sender's group,
                            and of all other workers, through these clocks */
    uint32_t words;      /* control words, one bit each */
    control_sums sums;   /* push of the last bucket: the worker's; answer: of all */
    int32_t last;        /* answer: the worker whose update it waited for; -1: none */
    int32_t slot;        /* PUSH_SLOT and REQUEST_SLOT: number of the solver's slot */
} header;

/* Is it about a slot of the solver, and not about weights or updates? */
static inline int is_about_slot(const header *one) {
    return one->kind == PUSH_SLOT || one->kind == REQUEST_SLOT;
}

/* In an answer: the clock through which each worker's updates are in. */
static inline int64_t *header_clocks(header *one) {
    return (int64_t *)(void *)(one + 1);
}

/* ---- State of the two threads ------------------------------------------------ */

typedef struct span {
    size_t begin, count;
} span;

/* One owner's slice of one bucket, as this rank knows it. Filled by the communication
 * thread, read by the training thread; under the lock, except for `incoming`. */
typedef struct slice {
    span at;
    int64_t requested, answered; /* requests sent, answers received */
    int fresh;            /* the newest answer in `pulled` has not been read yet */
    int busy;             /* the training thread is reading it */
    int sending;          /* this rank's push is in flight */
    int deferred;         /* an answer waits until `busy` is 0 */
    int64_t *clocks;      /* of all workers, in `pulled` */
    int64_t *held_clocks; /* of all workers, in the weights */
    int32_t last; /* the worker whose update the newest answer waited for; -1: none */
    header *incoming; /* header of the answer whose slice is in flight */
    dlc_event *read;  /* the queue has read `pulled`; NULL without queues */
} slice;

/* A condition that the training thread waits for: of one slice, for an iteration. */
typedef int condition(const dlc_consistency *model, const slice *of, int64_t iteration);

/* What an owner knows of one rank, for one of its slices. */
typedef struct peer_state {
    enum { PEER_IDLE, PEER_BLOCKED, PEER_RECEIVING, PEER_COMPLETE } state;
    header push;       /* header of the push that is being received or complete */
    const float *from; /* the slice of the push */
    float *data;   /* buffer for the push, and for the answer: a rank pushes only after
                      its last answer */
    int sending;   /* the answer is in flight */
    int64_t clock; /* the worker's updates through this clock are applied */
    int waits;     /* the rank waits for an answer */
    header request;
    int delayed;   /* the answer could not be sent at once */
    int is_copied; /* the answer is in `data`, or on its way there */
    uint64_t since;
} peer_state;

/* An owner's part of one bucket. */
typedef struct shard {
    span at;
    size_t offset;                     /* in `owned_weights` and `owned_slots` */
    int64_t slot_clock[DLC_MAX_SLOTS]; /* iteration of the last synchronization that
                                          added the workers' slots */
    int32_t last;                      /* the worker whose update was applied last */
    peer_state *peers;                 /* one for each rank */
} shard;

/* A pending operation: what to do when its request completes. */
typedef struct pending_op {
    enum {
        HEADER_RECEIVED,
        HEADER_SENT,
        PUSH_SENT,
        ANSWER_SENT,
        PUSH_RECEIVED,
        ANSWER_RECEIVED
    } what;
    int32_t peer; /* rank; for PUSH_SENT and ANSWER_RECEIVED: number of the owner */
    int32_t bucket;
    header *header;
} pending_op;

/* Control words that become positive in an iteration that this rank has not ended yet.
 */
typedef struct scheduled_words {
    struct scheduled_words *next;
    int64_t iteration;
    uint32_t words;
} scheduled_words;

/* How control words become equal on all ranks: see agree.c. */
typedef struct agreement {
    int64_t ended;              /* the last iteration that this rank has ended */
    int frozen;                 /* the iteration in progress may not end */
    uint32_t pending;           /* words that a vote is in progress about */
    uint32_t voted;             /* those of them that this rank has voted for itself */
    uint32_t vote;              /* for the communication thread to send to rank 0 */
    scheduled_words *scheduled; /* the results of past rounds */
    int64_t duplicate_at[MAX_CONTROL_WORDS]; /* iteration in which a vote of this rank
                                                is a late duplicate */
    int64_t effective_at[MAX_CONTROL_WORDS]; /* iteration in which the word last became
                                                positive */
    /* On rank 0, for its communication thread. */
    uint32_t round, queued; /* words of the round in progress, and of the next */
    char *replied;
    int32_t replies;
    int64_t highest;
} agreement;

/* Memory of the device: device.c. */
typedef struct block {
    struct block *next;
    dlc_memory memory;
} block;

struct dlc_consistency {
    const dlc_device_ops *ops;
    dlc_device *device;
    dlc_queue *queue;     /* of the training thread; NULL: work is done on return */
    dlc_queue *own_queue; /* of the communication thread */
    dlc_event **complete; /* for each bucket: what it pushes is there; NULL without
                             queues */
    block *blocks;        /* all memory of the device; under the lock */
    float *words_in;      /* host memory: the control words pushed last */
    float *words_out;     /* host memory: those of the last WORD_SLOTS iterations */
    const dlc_exchange *exchange;
    const dlc_p2p_channel *p2p;
    const dlc_updater *updater;
    float *weights, *gradients, *slot[DLC_MAX_SLOTS];
    int32_t slots;
    size_t trained; /* elements before the control words */
    size_t control_words;
    int32_t buckets;

    int64_t staleness; /* INT64_MAX: inf. Changes only between iterations */
    double share;      /* of the batch, that this worker computes */
    double *shares;    /* those of all workers */

    int32_t me, ranks, workers, owners;
    int32_t first_owner; /* the rank that is owner 0 */
    int64_t *border; /* borders between the owners' slices: owner o has parts border[o]
                        to border[o + 1] of border[owners] of each bucket */
    int32_t *group;  /* of each worker */
    int alone;       /* a job of one rank: nothing is sent */
    int64_t first;   /* number of the job's first iteration */

    /* For the training thread. */
    float *steps; /* with staleness: the steps, or shares of a slot, pushed last */
    int64_t worst_staleness; /* the stalest slice of the iteration whose weights are
                                being read */
    int32_t buckets_read;    /* how many buckets of it were read */

    /* For both threads, under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* signalled for the training thread when `holds` is true */
    condition *holds;       /* NULL: it is not waiting */
    const slice *of;
    int64_t iteration;
    slice *slices;          /* one for each bucket and owner, by bucket */
    float *pulled;          /* weights received, laid out as the arena */
    header *message;        /* for each bucket: the request to all owners of it */
    int32_t *queued_bucket; /* buckets whose request has not been sent */
    int32_t queued_count;
    int has_deferred;        /* some slice is or was deferred */
    int64_t barrier_entered; /* barrier that this rank has entered, and has announced to
                                rank 0 */
    int64_t barrier_announced;
    int64_t barrier_passed; /* barrier that all ranks have entered */
    int64_t applied;   /* all workers' updates through this clock are applied here */
    control_sums sums; /* of all workers, as far as it is known here; see sum_words */
    int has_sums;      /* of this rank at least */
    agreement agree;
    dlc_consistency_stats stats;
    double *waited_for; /* seconds, for each worker */
    int quit;
    dlc_status status; /* why the communication thread ended */
    char text[256];

    /* For the communication thread. */
    pthread_t thread;
    int has_thread;
    int32_t *taken_bucket; /* its own copy of `queued_bucket` */
    int32_t owner;         /* this rank's number among the owners, or -1 */
    float *owned_weights, *owned_slot[DLC_MAX_SLOTS]; /* of the owned slices */
    float *scratch;      /* the largest owned slice, once for each node */
    shard *shards;       /* one for each bucket; NULL: this rank owns nothing */
    control_sums *given; /* what each worker gave last */
    int32_t heard;       /* workers that gave any; the sum of their shares */
    double heard_share;
    int32_t *member; /* the workers, node by node */
    int32_t *first_member, nodes;
    const float **source; /* temporary arrays for sums of slices and of words */
    float *word_scratch;
    int64_t *answer_clocks; /* temporary array for the clocks of an answer */
    size_t header_bytes;
    header *free_headers; /* host memory; each begins with a pointer to the next */
    header **inbox;       /* the next header from each rank */
    dlc_request **request;
    pending_op *pending;
    int32_t in_flight, capacity;
    int32_t barrier_count; /* rank 0: ranks that have entered the barrier */

    int polls; /* something waits for a queue, which wakes nobody up */

    FILE *trace;
    uint64_t opened;
    int has_lock;
};

typedef struct dlc_consistency ssp;

static inline slice *slice_at(ssp *s, int32_t bucket, int32_t owner) {
    return &s->slices[(size_t)bucket * (size_t)s->owners + (size_t)owner];
}

/* Is the slice in use? Owners of the last bucket, which has the control words, take
 * part even where their slice is empty. */
static inline int is_used(const ssp *s, int32_t bucket, const span *at) {
    return at->count > 0 || bucket == s->buckets - 1;
}

static inline int is_worker(const ssp *s, int32_t rank) {
    return rank < s->workers;
}

/* The trained elements of a bucket. */
span bucket_of(const ssp *s, int32_t bucket);

/* device.c. Allocate memory of the device, zeroed, which lives as long as the model;
 * not with the lock held. */
dlc_status device_floats(ssp *s, size_t count, float **floats);
void *device_host_memory(ssp *s, size_t bytes); /* NULL: there is none */
/* Opens queue and events; then allocates the control words. */
dlc_status device_open(ssp *s);
/* Waits for the queues, and releases everything. */
void device_close(ssp *s);
/* Records an event on the queue of the training thread; NULL is allowed. */
dlc_status device_record(const ssp *s, dlc_event *event);
/* *done = 1 if the work before the event is done, or if it is NULL. */
dlc_status device_is_done(const ssp *s, dlc_event *event, int *done);
/* Waits for the work of the communication thread. */
dlc_status device_finish(const ssp *s);

/* create.c: see dlc_consistency_ops. */
dlc_status ssp_create(const dlc_consistency_args *args, dlc_consistency **model);
void ssp_destroy(dlc_consistency *model);
/* Parses `staleness`: "inf" (INT64_MAX) or a whole number. DLC_ERR_CONFIG for a
 * fraction, which the option table accepts. */
dlc_status staleness_of(const dlc_settings *settings, int64_t *staleness);
/* The number of groups of so many workers. DLC_ERR_CONFIG if some would be empty. */
dlc_status groups_of(const dlc_settings *settings, int32_t workers, int64_t *groups);

/* steps.c: what a worker pushes with staleness; on the training thread. */
/* Makes room for steps, if this rank will make any and there is none. */
dlc_status steps_alloc(ssp *s, int64_t staleness);
/* Applies the rule to `weights`, those of `at`, with this rank's slots. */
dlc_status steps_update(ssp *s, int64_t iteration, span at, float grad_scale,
                        float *weights);
/* Takes the norms of the whole gradient, if the rule needs any. */
dlc_status steps_measure(ssp *s, int64_t iteration, float grad_scale);
/* Computes this worker's step of a bucket, and applies it to the weights here. */
dlc_status steps_make(ssp *s, int64_t iteration, int32_t bucket);
/* Replaces the steps by this worker's share of a slot of the job. */
dlc_status steps_share_slot(ssp *s, int32_t slot);

/* lockstep.c: staleness 0 with norms; see dlc_consistency_ops. */
int lockstep_is_used(const ssp *s);
dlc_status lockstep_ready(ssp *s, int32_t bucket);
dlc_status lockstep_finish(ssp *s, int64_t iteration);

/* worker.c: the training thread during an iteration; see dlc_consistency_ops. */
dlc_status worker_ready(ssp *s, int64_t iteration, int32_t bucket);
dlc_status worker_update(ssp *s, int64_t iteration, int32_t bucket);

/* synchronize.c: dlc_consistency_ops.synchronize, on the training thread. */
dlc_status ssp_synchronize(ssp *s, int64_t iteration);
/* On the communication thread: enters the barrier, and handles its messages. */
dlc_status barrier_enter(ssp *s, int64_t iteration);
dlc_status barrier_message(ssp *s, const header *one);

/* slices.c, training thread. Queues a request to all owners of its bucket, to be sent
 * when the work that is on the queue now is done; lock held. */
dlc_status slices_queue_request(ssp *s, const header *message);
/* Waits until no request or push of the bucket is in flight. */
dlc_status slices_wait_idle(ssp *s, int32_t bucket);
/* Waits until `holds` is true or the communication thread has failed; lock held. */
dlc_status slices_wait_until(ssp *s, condition *holds, const slice *of,
                             int64_t iteration);
/* Adds the time since `since` to the statistics, as time spent waiting for the answer
 * that is there now; lock held. */
void slices_note_wait(ssp *s, const slice *one, uint64_t since);
/* Returns the error that made slices_wait_until fail. */
dlc_status slices_error(ssp *s);
/* Ends `busy`; lock held. */
void slices_release(ssp *s, slice *one);
/* Copies the slice from `pulled` to the arena `to`, on the queue. */
dlc_status slices_copy(ssp *s, const slice *one, float *to);
/* slices.c, communication thread. Sends a bucket's request to all its owners. */
dlc_status slices_send(ssp *s, int32_t bucket);
dlc_status slices_answer_header(ssp *s, const header *one, int32_t owner);
/* Continues with slices that were busy and no longer are. */
dlc_status slices_resume_deferred(ssp *s);
/* Returns whether `pulled` may be overwritten; if not, the slice is now deferred. */
dlc_status slices_claim(ssp *s, slice *one, int *is_free);
/* Unlocks, and wakes the training thread up if its condition holds. */
void slices_unlock(ssp *s);
dlc_status slices_answer_received(ssp *s, int32_t bucket, int32_t owner);
void slices_push_sent(ssp *s, int32_t bucket, int32_t owner);

/* owner.c: the communication thread as an owner. Handle a header, this rank's own
 * request, a completed receive or send; answer what can be answered. */
dlc_status owner_header(ssp *s, const header *one, int32_t from);
dlc_status owner_own(ssp *s, const header *one, const float *from);
dlc_status owner_push_received(ssp *s, int32_t bucket, int32_t from);
dlc_status owner_answer_sent(ssp *s, int32_t bucket, int32_t to);
dlc_status owner_answer_all(ssp *s, int32_t bucket);

/* agree.c: control words. On the training thread: copy them before a push, on the
 * queue, and write the agreed ones when an iteration ends. */
dlc_status agree_copy_words(ssp *s);
dlc_status agree_end_iteration(ssp *s, int64_t iteration);
void agree_close(ssp *s);
/* The words of an iteration have been copied: notes this rank's votes, and returns its
 * sums. */
control_sums agree_read_words(ssp *s, int64_t iteration);
/* On the communication thread: handle a message; send a vote. */
dlc_status agree_message(ssp *s, const header *one, int32_t from);
dlc_status agree_vote(ssp *s, uint32_t words);

/* comm_thread.c: start and stop the communication thread; start operations on it. */
dlc_status comm_start(ssp *s);
void comm_stop(ssp *s);
void comm_wakeup(const ssp *s); /* any thread */
dlc_status comm_send_header(ssp *s, int32_t to, const header *one,
                            const int64_t *clocks);
dlc_status comm_send_slice(ssp *s, int32_t to, const float *from, size_t count,
                           const pending_op *op);
dlc_status comm_recv_slice(ssp *s, int32_t from, float *to, size_t count,
                           const pending_op *op);
/* For errors found on the communication thread: keeps the sentence for the training
 * thread. */
dlc_status comm_fail(ssp *s, dlc_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* trace.c: does nothing unless `trace` is set. */
dlc_status trace_open(ssp *s, const dlc_consistency_args *args);
void trace_close(ssp *s);
void trace_line(ssp *s, const char *what, int32_t bucket, int64_t a, int64_t b,
                int64_t c, const int64_t *clocks);

#endif
