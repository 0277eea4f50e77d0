/* Tests that all ranks of a job decide alike about a batch split, from what each of
 * them has measured. */

#include "../../job/job_fixture.h"
#include "base/status.h"
#include "parallel/rebalance/throughput.h"
#include "support/test.h"

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

TEST_SETTINGS(.timeout = 30, .setup = fixture_setup, .teardown = fixture_teardown);

TEST_EACH(the_slowest_rank_decides, COUNT(cases)) {
    measured one = cases[_i];
    dlc_text text;
    int code = process_run(RANKS, balance_main, &one, &text);
    ck_assert_msg(code == 0, "%s", dlc_text_string(&text));
    dlc_text_free(&text);
}

/* What ranks measure, and the split that they decide on. */
typedef struct balanced {
    dlc_mesh mesh;
    int64_t samples; /* of a stage */
    double samples_per_s[6];
    int64_t before[6], wanted[6];
} balanced;

static const int32_t stage_ranks[] = {3, 2}, group_ranks[] = {4, 2};
static const balanced meshes[] = {
    /* Stages of 3 and 2 ranks. */
    {{.ranks = 5, .pipeline = 2, .tensor = 1, .stage_ranks = stage_ranks},
     48,
     {1000, 2000, 1000, 3000, 1000},
     {16, 16, 16, 24, 24},
     {12, 24, 12, 36, 12}},
    /* Tensor groups have equal parts, by the slowest rank; what is left goes to the
     * first ranks. */
    {{.ranks = 4, .pipeline = 1, .tensor = 2},
     49,
     {3000, 9000, 1000, 1000},
     {13, 12, 12, 12},
     {19, 18, 6, 6}},
    /* Both: the second stage has one group. */
    {{.ranks = 6, .pipeline = 2, .tensor = 2, .stage_ranks = group_ranks},
     40,
     {3000, 4000, 1000, 2000, 4000, 4000},
     {10, 10, 10, 10, 20, 20},
     {16, 16, 4, 4, 20, 20}},
};

static int mesh_main(dlc_job *job, void *argument) {
    const balanced *all = argument;
    int32_t rank = dlc_job_rank(job), ranks = all->mesh.ranks;
    int64_t batch = all->samples * all->mesh.pipeline;
    dlc_setup setup = {0};
    dlc_session session = {
        .setup = &setup, .job = job, .rank = rank, .ranks = ranks, .mesh = all->mesh};
    dlc_batch_split *split = &setup.batch_split;
    int changed = -1, wrong = dlc_batch_split_assign(split, batch, ranks, 0) != DLC_OK;
    if (!wrong)
        dlc_batch_split_set(split, all->before, 0);
    dlc_rank_throughput mine = {.samples_per_s = all->samples_per_s[rank]};
    wrong |= dlc_throughput_balance(&session, mine, 0, &changed) != DLC_OK;
    for (int r = 0; !wrong && r < ranks; r++)
        wrong = split->count[r] != all->wanted[r];
    wrong |= changed != 1;
    dlc_batch_split_free(split);
    return wrong;
}

TEST_EACH(each_stage_and_group_is_balanced, COUNT(meshes)) {
    balanced one = meshes[_i];
    dlc_text text;
    int code = process_run(one.mesh.ranks, mesh_main, &one, &text);
    ck_assert_msg(code == 0, "%s", dlc_text_string(&text));
    dlc_text_free(&text);
}
