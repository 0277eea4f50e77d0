/* Control words of ssp: a vote that one rank sets becomes positive on all ranks
 * in the same iteration, although they are in different iterations, and the job still
 * ends. Words behind the votes are sums. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "fixture.h"
#include "support/test.h"

enum { ITERATIONS = 400, WORD_STOP = 1, WORD_SAVE = 2, WORD_OTHER = 3, WORD_SUM = 15 };

static test_fixture job;
static rules_choice momentum = {.learning_rate = 0.01f, .gamma = 1, .own = {0.9f}};
static char positive[FAKE_RANKS_MAX][ITERATIONS + 8]
                    [FIXTURE_CONTROL_WORDS]; /* as each rank saw it */

static const struct {
    int32_t ranks;
    const char *set[3];
} shapes[] = {
    {3, {"staleness=3"}},
    {4, {"staleness=inf"}},
    {2, {"staleness=0"}},
    {4, {"staleness=1", "servers=1"}},
    {4, {"staleness=2", "groups=2"}},
};

static int workers; /* of the job */

static void open_job(int i) {
    fixture_cut cut;
    momentum.rule = rules_momentum;
    fixture_cut_make((uint64_t)i, 60, 3, &cut);
    fixture_open(&job, shapes[i].ranks, shapes[i].ranks, &cut, &momentum,
                 shapes[i].set);
    memset(positive, 0, sizeof positive);
    workers = shapes[i].ranks -
              (shapes[i].set[1] && strstr(shapes[i].set[1], "servers"));
    job.fake.delay = 300e-6;
    for (int32_t r = 0; r < job.ranks; r++)
        job.rank[r].deferred = r % 2;
}

static void iterate(fixture_rank *rank, int64_t i, float *control) {
    if (fake_random(&rank->random) < 0.02) /* so that ranks drift apart */
        (void)usleep((useconds_t)(3000 * fake_random(&rank->random)));
    control[WORD_SUM] = 1;
    if (fixture_iterate(rank, i, control) != DLC_OK)
        ck_abort_msg("%s", dlc_detail());
    ck_assert_float_eq_tol(control[WORD_SUM], (float)workers, 1e-4f);
    for (int w = 1; w <= DLC_CONTROL_VOTES; w++) {
        if (control[w] != 0 && control[w] != 1)
            ck_abort_msg("word %d became %g", w, (double)control[w]);
        positive[rank->me][i][w] = control[w] > 0;
    }
}

static void expect_equal(void) {
    for (int32_t r = 1; r < job.ranks; r++)
        for (int i = 0; i < ITERATIONS; i++)
            for (int w = 1; w <= DLC_CONTROL_VOTES; w++)
                if (positive[r][i][w] != positive[0][i][w])
                    ck_abort_msg("word %d of iteration %d is %d on rank %d, not on 0",
                                 w, i, positive[r][i][w], r);
}

static int count(int word) {
    int found = 0;
    for (int i = 0; i < ITERATIONS; i++)
        found += positive[0][i][word];
    return found;
}

/* ---- Votes at any time ------------------------------------------------------- */

/* iteration of each rank's open vote; -1: none */
static int64_t voted[FAKE_RANKS_MAX][FIXTURE_CONTROL_WORDS];
static atomic_long votes;

static void vote(fixture_rank *rank, int64_t i, int word, float *control) {
    if (voted[rank->me][word] >= 0 || i > ITERATIONS - 100)
        return;
    control[word] = 1;
    voted[rank->me][word] = i;
    atomic_fetch_add(&votes, 1);
}

static void votes_now_and_then(fixture_rank *rank) {
    memset(voted[rank->me], -1, sizeof voted[rank->me]);
    for (int64_t i = 0; i < ITERATIONS; i++) {
        float control[FIXTURE_CONTROL_WORDS] = {0};
        if (fake_random(&rank->random) < 0.02)
            vote(rank, i, WORD_SAVE, control);
        if (fake_random(&rank->random) < 0.02)
            vote(rank, i, WORD_OTHER, control);
        iterate(rank, i, control);
        for (int w = 1; w <= DLC_CONTROL_VOTES; w++)
            if (control[w] > 0)
                voted[rank->me][w] = -1;
    }
    fixture_synchronize(rank, ITERATIONS);
}

/* No vote is lost, except one right after another rank's vote took effect: that may be
 * taken for a late duplicate. */
static void expect_vote_counted(int32_t rank, int word) {
    int64_t i = voted[rank][word];
    ck_assert_msg(i < 0 || (i > 0 && positive[rank][i - 1][word]),
                  "rank %d's vote of iteration %lld was lost", rank, (long long)i);
}

TEST_SETTINGS(.timeout = 20);

TEST_EACH(all_ranks_see_words_alike, COUNT(shapes)) {
    open_job(_i);
    atomic_store(&votes, 0);
    fixture_run(&job, votes_now_and_then);
    expect_equal();
    int decided = count(WORD_SAVE) + count(WORD_OTHER);
    ck_assert_int_gt(decided, 2);
    ck_assert_int_le(decided, atomic_load(&votes));
    ck_assert_int_eq(count(WORD_STOP), 0);
    for (int32_t r = 0; r < job.ranks; r++)
        for (int w = 1; w <= DLC_CONTROL_VOTES; w++)
            expect_vote_counted(r, w);
    fixture_close(&job);
}

/* ---- One signal that reaches all ranks --------------------------------------- */

static atomic_int signalled;

static void hears_the_signal(fixture_rank *rank) {
    int heard = 0;
    for (int64_t i = 0; i < ITERATIONS; i++) {
        float control[FIXTURE_CONTROL_WORDS] = {0};
        if (i == 50) /* by the first rank to get there */
            atomic_store(&signalled, 1);
        if (!heard && atomic_load(&signalled))
            control[WORD_SAVE] = (float)++heard;
        iterate(rank, i, control);
    }
    fixture_synchronize(rank, ITERATIONS);
}

TEST_EACH(one_signal_counts_once, COUNT(shapes)) {
    open_job(_i);
    atomic_store(&signalled, 0);
    fixture_run(&job, hears_the_signal);
    expect_equal();
    ck_assert_int_eq(count(WORD_SAVE), 1);
    fixture_close(&job);
}

/* ---- Stop -------------------------------------------------------------------- */

static int64_t stopped[FAKE_RANKS_MAX];

static void runs_until_it_stops(fixture_rank *rank) {
    for (int64_t i = 0; i < ITERATIONS; i++) {
        float control[FIXTURE_CONTROL_WORDS] = {0};
        if (rank->me == 1 && i == 50)
            control[WORD_STOP] = 1;
        iterate(rank, i, control);
        stopped[rank->me] = i + 1;
        if (control[WORD_STOP] > 0)
            break;
        if (i % 20 == 19)
            fixture_synchronize(rank, i + 1);
    }
    fixture_synchronize(rank, stopped[rank->me]);
}

TEST_EACH(all_stop_at_once, COUNT(shapes)) {
    open_job(_i);
    fixture_run(&job, runs_until_it_stops);
    for (int32_t r = 0; r < job.ranks; r++) {
        ck_assert_int_eq(stopped[r], stopped[0]);
        ck_assert_mem_eq(job.rank[r].weights, job.rank[0].weights,
                         sizeof job.rank[0].weights);
    }
    ck_assert_int_gt(stopped[0], 50);
    ck_assert_int_lt(stopped[0], ITERATIONS);
    fixture_close(&job);
}
