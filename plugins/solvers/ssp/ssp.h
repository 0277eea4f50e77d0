/* Bounded staleness: data parallelism whose ranks need not be in step.
 *
 * The weights are shared out: every bucket of the arenas is cut into slices, one an
 * *owner* (every rank, its slice as large as its share of the samples, or the last
 * `servers` ranks, which then compute nothing), and what an owner has of its slices is
 * what counts. A *worker* computes with a copy. Of each bucket that backward has filled
 * it *pushes* what it would change to the owners, and each push *asks* for an answer:
 * the weights, once the updates are in that the worker's next iteration must see. That
 * is the rule (Ho et al., "More effective
 * distributed ML via a stale synchronous parallel parameter server", NIPS 2013): a read
 * at clock c, of the weights that iteration c computes with, with staleness s waits
 * until the updates of all workers through clock c-1-s are in; of its own through c-1.
 * The weights come back while the worker computes (Cui et al., "Exploiting bounded
 * staleness to speed up big data analytics", USENIX ATC 2014), and it waits for them
 * only where those that it has are too old for the rule.
 *
 * With s = 0 gradients are pushed; the owner sums those of one clock in the SDK's one
 * order and makes the momentum step: sgd's weights to the bit. With s > 0 each worker
 * has a velocity of its own for its share of the gradient, and pushes steps, which
 * owners apply as they come: the recursion is linear, so the sum of these velocities is
 * the velocity of the job. A worker has done its own step by then. Workers of a *group*
 * are one worker to the others: their steps are added together.
 *
 * Two threads: the train thread, which the core calls on, and the mail thread, the
 * only one that sends and receives. They hand each other orders and answers under one
 * lock. What an owner has is the mail thread's alone.
 */
#ifndef DLC_SSP_H
#define DLC_SSP_H

#include <pthread.h>
#include <stdio.h>

#include <dlcore/solver.h>

#include "../shared/policy.h"
#include "../shared/stretches.h"

extern const dlc_host *host;

enum { SLOT_MOMENTUM, SLOT_SUM, SLOTS };
enum { WORDS = 16 }; /* of the tail, at most */

/* ---- What is sent ------------------------------------------------------------ */

typedef enum letter_kind {
    /* Worker to owner. A push has the slice behind it. */
    PUSH_GRADIENT = 1,
    PUSH_STEP,
    PUSH_VELOCITY,
    ASK_WEIGHTS, /* as a push does, without one */
    ASK_VELOCITY,
    /* Owner to whoever asked, with the slice behind it. */
    ANSWER,
    /* About words of the tail: see agree.c. */
    WISH,
    FREEZE,
    FROZEN,
    RELEASE,
    /* The end of a meeting. */
    ARRIVED,
    LEAVE,
} letter_kind;

/* Every message begins with one; `in` (one a worker) follows it, so that all are of one
 * size. */
typedef struct letter {
    uint32_t kind;
    int32_t bucket;
    int64_t clock;       /* pushes: of the update; else an iteration */
    int64_t own, others; /* the answer waits until the updates of the asker's group, and
                            of all other workers, are in through these clocks */
    uint32_t words;      /* of the tail, bit by bit */
    float loss;          /* push of the last bucket: the worker's; answer: the sum */
    int32_t last;        /* answer: whose update it waited for; -1: for nobody's */
    int32_t unused;
} letter;

/* Answer: through which clock each worker's updates are in. */
static inline int64_t *letter_in(letter *one) {
    return (int64_t *)(void *)(one + 1);
}

/* ---- What the threads have --------------------------------------------------- */

typedef struct span {
    size_t begin, count;
} span;

/* One owner's slice of one bucket, as this rank sees it. The train thread waits for it
 * and takes it over; all under the lock, but for `coming`. */
typedef struct view {
    span at;
    int64_t asked, answered; /* how often */
    int fresh;               /* the newest answer in `pulled` was not yet taken */
    int busy;                /* the train thread is taking it */
    int sending;             /* my push is under way */
    int late;                /* an answer waits until it is not busy */
    int64_t *in, *have;      /* what `pulled` and the weights contain, one a worker */
    int32_t last;            /* whose update the newest answer waited for, or -1 */
    letter *coming;          /* the answer whose slice is under way */
} view;

/* What the train thread may wait for: of a view, for an iteration. */
typedef int condition(const dlc_solver *solver, const view *of, int64_t iteration);

/* What an owner has of one rank for one of its slices. */
typedef struct cell {
    enum { CELL_EMPTY, CELL_BLOCKED, CELL_COMING, CELL_FULL } state;
    letter push;       /* that is coming or there */
    const float *from; /* where it lies */
    float
        *data; /* room for it, and for the answer: whoever has its answer pushes next */
    int sending;   /* the answer has not left yet */
    int64_t clock; /* through which this worker's updates are in */
    int asks;      /* it waits for an answer */
    letter ask;
    int parked; /* it could not be given at once */
    uint64_t since;
} cell;

