/* The check of consistency models with two ranks: processes that share memory. Models
 * that send messages, or have parameter servers, are tested by training jobs alone. */
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "process.h"
#include "training_fixture.h"

/* No model that exchanges something every few iterations has just done that at the end.
 */
enum { RANKS = 2, STEPS = TRAINING_STEPS - 3, VOTE_AT = 7, NONE = -1 };
enum { QUEUE = TRAINING_BUCKETS };

/* Memory that both ranks share. */
typedef struct shared {
    atomic_uint arrived;   /* at barriers, ever */
    int32_t bucket[RANKS]; /* that they reduce */
    float data[RANKS][TRAINING_COUNT];
} shared;

/* A rank: the buckets that it has started and has not reduced yet. */
typedef struct rank {
    training_fixture f;
    shared *all;
    int32_t number, queue[QUEUE];
    unsigned started, reduced, barriers;
    int starts_words; /* the last bucket was started in this iteration */
    int has_words;    /* those of both ranks have arrived */
    float words;      /* the first control word that finish gave last */
} rank;

static void barrier(rank *r) {
    const struct timespec pause = {.tv_nsec = 20000};
    atomic_fetch_add(&r->all->arrived, 1);
    r->barriers++;
    while (atomic_load(&r->all->arrived) < RANKS * r->barriers)
        (void)nanosleep(&pause, NULL);
}

/* Gives the other rank these elements and gets its own. `bucket` NONE: after an
 * iteration. */
static const float *swap(rank *r, int32_t bucket, const float *mine, size_t count) {
    const shared *all = r->all;
    barrier(r); /* the other one has read the last ones */
    memcpy(r->all->data[r->number], mine, count * sizeof *mine);
    r->all->bucket[r->number] = bucket;
    barrier(r);
    if (all->bucket[0] != all->bucket[1])
        suite_fail(r->f.run, "the ranks do not reduce the same buckets in the same "
                             "order and iteration");
    return all->data[1 - r->number];
}

/* ---- The exchange ----------------------------------------------------------- */

static void check_bucket(const rank *r, int32_t bucket) {
    if (bucket < 0 || bucket >= TRAINING_BUCKETS)
        suite_fail(r->f.run, "it uses the exchange for bucket %d of %d", bucket,
                   TRAINING_BUCKETS);
}

static dlc_status start(void *context, int32_t bucket) {
    rank *r = context;
    check_bucket(r, bucket);
    for (unsigned i = r->reduced; i < r->started; i++)
        if (r->queue[i % QUEUE] == bucket)
            suite_fail(r->f.run, "it started bucket %d twice without a wait", bucket);
    r->queue[r->started++ % QUEUE] = bucket;
    r->starts_words |= bucket == TRAINING_BUCKETS - 1;
    return DLC_OK;
}

/* Reduces the bucket that was started first. */
static void reduce(rank *r) {
    int32_t bucket = r->queue[r->reduced++ % QUEUE];
    size_t begin = training_borders[bucket],
           count = training_borders[bucket + 1] - begin;
    const float *other = swap(r, bucket, r->f.gradients + begin, count);
    for (size_t i = 0; i < count; i++)
        r->f.gradients[begin + i] += other[i];
}

static dlc_status wait_for(void *context, int32_t bucket) {
    rank *r = context;
    unsigned i = r->reduced;
    check_bucket(r, bucket);
    while (i < r->started && r->queue[i % QUEUE] != bucket)
        i++;
    if (i < r->started)
        while (r->reduced <= i)
            reduce(r);
    return DLC_OK;
}

/* ---- A rank ----------------------------------------------------------------- */

/* Losses from which the iterations of both ranks can be told. */
enum { APART = 64 };

static float loss_of(int32_t number, int64_t iteration) {
    return (float)(iteration + 1) * (number ? APART : 1);
}

static int64_t iteration_of(int32_t number, float word) {
    return (number ? (int64_t)word / APART : (int64_t)word % APART) - 1;
}

/* Is it the sum of what both gave in some iterations, no older than those before? */
static int is_sum(const rank *r, int64_t iteration, float word) {
    int64_t of[RANKS];
    float sum = 0;
    for (int32_t i = 0; i < RANKS; i++) {
        of[i] = iteration_of(i, word);
        if (of[i] < 0 || of[i] > iteration ||
            (r->has_words && of[i] < iteration_of(i, r->words)))
            return 0;
        sum += loss_of(i, of[i]);
    }
    return sum == word;
}

/* The first control word is the sum of what both gave in this iteration. Without an
 * exchange it stays the last one, and before the first a rank stands for both. If ranks
 * may be in different iterations, so may be what they gave. */
static void check_loss(rank *r, int64_t iteration, float word) {
    float of_both = RANKS * loss_of(r->number, iteration);
    int is_right;
    if (r->f.needs.allows_skew)
        is_right = is_sum(r, iteration, word) || (!r->has_words && word == of_both);
    else if (r->starts_words)
        is_right = word == loss_of(0, iteration) + loss_of(1, iteration);
    else
        is_right = word == (r->has_words ? r->words : of_both);
    if (!is_right)
        suite_fail(r->f.run,
                   "after iteration %lld the first control word of rank %d is %g, not "
                   "the sum of what the ranks gave last",
                   (long long)iteration, r->number, (double)word);
    r->has_words |= is_sum(r, iteration, word);
    r->words = word;
}

