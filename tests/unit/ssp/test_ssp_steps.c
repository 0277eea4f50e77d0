/* What becomes of the weights: sgd's, to the bit in step, to rounding otherwise. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "config/config.h"
#include "rig.h"
#include "support/plugins.h"

enum { ITERATIONS = 200, SAVED = 90 };

static test_rig job;
static rig_reference sgd;

/* What sgd had after each iteration. */
static float weights_of[ITERATIONS + 1][RIG_COUNT_MAX];
static float losses[ITERATIONS];

static const char *const plain[] = {"rate=0.1", "weight_decay=0.01", NULL};
static const char *const rich[] = {"rate=0.1",
                                   "weight_decay=0.01",
                                   "accumulate=3",
                                   "nesterov=yes",
                                   "policy=exp",
                                   "gamma=0.99",
                                   NULL};

/* `sets` and what comes in addition. */
static const char *const *with(const char *const *sets, const char *more,
                               const char *and) {
    static const char *all[16];
    size_t count = 0;
    for (; sets[count]; count++)
        all[count] = sets[count];
    if (more)
        all[count++] = more;
    if (and)
        all[count++] = and;
    all[count] = NULL;
    return all;
}

static void run_sgd(const char *const *sets) {
    rig_reference_open(&sgd, &job, sets);
    memcpy(weights_of[0], sgd.rank.weights, sizeof weights_of[0]);
    for (int64_t i = 0; i < ITERATIONS; i++) {
        rig_reference_iterate(&sgd, i);
        memcpy(weights_of[i + 1], sgd.rank.weights, sizeof weights_of[0]);
        losses[i] = sgd.loss;
    }
}

static uint32_t bits(float value) {
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    return word;
}

static void same_bits(const float *a, const float *b, const char *what, int32_t rank,
                      int64_t iteration) {
    for (size_t i = 0; i < job.cut.count - RIG_TAIL; i++)
        if (bits(a[i]) != bits(b[i]))
            ck_abort_msg("rank %d, %s after iteration %lld: [%zu] is %.9g, not %.9g",
                         rank, what, (long long)iteration, i, (double)a[i],
                         (double)b[i]);
}

static void iterate_and_compare(rig_rank *rank, int64_t from, int64_t to) {
    int is_worker = rank->me < job.ranks - job.servers;
    for (int64_t i = from; i < to; i++) {
        float tail[RIG_TAIL] = {is_worker ? rig_loss(rank->me, i) : 0};
        ck_assert_msg(rig_iterate(rank, i, tail) == DLC_OK, "%s", dlc_detail());
        if (is_worker)
            same_bits(rank->weights, weights_of[i + 1], "weights", rank->me, i);
        if (is_worker) /* a server may have heard of the next already */
            ck_assert_mem_eq(tail, &losses[i], sizeof *tail);
    }
}

static void to_the_end(rig_rank *rank) {
    iterate_and_compare(rank, job.first, ITERATIONS);
    rig_meet(rank, ITERATIONS);
    same_bits(rank->weights, weights_of[ITERATIONS], "weights", rank->me, ITERATIONS);
    same_bits(rank->slot[0], sgd.rank.slot[0], "velocity", rank->me, ITERATIONS);
}

static const struct {
    int32_t ranks, on_first;
    const char *servers;
    int late, rich;
    const int64_t *shares;
} shapes[] = {
    {2, 2, NULL, 0, 0, NULL},
    {3, 3, NULL, 1, 1, NULL},
    {4, 4, NULL, 0, 1, NULL},
    {4, 2, NULL, 1, 0, NULL},
    {4, 3, NULL, 0, 0, NULL},
    {3, 3, "servers=1", 1, 0, NULL},
    {5, 2, "servers=2", 0, 1, NULL},
    {4, 3, "servers=1", 1, 0, (const int64_t[]){9, 1, 5, 0}},
    {1, 1, NULL, 0, 1, NULL},
    {1, 1, NULL, 1, 0, (const int64_t[]){64}},
    {3, 1, "servers=2", 0, 0, NULL},
    {8, 5, NULL, 1, 0, NULL},
    {3, 3, NULL, 1, 1, (const int64_t[]){28, 28, 8}},
    {4, 2, NULL, 0, 0, (const int64_t[]){1, 0, 7, 2}},
};

static void set_late(int late) {
    for (int32_t r = 0; r < SIM_RANKS_MAX; r++)
        job.rank[r].late = late;
}

START_TEST(in_step_to_the_bit) {
    rig_cut cut;
    const char *const *sets = shapes[_i].rich ? rich : plain;
    rig_cut_make((uint64_t)_i, 150 + 40 * (size_t)_i, 1 + _i % 5, &cut);
    rig_open(&job, shapes[_i].ranks, shapes[_i].on_first, &cut,
             with(sets, shapes[_i].servers, NULL));
    set_late(shapes[_i].late);
    job.shares = shapes[_i].shares;
    job.sim.delay = _i % 3 ? 0 : 100e-6;
    run_sgd(sets);
    rig_run(&job, to_the_end);
    rig_reference_close(&sgd);
    rig_close(&job);
}
END_TEST