/* What an owner has of one bucket. */
typedef struct shard {
    span at;
    size_t offset;          /* in `master` and `velocity` */
    int64_t velocity_clock; /* meeting at which the velocities were last summed */
    int32_t last;           /* the worker whose update came last */
    cell *cell;             /* one a rank */
} shard;

/* A request under way, and what to do when it is done. */
typedef struct errand {
    enum { GOT_LETTER, SENT_LETTER, SENT_PUSH, SENT_ANSWER, GOT_PUSH, GOT_ANSWER } what;
    int32_t peer; /* rank; SENT_PUSH, GOT_ANSWER: owner's number */
    int32_t bucket;
    letter *letter;
} errand;

/* Words that are positive in an iteration that this rank has not ended yet. */
typedef struct due {
    struct due *next;
    int64_t iteration;
    uint32_t words;
} due;

/* How the words of the tail become the same everywhere: agree.c. */
typedef struct agreement {
    int64_t ended;       /* iteration that ended last on this rank */
    int frozen;          /* the one in progress may not end */
    uint32_t pending;    /* words that are being agreed on */
    uint32_t mine;       /* of these: those that this rank wished for, too */
    uint32_t wish;       /* for the mail thread to tell rank 0 */
    due *due;            /* what was agreed on */
    int64_t echo[WORDS]; /* iteration in which this rank's wish is one that was met */
    /* Rank 0's mail thread alone. */
    uint32_t round, queued; /* words that are asked about; that come next */
    char *replied;
    int32_t replies;
    int64_t highest;
} agreement;

struct dlc_solver {
    const dlc_device_ops *ops;
    dlc_device *device;
    const dlc_exchange *exchange;
    const dlc_mail *mail;
    float *weights, *gradients, *velocity, *sum;
    size_t trained, tail; /* elements before the tail, and of it */
    int32_t buckets;

    rate_policy policy;
    double momentum, weight_decay;
    int nesterov;
    int32_t micro_batches;
    int64_t staleness; /* INT64_MAX: inf. Changes between iterations */
    stretches pieces;  /* of whole buckets */

    int32_t me, ranks, workers, owners;
    int32_t first_owner; /* rank of owner 0 */
    int64_t *border; /* of the owners' slices: owner o has border[o] ... border[o + 1]
                        of border[owners] parts of each bucket */
    int32_t *group;  /* of each worker */
    int alone;       /* one rank: nothing is sent */
    int64_t first;   /* iteration that comes first */

    /* The train thread's. */
    int whole;     /* slot 0 has the velocity of the whole job, on every rank */
    float *outbox; /* Nesterov: steps that were pushed last, with their sign */
    int64_t worst; /* the stalest view of the iteration that is being taken */
    int32_t taken; /* buckets of it */

    /* Both threads', under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t moved; /* for the train thread: what it waits for ... */
    condition *holds;     /* ... holds; NULL: it doesn't wait */
    const view *of;
    int64_t iteration;
    view *views;      /* bucket after bucket, one an owner */
    float *pulled;    /* weights as they come, laid out as the arena */
    letter *order;    /* of each bucket: what goes to all its owners */
    int32_t *ordered; /* buckets with a new one */
    int32_t orders;
    int late;        /* some view is, or was */
    int64_t arrived; /* meeting that this rank has come to, and has told */
    int64_t told;
    int64_t left;   /* meeting that everybody has come to */
    int64_t served; /* all updates through it are in here */
    float loss;     /* the sum of what the workers gave last */
    agreement agree;
    dlc_solver_stats stats;
    double *waited_for; /* each worker, seconds */
    int quit;
    dlc_status status; /* why the mail thread ended */
    char text[256];

    /* The mail thread's. */
    pthread_t thread;
    int has_thread;
    int32_t *taken_orders;  /* room for `ordered` */
    int32_t owner;          /* my number among the owners, or -1 */
    float *master, *moment; /* of my slices: weights, velocity */
    float *scratch;         /* largest slice, one a node */
    stretches own_pieces;
    shard *shards;   /* one a bucket; NULL: no owner */
    float *given;    /* what each worker gave last as its loss */
    int32_t *member; /* workers, node after node */
    int32_t *first_member, nodes;
    const float **source; /* room for sums: of slices, of losses */
    float *addend;
    int64_t *answer_in; /* room for an answer's clocks */
    size_t letter_bytes;
    letter **inbox; /* one a rank */
    dlc_request **request;
    errand *errands;
    int32_t under_way, room;
    int32_t come; /* rank 0: ranks at the meeting */

    FILE *trace;
    uint64_t opened;
    int has_lock;
};

