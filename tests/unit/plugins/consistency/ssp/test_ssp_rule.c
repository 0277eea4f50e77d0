/* The rule of bounded staleness under random delays: no iteration computes with weights
 * that are too old, and no rank waits without cause. Checked twice: by weights that
 * count the updates in them, independent of the model's records, and by its traces. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "fixture.h"
#include "support/scratch.h"
#include "support/test.h"
#include "trace.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CLOCKS_MOST = 600 };
#else
enum { CLOCKS_MOST = 5000 };
#endif
enum { BUCKETS = 1, CLOCKS_FEW = CLOCKS_MOST / 5 };

static test_fixture job;
static int64_t staleness; /* INT64_MAX: inf */
static int64_t clocks;
static int32_t groups; /* 0: each worker is its own */

static int32_t workers(void) {
    return job.ranks - job.servers;
}

static int32_t group_of(int32_t worker) {
    for (int32_t g = 0; groups && g < groups; g++)
        if (worker < (g + 1) * workers() / groups)
            return g;
    return worker;
}

/* Element i counts the updates of worker i modulo the number of workers. */
static float counts(int32_t rank, int64_t iteration, size_t element, float weight) {
    (void)iteration;
    (void)weight;
    return (int32_t)(element % (size_t)workers()) == rank ? -1 : 0;
}

/* The least number of updates of rank `of` that iteration `clock` of `rank` needs. */
static int64_t least(int32_t rank, int32_t of, int64_t clock) {
    if (group_of(rank) == group_of(of))
        return clock;
    return staleness == INT64_MAX || staleness > clock ? 0 : clock - staleness;
}

static void check_weights(const fixture_rank *rank, int64_t clock) {
    for (size_t i = 0; i < job.cut.count - FIXTURE_CONTROL_WORDS; i++) {
        int32_t of = (int32_t)(i % (size_t)workers());
        int64_t has = (int64_t)rank->weights[i];
        if (has < least(rank->me, of, clock) || (of == rank->me && has != clock))
            ck_abort_msg("rank %d computes iteration %lld with %lld updates of rank %d",
                         rank->me, (long long)clock, (long long)has, of);
    }
}

/* Sometimes a rank is slow for a while. */
static void pause_sometimes(fixture_rank *rank, int64_t clock) {
    static const double often = 0.004, long_pause = 0.001;
    if (fake_random(&rank->random) < often ||
        (clock % 1000 < 30 && clock / 1000 % job.ranks == rank->me))
        (void)usleep((useconds_t)(1e6 * long_pause * fake_random(&rank->random)));
}

static void keeps_the_rule(fixture_rank *rank) {
    int is_worker = rank->me < workers();
    for (int64_t i = 0; i < clocks; i++) {
        float control[FIXTURE_CONTROL_WORDS] = {0};
        pause_sometimes(rank, i);
        if (is_worker)
            check_weights(rank, i);
        if (fixture_iterate(rank, i, control) != DLC_OK)
            ck_abort_msg("%s", dlc_detail());
    }
    fixture_synchronize(rank, clocks);
    for (size_t i = 0; i < job.cut.count - FIXTURE_CONTROL_WORDS; i++)
        if ((int64_t)rank->weights[i] != clocks)
            ck_abort_msg("%g updates are in", (double)rank->weights[i]);
}

static void check_stats(const fixture_rank *rank, dlc_consistency_stats *stats) {
    *stats = (dlc_consistency_stats){.size = sizeof *stats};
    int64_t reads = 0;
    ck_assert_int_eq(job.ops->stats(rank->model, stats), DLC_OK);
    for (int i = 0; i < DLC_STALENESS_BINS; i++) {
        ck_assert(i <= staleness || stats->staleness[i] == 0);
        reads += stats->staleness[i];
    }
    ck_assert_int_eq(reads, stats->reads);
}

static void keeps_the_rule_and_counts(fixture_rank *rank) {
    dlc_consistency_stats stats;
    keeps_the_rule(rank);
    check_stats(rank, &stats);
    ck_assert_int_eq(stats.reads, rank->me < workers() ? clocks : 0);
    ck_assert_double_ge(stats.wait_seconds, stats.slowest_wait_seconds);
}

/* One segment, cut so that every slice has elements of all workers. */
static void lay_out(int32_t buckets, fixture_cut *cut) {
    memset(cut, 0, sizeof *cut);
    cut->segment[0] = (rules_segment){
        .count = 96 * (size_t)buckets, .lr_mult = 1, .decay_mult = 1};
    cut->segments = 1;
    cut->count = cut->segment[0].count + FIXTURE_CONTROL_WORDS;
    cut->buckets = buckets;
    for (int32_t b = 1; b < buckets; b++)
        cut->bucket_begin[b] = 96 * (size_t)b;
    cut->bucket_begin[buckets] = cut->count;
    memset(cut->used, 1, cut->count);
}

static void open_job(int32_t ranks, int32_t buckets, const char *const *more) {
    static const char *sets[12];
    size_t count = 0;
    fixture_cut cut;
    const rules_choice plain = {.rule = rules_plain, .learning_rate = 1, .gamma = 1};
    for (; *more; more++)
        sets[count++] = *more;
    sets[count] = NULL;
    lay_out(buckets, &cut);
    fixture_open(&job, ranks, ranks, &cut, &plain, sets);
    job.gradient = counts;
    for (int32_t r = 0; r < ranks; r++) {
        memset(job.rank[r].weights, 0, sizeof job.rank[r].weights);
        job.rank[r].deferred = r % 2;
    }
}