/* The control words of an iteration: a loss, and the vote of rank 1 once. */
static void compare_words(rank *r, int64_t iteration, int *votes) {
    const float *words = r->f.gradients + TRAINING_COUNT - TRAINING_CONTROL_WORDS;
    int has_vote = words[1] > 0;
    const float *other = swap(r, NONE, words, TRAINING_CONTROL_WORDS);
    check_loss(r, iteration, words[0]);
    if (words[TRAINING_CONTROL_WORDS - 1] != 1 ||
        other[TRAINING_CONTROL_WORDS - 1] != 1)
        suite_fail(r->f.run, "the last control word, which is no vote, is not the sum "
                             "of what the ranks gave");
    if (has_vote != (other[1] > 0))
        suite_fail(r->f.run, "a control word is positive on one rank, not on both");
    *votes += has_vote;
}

/* Each rank has another goal. */
static void move_goal(training_fixture *f, float by) {
    for (size_t i = 0; i < TRAINING_COUNT; i++)
        f->goal[i] += by;
}

/* The weights of synchronous training with the mean of the goals, which a model with
 * local steps reaches on another way; a step that is lost or halved shows. */
static void compare_with_one(const rank *r) {
    enum { PIECE = 256 };
    training_fixture one;
    training_fixture_open(r->f.run, &one);
    training_fixture_use_synchronous(&one);
    move_goal(&one, (float)(RANKS - 1) / 2);
    suite_must(r->f.run, training_fixture_create(&one, 0), "create");
    float *start = dlc_alloc(TRAINING_COUNT, sizeof *start);
    if (!start)
        suite_skip(r->f.run, "out of memory");
    memcpy(start, one.weights, TRAINING_COUNT * sizeof *start);
    training_fixture_run(&one, 0, STEPS);
    for (size_t begin = 0; begin < TRAINING_COUNT; begin += PIECE) {
        double moved = 0, off = 0;
        for (size_t i = begin; i < begin + PIECE && i < TRAINING_COUNT; i++)
            if (training_fixture_is_trained(i)) {
                moved += pow((double)one.weights[i] - (double)start[i], 2);
                off += pow((double)one.weights[i] - (double)r->f.weights[i], 2);
            }
        if (off > 0.01 * moved)
            suite_fail(r->f.run,
                       "after %d iterations of two ranks, weights %zu to %zu differ "
                       "from synchronous training by %.0f %% of the way that they move",
                       STEPS, begin, begin + PIECE - 1, 100 * sqrt(off / moved));
    }
    dlc_free(start);
}

static void compare_weights(rank *r) {
    suite_must(r->f.run, r->f.ops->synchronize(r->f.model, STEPS), "synchronize");
    const float *other = swap(r, NONE, r->f.weights, TRAINING_COUNT);
    if (!suite_same(r->f.weights, other, TRAINING_COUNT))
        suite_fail(r->f.run, "after synchronize the ranks have different weights");
    if (r->number == 0)
        compare_with_one(r);
}

static void be_rank(suite_run *run, shared *all, int32_t number) {
    static rank r;
    int votes = 0;
    training_fixture_open(run, &r.f);
    r.all = all;
    r.number = number;
    move_goal(&r.f, (float)number);
    r.f.exchange.context = &r;
    r.f.exchange.rank = number;
    r.f.exchange.ranks = RANKS;
    r.f.exchange.start = start;
    r.f.exchange.wait = wait_for;
    suite_must(run, training_fixture_create(&r.f, 0), "create");
    for (int64_t i = 0; i < STEPS; i++) {
        r.f.loss = loss_of(number, i);
        r.f.vote = number == 1 && i == VOTE_AT ? 0.5f : 0;
        r.starts_words = 0;
        training_fixture_step(&r.f, i);
        compare_words(&r, i, &votes);
    }
    if (votes != 1)
        suite_fail(run, "a control word that was positive once arrived %d times",
                   votes);
    compare_weights(&r);
}

void training_with_two_ranks(suite_run *run) {
    dlc_consistency_needs needs = {.size = sizeof needs};
    const dlc_consistency_ops *ops = run->feature->ops;
    int status = 0;
    suite_must(run, ops->needs(run->settings, &needs), "needs");
    if (needs.p2p_channel || needs.servers)
        suite_skip(run, "it sends messages or has servers: test it with jobs");
    shared *all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        suite_skip(run, "cannot map shared memory: %s", strerror(errno));
    pid_t ranks[RANKS];
    for (int32_t i = 0; i < RANKS; i++)
        if ((ranks[i] = suite_fork(run)) < 0) {
            suite_skip(run, "fork: %s", strerror(errno));
        } else if (ranks[i] == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            be_rank(run, all, i);
            _exit(0);
        }
    for (int32_t i = 0; i < RANKS; i++)
        if (wait(&status) > 0 && status != 0)
            suite_fail(run, "a rank was killed by signal %d (%s)", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
}