typedef struct dlc_solver ssp;

static inline view *view_at(ssp *s, int32_t bucket, int32_t owner) {
    return &s->views[(size_t)bucket * (size_t)s->owners + (size_t)owner];
}

/* The last bucket has the tail: its owners hear of it also where their slice is empty.
 */
static inline int is_used(const ssp *s, int32_t bucket, const span *at) {
    return at->count > 0 || bucket == s->buckets - 1;
}

static inline int is_worker(const ssp *s, int32_t rank) {
    return rank < s->workers;
}

/* Of what is trained of a bucket: all; an even part, one a worker; an owner's slice. */
span bucket_of(const ssp *s, int32_t bucket);
span part_of(const ssp *s, int32_t bucket, int32_t worker);
span slice_of(const ssp *s, int32_t bucket, int32_t owner);

/* create.c */
dlc_status ssp_create(const dlc_solver_args *args, dlc_solver **solver);
void ssp_destroy(dlc_solver *solver);
/* Text "inf" or a whole number, which the options' row lets through as a number. */
dlc_status staleness_of(const dlc_settings *settings, int64_t *staleness);

/* worker.c: the train thread, in an iteration. */
dlc_status worker_ready(ssp *s, int64_t iteration, int32_t micro, int32_t bucket);
dlc_status worker_update(ssp *s, int64_t iteration, int32_t bucket);
dlc_momentum worker_step(const ssp *s, int64_t iteration);
/* Gives every worker its part of the velocity of the whole job. */
dlc_status worker_take_up(ssp *s);

/* meet.c: the train thread, between iterations. */
dlc_status meet_all(ssp *s, int64_t iteration);
/* The mail thread's part of it. */
dlc_status meet_arrived(ssp *s, int64_t iteration);
dlc_status meet_letter(ssp *s, const letter *one);

/* views.c: what goes to owners and comes back. The train thread: */
void views_order(ssp *s, const letter *order);    /* with the lock held */
dlc_status views_settled(ssp *s, int32_t bucket); /* until nothing of it is under way */
dlc_status views_await(ssp *s, condition *holds, const view *of,
                       int64_t iteration); /* with the lock held */
/* With the lock held: it stood still for the answer that is there now. */
void views_waited(ssp *s, const view *one, uint64_t since);
dlc_status views_broken(ssp *s);       /* why views_await failed */
void views_release(ssp *s, view *one); /* with the lock held: it is not busy any more */
dlc_status views_copy(ssp *s, const view *one, float *to); /* out of `pulled` */
/* ... and the mail thread: */
dlc_status views_send(ssp *s, int32_t bucket); /* what was ordered, to all owners */
dlc_status views_letter(ssp *s, const letter *one, int32_t owner);
dlc_status views_late(ssp *s); /* those that were busy */
int views_claim(ssp *s, view *one);
void views_unlock(ssp *s); /* wakes the train thread if it may go on now */
dlc_status views_arrived(ssp *s, int32_t bucket, int32_t owner);
void views_sent(ssp *s, int32_t bucket, int32_t owner);

/* owner.c: the mail thread, as an owner. */
dlc_status owner_letter(ssp *s, const letter *one, int32_t from);
dlc_status owner_own(ssp *s, const letter *one, const float *from); /* this rank's */
dlc_status owner_pushed(ssp *s, int32_t bucket, int32_t from);
dlc_status owner_sent(ssp *s, int32_t bucket, int32_t to);
dlc_status owner_answers(ssp *s, int32_t bucket);

/* agree.c: words of the tail. The train thread: */
dlc_status agree_words(ssp *s, int64_t iteration, float *loss); /* reads the tail */
dlc_status agree_end(ssp *s, int64_t iteration);                /* writes it */
void agree_close(ssp *s);
/* ... and the mail thread: */
dlc_status agree_letter(ssp *s, const letter *one, int32_t from);
dlc_status agree_wish(ssp *s, uint32_t words);

/* post.c: the mail thread. */
dlc_status post_start(ssp *s);
void post_stop(ssp *s);
void post_wake(const ssp *s); /* any thread */
dlc_status post_letter(ssp *s, int32_t to, const letter *one, const int64_t *in);
dlc_status post_slice(ssp *s, int32_t to, const float *from, size_t count,
                      const errand *then);
dlc_status post_expect(ssp *s, int32_t from, float *to, size_t count,
                       const errand *then);
/* For errors that are found on the mail thread: keeps the sentence for the other. */
dlc_status post_fail(ssp *s, dlc_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* trace.c: nothing where there is none. */
dlc_status trace_open(ssp *s, const char *path);
void trace_close(ssp *s);
void trace_line(ssp *s, const char *what, int32_t bucket, int64_t a, int64_t b,
                int64_t c, const int64_t *in);

#endif