/* A rank that is given fewer samples owns as much less: it is sent less of all that
 * goes to owners. One without samples is sent weights only, and letters. */
static void few_iterations(rig_rank *rank) {
    rig_iterations(rank, 0, 10);
    rig_meet(rank, 10);
}

START_TEST(owns_by_shares) {
    rig_cut cut;
    rig_cut_make(5, 3000, 2, &cut);
    rig_open(&job, 3, 3, &cut, with(plain, NULL, NULL));
    job.shares = (const int64_t[]){6, 6, 0};
    rig_run(&job, few_iterations);
    size_t arena = 10 * sizeof(float) * (job.cut.count - RIG_TAIL);
    /* Two halves of the gradients, and the other half of the weights. */
    ck_assert_uint_gt(job.sim.rank[0].sent, arena * 3 / 2);
    ck_assert_uint_gt(job.sim.rank[1].sent, arena * 3 / 2);
    /* Both halves of the weights, and those of a meeting. */
    ck_assert_uint_lt(job.sim.rank[2].sent, arena * 3 / 2);
    rig_close(&job);
}
END_TEST

/* ---- Going on ---------------------------------------------------------------- */

static void to_a_checkpoint(rig_rank *rank) {
    iterate_and_compare(rank, 0, SAVED);
    rig_meet(rank, SAVED);
}

/* As many workers with other servers, staleness in between. */
START_TEST(goes_on_to_the_bit) {
    rig_cut cut;
    rig_cut_make(99, 300, 3, &cut);
    rig_open(&job, 3, 3, &cut, plain);
    run_sgd(plain);
    rig_run(&job, to_a_checkpoint);
    job.first = SAVED;
    rig_reopen(&job, 4, 4, with(plain, "servers=1", NULL));
    rig_run(&job, to_the_end);
    rig_reference_close(&sgd);
    rig_close(&job);
}
END_TEST

/* ---- Out of step ------------------------------------------------------------- */

/* Does not depend on the weights: then neither does the sum of all steps on their
 * order. */
static float given(int32_t rank, int64_t iteration, int32_t micro, size_t element,
                   float weight) {
    (void)weight;
    return rig_pull(rank, iteration, micro, element, 0);
}

static void near(const float *a, const float *b, const char *what, int32_t rank) {
    for (size_t i = 0; i < job.cut.count - RIG_TAIL; i++)
        ck_assert_msg(fabsf(a[i] - b[i]) <= 2e-5f,
                      "rank %d, %s: [%zu] is %.9g, not %.9g", rank, what, i,
                      (double)a[i], (double)b[i]);
}

static void expect_sgd(rig_rank *rank, int64_t iteration) {
    rig_meet(rank, iteration);
    near(rank->weights, weights_of[iteration], "weights", rank->me);
}

static void out_of_step(rig_rank *rank) {
    rig_iterations(rank, 0, SAVED);
    expect_sgd(rank, SAVED);
    rig_iterations(rank, SAVED, ITERATIONS);
    expect_sgd(rank, ITERATIONS);
    near(rank->slot[0], sgd.rank.slot[0], "velocity", rank->me);
}

static void all_alike(void) {
    for (int32_t r = 1; r < job.ranks; r++) {
        same_bits(job.rank[r].weights, job.rank[0].weights, "weights", r, ITERATIONS);
        same_bits(job.rank[r].slot[0], job.rank[0].slot[0], "velocity", r, ITERATIONS);
    }
}

static const char *const fixed[] = {"rate=0.05", "momentum=0.8", "nesterov=yes", NULL};

static const struct {
    int32_t ranks;
    const char *staleness, *more;
} stale[] = {
    {2, "staleness=1", NULL},           {3, "staleness=3", NULL},
    {4, "staleness=inf", NULL},         {4, "staleness=2", "groups=2"},
    {5, "staleness=3", "servers=2"},    {3, "staleness=inf", "servers=1"},
    {5, "staleness=1", "groups=2"},     {3, "staleness=3", "groups=1"},
    {2, "staleness=1", "accumulate=2"},
};

START_TEST(adds_all_steps_up) {
    rig_cut cut;
    int micro = stale[_i].more && strstr(stale[_i].more, "accumulate") != NULL;
    rig_cut_make(7 + (uint64_t)_i, 200, 1 + _i % 4, &cut);
    rig_open(&job, stale[_i].ranks, stale[_i].ranks - 1, &cut,
             with(fixed, stale[_i].staleness, stale[_i].more));
    job.gradient = given;
    set_late(_i % 2);
    job.shares = (const int64_t[]){5, 3, 0, 9, 1};
    job.sim.delay = 200e-6;
    job.pause = 300e-6;
    run_sgd(with(fixed, micro ? stale[_i].more : NULL, NULL));
    rig_run(&job, out_of_step);
    all_alike();
    rig_reference_close(&sgd);
    rig_close(&job);
}
END_TEST

