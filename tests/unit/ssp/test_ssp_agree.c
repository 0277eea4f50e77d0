/* Words of the tail that become the same on all ranks, though these are not in the same
 * iteration; and all that follows, a meeting, comes to its end. */
#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "rig.h"

enum { ITERATIONS = 400, WORD_STOP = 1, WORD_SAVE = 2, WORD_OTHER = 15 };

static test_rig job;
static char positive[SIM_RANKS_MAX][ITERATIONS + 8][RIG_TAIL]; /* as each rank saw it */

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

static void open_job(int i) {
    rig_cut cut;
    rig_cut_make((uint64_t)i, 60, 3, &cut);
    rig_open(&job, shapes[i].ranks, shapes[i].ranks, &cut, shapes[i].set);
    memset(positive, 0, sizeof positive);
    job.sim.delay = 300e-6;
    for (int32_t r = 0; r < job.ranks; r++)
        job.rank[r].late = r % 2;
}

static void iterate(rig_rank *rank, int64_t i, float *tail) {
    if (sim_random(&rank->random) < 0.02) /* so that ranks drift apart */
        (void)usleep((useconds_t)(3000 * sim_random(&rank->random)));
    if (rig_iterate(rank, i, tail) != DLC_OK)
        ck_abort_msg("%s", dlc_detail());
    for (int w = 1; w < RIG_TAIL; w++) {
        if (tail[w] != 0 && tail[w] != 1)
            ck_abort_msg("word %d became %g", w, (double)tail[w]);
        positive[rank->me][i][w] = tail[w] > 0;
    }
}

static void expect_alike(void) {
    for (int32_t r = 1; r < job.ranks; r++)
        for (int i = 0; i < ITERATIONS; i++)
            for (int w = 1; w < RIG_TAIL; w++)
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

/* ---- Wishes at any time ------------------------------------------------------ */

static int64_t wished[SIM_RANKS_MAX][RIG_TAIL]; /* last by each rank; -1: none open */
static atomic_long wishes;

static void wish(rig_rank *rank, int64_t i, int word, float *tail) {
    if (wished[rank->me][word] >= 0 || i > ITERATIONS - 100)
        return;
    tail[word] = 1;
    wished[rank->me][word] = i;
    atomic_fetch_add(&wishes, 1);
}

static void wishes_now_and_then(rig_rank *rank) {
    memset(wished[rank->me], -1, sizeof wished[rank->me]);
    for (int64_t i = 0; i < ITERATIONS; i++) {
        float tail[RIG_TAIL] = {0};
        if (sim_random(&rank->random) < 0.02)
            wish(rank, i, WORD_SAVE, tail);
        if (sim_random(&rank->random) < 0.02)
            wish(rank, i, WORD_OTHER, tail);
        iterate(rank, i, tail);
        for (int w = 1; w < RIG_TAIL; w++)
            if (tail[w] > 0)
                wished[rank->me][w] = -1;
    }
    rig_meet(rank, ITERATIONS);
}

/* None is forgotten; but one that comes right behind another's that was met may be
 * taken for its echo. */
static void expect_met(int32_t rank, int word) {
    int64_t i = wished[rank][word];
    ck_assert_msg(i < 0 || (i > 0 && positive[rank][i - 1][word]),
                  "rank %d's wish of iteration %lld was not met", rank, (long long)i);
}

START_TEST(all_see_words_alike) {
    open_job(_i);
    atomic_store(&wishes, 0);
    rig_run(&job, wishes_now_and_then);
    expect_alike();
    int met = count(WORD_SAVE) + count(WORD_OTHER);
    ck_assert_int_gt(met, 2);
    ck_assert_int_le(met, atomic_load(&wishes));
    ck_assert_int_eq(count(WORD_STOP), 0);
    for (int32_t r = 0; r < job.ranks; r++)
        for (int w = 1; w < RIG_TAIL; w++)
            expect_met(r, w);
    rig_close(&job);
}
END_TEST

/* ---- One signal that reaches all --------------------------------------------- */

static atomic_int signalled;

static void hears_the_signal(rig_rank *rank) {
    int heard = 0;
    for (int64_t i = 0; i < ITERATIONS; i++) {
        float tail[RIG_TAIL] = {0};
        if (i == 50) /* on whoever gets there first */
            atomic_store(&signalled, 1);
        if (!heard && atomic_load(&signalled))
            tail[WORD_SAVE] = (float)++heard;
        iterate(rank, i, tail);
    }
    rig_meet(rank, ITERATIONS);
}

START_TEST(one_signal_counts_once) {
    open_job(_i);
    atomic_store(&signalled, 0);
    rig_run(&job, hears_the_signal);
    expect_alike();
    ck_assert_int_eq(count(WORD_SAVE), 1);
    rig_close(&job);
}
END_TEST

/* ---- Stop -------------------------------------------------------------------- */

static int64_t stopped[SIM_RANKS_MAX];

static void runs_until_it_stops(rig_rank *rank) {
    for (int64_t i = 0; i < ITERATIONS; i++) {
        float tail[RIG_TAIL] = {0};
        if (rank->me == 1 && i == 50)
            tail[WORD_STOP] = 1;
        iterate(rank, i, tail);
        stopped[rank->me] = i + 1;
        if (tail[WORD_STOP] > 0)
            break;
        if (i % 20 == 19)
            rig_meet(rank, i + 1);
    }
    rig_meet(rank, stopped[rank->me]);
}

START_TEST(all_stop_at_once) {
    open_job(_i);
    rig_run(&job, runs_until_it_stops);
    for (int32_t r = 0; r < job.ranks; r++) {
        ck_assert_int_eq(stopped[r], stopped[0]);
        ck_assert_mem_eq(job.rank[r].weights, job.rank[0].weights,
                         sizeof job.rank[0].weights);
    }
    ck_assert_int_gt(stopped[0], 50);
    ck_assert_int_lt(stopped[0], ITERATIONS);
    rig_close(&job);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ssp agree");
    TCase *all = tcase_create("all");
    int shape_count = sizeof shapes / sizeof *shapes;
    tcase_set_timeout(all, 20);
    tcase_add_loop_test(all, all_see_words_alike, 0, shape_count);
    tcase_add_loop_test(all, one_signal_counts_once, 0, shape_count);
    tcase_add_loop_test(all, all_stop_at_once, 0, shape_count);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
