/* Tests that all ranks of a job decide alike about a batch split, from what each of
 * them has measured. */
#include <check.h>

#include "../../job/job_fixture.h"
#include "base/status.h"
#include "parallel/rebalance/throughput.h"

enum { RANKS = 3 };

/* Seconds of an iteration, as each rank has measured it: with the split before it was
 * 10 ms. */
typedef struct measured {
    double seconds[RANKS];
    int64_t count[RANKS]; /* the split that all ranks shall have then */
} measured;

static int balance_main(dlc_job *job, void *argument) {
    const measured *all = argument;
    int32_t rank = dlc_job_rank(job);
    dlc_setup setup = {0};
    dlc_session session = {.setup = &setup,
                           .job = job,
                           .rank = rank,
                           .ranks = RANKS,
                           .mesh = {.ranks = RANKS, .pipeline = 1, .tensor = 1}};
    dlc_batch_split *split = &setup.batch_split;
    int changed = -1, wrong = dlc_batch_split_assign(split, 192, RANKS, 0) != DLC_OK;
    if (!wrong)
        dlc_batch_split_set(split, (const int64_t[]){96, 64, 32}, 0.010);
    /* In proportion to the samples: the split could not be better. */
    const double samples_per_s[] = {96000, 64000, 32000};
    dlc_rank_throughput mine = {.samples_per_s = samples_per_s[rank]};
    wrong |= dlc_throughput_balance(&session, mine, all->seconds[rank], &changed) !=
             DLC_OK;
    for (int r = 0; !wrong && r < RANKS; r++)
        wrong = split->count[r] != all->count[r];
    wrong |= changed != (all->count[0] != 96);
    dlc_batch_split_free(split);
    return wrong;
}

static const measured cases[] = {
    /* The slowest rank decides, whichever it is: the split before is restored. */
    {{0.020, 0.009, 0.009}, {64, 64, 64}},
    {{0.009, 0.020, 0.009}, {64, 64, 64}},
    {{0.009, 0.009, 0.020}, {64, 64, 64}},
    {{0.009, 0.009, 0.009}, {96, 64, 32}},
};

START_TEST(the_slowest_rank_decides) {
    measured one = cases[_i];
    dlc_text text;
    int code = process_run(RANKS, balance_main, &one, &text);
    ck_assert_msg(code == 0, "%s", dlc_text_string(&text));
    dlc_text_free(&text);
}
END_TEST

/* Stages of 3 and 2 ranks, each of which computes 48 samples. */
static int stages_main(dlc_job *job, void *argument) {
    static const int32_t stage_ranks[] = {3, 2};
    static const double samples_per_s[] = {1000, 2000, 1000, 3000, 1000};
    static const int64_t wanted[] = {12, 24, 12, 36, 12};
    enum { ALL = 5 };
    int32_t rank = dlc_job_rank(job);
    dlc_setup setup = {0};
    dlc_session session = {
        .setup = &setup,
        .job = job,
        .rank = rank,
        .ranks = ALL,
        .mesh = {.ranks = ALL, .pipeline = 2, .tensor = 1, .stage_ranks = stage_ranks}};
    dlc_batch_split *split = &setup.batch_split;
    int changed = -1, wrong = dlc_batch_split_assign(split, 96, ALL, 0) != DLC_OK;
    (void)argument;
    if (!wrong)
        dlc_batch_split_set(split, (const int64_t[]){16, 16, 16, 24, 24}, 0);
    dlc_rank_throughput mine = {.samples_per_s = samples_per_s[rank]};
    wrong |= dlc_throughput_balance(&session, mine, 0, &changed) != DLC_OK;
    for (int r = 0; !wrong && r < ALL; r++)
        wrong = split->count[r] != wanted[r];
    wrong |= changed != 1;
    dlc_batch_split_free(split);
    return wrong;
}

START_TEST(each_stage_is_balanced) {
    dlc_text text;
    int code = process_run(5, stages_main, NULL, &text);
    ck_assert_msg(code == 0, "%s", dlc_text_string(&text));
    dlc_text_free(&text);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("throughput");
    tcase_add_loop_test(tests, the_slowest_rank_decides, 0,
                        sizeof cases / sizeof cases[0]);
    tcase_add_test(tests, each_stage_is_balanced);
    return run_tests("train.throughput", tests);
}