/* What is far away gets the weights of the meeting last: the others must not have gone
 * on by then. */
static void meets_often(rig_rank *rank) {
    for (int64_t i = 0; i < 30; i += 5) {
        rig_iterations(rank, i, i + 5);
        expect_sgd(rank, i + 5);
    }
}

START_TEST(nobody_leaves_a_meeting_early) {
    rig_cut cut;
    rig_cut_make(3, 200, 2, &cut);
    rig_open(
        &job, 4, 4, &cut,
        with(fixed, _i ? "staleness=inf" : "staleness=2", _i ? "servers=1" : NULL));
    job.gradient = given;
    job.sim.far = 3e-3;
    run_sgd(fixed);
    rig_run(&job, meets_often);
    rig_reference_close(&sgd);
    rig_close(&job);
}
END_TEST

/* Weight decay sees old weights, so that it differs a little; not more. */
static void decays(rig_rank *rank) {
    rig_iterations(rank, 0, ITERATIONS);
    rig_meet(rank, ITERATIONS);
    for (size_t i = 0; i < job.cut.count - RIG_TAIL; i++)
        ck_assert_float_eq_tol(rank->weights[i], weights_of[ITERATIONS][i], 2e-2f);
}

START_TEST(decays_once_not_once_a_rank) {
    static const char *const sets[] = {"rate=0.02", "weight_decay=0.1", "accumulate=2",
                                       "momentum=0.5", NULL};
    rig_cut cut;
    rig_cut_make(31, 200, 3, &cut);
    rig_open(&job, 4, 4, &cut, with(sets, "staleness=1", NULL));
    job.gradient = given;
    run_sgd(sets);
    rig_run(&job, decays);
    all_alike();
    rig_reference_close(&sgd);
    rig_close(&job);
}
END_TEST

/* ---- Another staleness ------------------------------------------------------- */

static dlc_settings *other[3];

static void configure(rig_rank *rank, int i) {
    ck_assert_msg(job.ops->configure(rank->solver, other[i]) == DLC_OK, "%s",
                  dlc_detail());
}

static void changes(rig_rank *rank) {
    rig_iterations(rank, 0, 40);
    expect_sgd(rank, 40);
    configure(rank, 0);
    rig_iterations(rank, 40, 80);
    expect_sgd(rank, 80);
    configure(rank, 1);
    rig_iterations(rank, 80, 120);
    expect_sgd(rank, 120);
    ck_assert_int_eq(job.ops->configure(rank->solver, other[2]), DLC_ERR_CONFIG);
    configure(rank, 0);
    rig_iterations(rank, 120, ITERATIONS);
    expect_sgd(rank, ITERATIONS);
    near(rank->slot[0], sgd.rank.slot[0], "velocity", rank->me);
}

START_TEST(changes_while_it_runs) {
    static const char *const stalenesses[2][3] = {
        {"staleness=0", "staleness=inf", "staleness=0"},
        {"staleness=3", "staleness=0", "staleness=3"}};
    rig_cut cut;
    rig_cut_make(12, 250, 3, &cut);
    rig_open(&job, 4, 2, &cut,
             with(fixed, stalenesses[_i % 2][0], _i > 1 ? "servers=1" : NULL));
    job.gradient = given;
    job.sim.delay = 100e-6;
    const dlc_feature *feature = plugin_find(DLC_KIND_SOLVER, "ssp");
    other[0] = plugin_settings(feature, with(fixed, stalenesses[_i % 2][1], NULL));
    other[1] = plugin_settings(feature, with(fixed, stalenesses[_i % 2][2], NULL));
    other[2] = plugin_settings(feature, with(fixed, "staleness=1.5", NULL));
    run_sgd(fixed);
    rig_run(&job, changes);
    all_alike();
    for (int i = 0; i < 3; i++)
        dlc_settings_free(other[i]);
    rig_reference_close(&sgd);
    rig_close(&job);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ssp steps");
    TCase *all = tcase_create("all");
    tcase_add_loop_test(all, in_step_to_the_bit, 0, sizeof shapes / sizeof *shapes);
    tcase_add_test(all, owns_by_shares);
    tcase_add_test(all, goes_on_to_the_bit);
    tcase_add_loop_test(all, adds_all_steps_up, 0, sizeof stale / sizeof *stale);
    tcase_add_loop_test(all, nobody_leaves_a_meeting_early, 0, 2);
    tcase_add_test(all, decays_once_not_once_a_rank);
    tcase_add_loop_test(all, changes_while_it_runs, 0, 4);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