static const struct {
    int32_t ranks;
    int64_t staleness;
    int32_t groups;
    int64_t clocks;
    const char *set[3];
} cases[] = {
    {3, 1, 0, CLOCKS_MOST, {"staleness=1"}},
    {3, 3, 0, CLOCKS_MOST, {"staleness=3"}},
    {3, INT64_MAX, 0, CLOCKS_MOST, {"staleness=inf"}},
    {2, 0, 0, CLOCKS_FEW, {"staleness=0"}},
    {5, 2, 2, CLOCKS_FEW, {"staleness=2", "groups=2"}},
    {4, 3, 0, CLOCKS_FEW, {"staleness=3", "servers=2"}},
};

/* What the rule says holds in each job. Whether reads were stale and ranks had to wait
 * depends on how they are scheduled. */
static int runs_by_the_rule(int number) {
    const char *path = scratch_path("trace");
    char trace[400];
    snprintf(trace, sizeof trace, "trace=%s", path);
    const char *const sets[] = {trace, cases[number].set[0], cases[number].set[1],
                                NULL};
    staleness = cases[number].staleness;
    groups = cases[number].groups;
    clocks = cases[number].clocks;
    open_job(cases[number].ranks, BUCKETS, sets);
    job.fake.delay = 200e-6;
    fixture_run(&job, keeps_the_rule_and_counts);
    trace_counts seen;
    trace_check(&job, path, staleness, groups, &seen);
    int64_t slices = (int64_t)BUCKETS * (job.servers ? job.servers : job.ranks);
    ck_assert_int_eq(seen.reads, slices * workers() * clocks);
    ck_assert_int_eq(seen.updates, slices * workers() * clocks);
    ck_assert_int_eq(seen.answers, seen.updates);
    if (staleness != INT64_MAX)
        ck_assert_int_le(seen.stalest, staleness);
    if (staleness == INT64_MAX)
        ck_assert_int_eq(seen.waits, 0);
    fixture_close(&job);
    return (staleness == 0 || seen.stalest > 0) &&
           (staleness == INT64_MAX || (seen.waits > 0 && seen.delayed > 0));
}

TEST_SETTINGS(.timeout = 30, .setup = scratch_setup, .teardown = scratch_teardown);

TEST_EACH(no_read_is_too_old, COUNT(cases)) {
    enum { JOBS = 5 };
    int shown = 0;
    for (int i = 0; i < JOBS && !shown; i++)
        shown = runs_by_the_rule(_i);
    ck_assert(shown);
}

/* ---- One rank is held -------------------------------------------------------- */

enum { HELD = 1, AT = 20, ALL = 60 };

static atomic_long ended[FAKE_RANKS_MAX]; /* iterations done by each rank */
static atomic_int held;

static void hold(fixture_rank *rank, int64_t iteration) {
    while (rank->me == HELD && iteration == AT && atomic_load(&held))
        (void)usleep(1000);
}

static void runs_until_it_must_wait(fixture_rank *rank) {
    dlc_consistency_stats stats;
    for (int64_t i = 0; i < ALL; i++) {
        float control[FIXTURE_CONTROL_WORDS] = {0};
        hold(rank, i);
        if (fixture_iterate(rank, i, control) != DLC_OK)
            ck_abort_msg("%s", dlc_detail());
        atomic_store(&ended[rank->me], i + 1);
    }
    fixture_synchronize(rank, ALL);
    check_stats(rank, &stats);
    if (rank->me != HELD && group_of(rank->me) != group_of(HELD) &&
        staleness != INT64_MAX)
        ck_assert_int_eq(stats.slowest, HELD);
}

/* How far a rank gets while HELD has given its updates through AT - 1. */
static long reach(int32_t rank) {
    if (group_of(rank) == group_of(HELD))
        return AT;
    return staleness == INT64_MAX || AT + staleness > ALL ? ALL
                                                          : (long)(AT + staleness);
}

static void *release_when_all_wait(void *unused) {
    (void)unused;
    for (int32_t r = 0; r < job.ranks; r++)
        while (atomic_load(&ended[r]) < reach(r))
            (void)usleep(1000);
    /* Longer than a busy machine makes ranks wait for others. */
    (void)usleep(400000);
    for (int32_t r = 0; r < job.ranks; r++)
        ck_assert_int_eq(atomic_load(&ended[r]), reach(r));
    atomic_store(&held, 0);
    return NULL;
}

TEST_EACH(runs_as_far_as_it_may, COUNT(cases)) {
    const char *const sets[] = {cases[_i].set[0], cases[_i].set[1], NULL};
    pthread_t watcher;
    staleness = cases[_i].staleness;
    groups = cases[_i].groups;
    open_job(cases[_i].ranks, 3, sets);
    if (job.servers) { /* they end an iteration only when all updates are in */
        fixture_close(&job);
        return;
    }
    atomic_store(&held, 1);
    ck_assert_int_eq(pthread_create(&watcher, NULL, release_when_all_wait, NULL), 0);
    fixture_run(&job, runs_until_it_must_wait);
    pthread_join(watcher, NULL);
    fixture_close(&job);
}
