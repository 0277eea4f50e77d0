/* The weights that solver ssp computes: bitwise identical to sgd's without staleness,
 * equal up to rounding otherwise. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "config/config.h"
#include "fixture.h"
#include "support/plugins.h"

enum { ITERATIONS = 200, SAVED = 90 };

static test_fixture job;
static fixture_reference sgd;

/* sgd's weights after each iteration. */
static float weights_of[ITERATIONS + 1][FIXTURE_COUNT_MAX];
static float losses[ITERATIONS];

static const char *const plain[] = {"learning_rate=0.1", "weight_decay=0.01", NULL};
static const char *const rich[] = {"learning_rate=0.1",
                                   "weight_decay=0.01",
                                   "accumulation_steps=3",
                                   "nesterov=yes",
                                   "policy=exp",
                                   "gamma=0.99",
                                   NULL};

/* Appends one or two settings to `sets`. */
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
    fixture_reference_open(&sgd, &job, sets);
    memcpy(weights_of[0], sgd.rank.weights, sizeof weights_of[0]);
    for (int64_t i = 0; i < ITERATIONS; i++) {
        fixture_reference_iterate(&sgd, i);
        memcpy(weights_of[i + 1], sgd.rank.weights, sizeof weights_of[0]);
        losses[i] = sgd.loss;
    }
}

static uint32_t bits(float value) {
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    return word;
}

static void expect_same_bits(const float *a, const float *b, const char *what,
                             int32_t rank, int64_t iteration) {
    for (size_t i = 0; i < job.cut.count - FIXTURE_CONTROL_WORDS; i++)
        if (bits(a[i]) != bits(b[i]))
            ck_abort_msg("rank %d, %s after iteration %lld: [%zu] is %.9g, not %.9g",
                         rank, what, (long long)iteration, i, (double)a[i],
                         (double)b[i]);
}

static void iterate_and_compare(fixture_rank *rank, int64_t from, int64_t to) {
    int is_worker = rank->me < job.ranks - job.servers;
    for (int64_t i = from; i < to; i++) {
        float control[FIXTURE_CONTROL_WORDS] = {is_worker ? fixture_loss(rank->me, i)
                                                          : 0};
        ck_assert_msg(fixture_iterate(rank, i, control) == DLC_OK, "%s", dlc_detail());
        if (is_worker)
            expect_same_bits(rank->weights, weights_of[i + 1], "weights", rank->me, i);
        if (is_worker) /* a server may have received the next loss already */
            ck_assert_mem_eq(control, &losses[i], sizeof *control);
    }
}

static void to_the_end(fixture_rank *rank) {
    iterate_and_compare(rank, job.first, ITERATIONS);
    fixture_synchronize(rank, ITERATIONS);
    expect_same_bits(rank->weights, weights_of[ITERATIONS], "weights", rank->me,
                     ITERATIONS);
    expect_same_bits(rank->slot[0], sgd.rank.slot[0], "velocity", rank->me, ITERATIONS);
}

static const struct {
    int32_t ranks, on_first;
    const char *servers;
    int deferred, rich;
    const int64_t *batch_split;
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

static void set_deferred(int deferred) {
    for (int32_t r = 0; r < FAKE_RANKS_MAX; r++)
        job.rank[r].deferred = deferred;
}

START_TEST(bitwise_identical_to_sgd) {
    fixture_cut cut;
    const char *const *sets = shapes[_i].rich ? rich : plain;
    fixture_cut_make((uint64_t)_i, 150 + 40 * (size_t)_i, 1 + _i % 5, &cut);
    fixture_open(&job, shapes[_i].ranks, shapes[_i].on_first, &cut,
                 with(sets, shapes[_i].servers, NULL));
    set_deferred(shapes[_i].deferred);
    job.batch_split = shapes[_i].batch_split;
    job.fake.delay = _i % 3 ? 0 : 100e-6;
    run_sgd(sets);
    fixture_run(&job, to_the_end);
    fixture_reference_close(&sgd);
    fixture_close(&job);
}
END_TEST

/* A rank with fewer samples owns proportionally less, so it is sent less of what goes
 * to owners. A rank without samples is sent only weights and headers. */
static void few_iterations(fixture_rank *rank) {
    fixture_iterations(rank, 0, 10);
    fixture_synchronize(rank, 10);
}

START_TEST(owns_by_batch_split) {
    fixture_cut cut;
    fixture_cut_make(5, 3000, 2, &cut);
    fixture_open(&job, 3, 3, &cut, with(plain, NULL, NULL));
    job.batch_split = (const int64_t[]){6, 6, 0};
    fixture_run(&job, few_iterations);
    size_t arena = 10 * sizeof(float) * (job.cut.count - FIXTURE_CONTROL_WORDS);
    /* Half of the gradients twice, and the other half of the weights. */
    ck_assert_uint_gt(job.fake.rank[0].sent, arena * 3 / 2);
    ck_assert_uint_gt(job.fake.rank[1].sent, arena * 3 / 2);
    /* Both halves of the weights, and those of one synchronization. */
    ck_assert_uint_lt(job.fake.rank[2].sent, arena * 3 / 2);
    fixture_close(&job);
}
END_TEST

/* ---- Resuming ---------------------------------------------------------------- */

static void to_a_checkpoint(fixture_rank *rank) {
    iterate_and_compare(rank, 0, SAVED);
    fixture_synchronize(rank, SAVED);
}

/* Resumes with as many workers, with a server, from a synchronized job. */
START_TEST(resumes_bitwise_identical) {
    fixture_cut cut;
    fixture_cut_make(99, 300, 3, &cut);
    fixture_open(&job, 3, 3, &cut, plain);
    run_sgd(plain);
    fixture_run(&job, to_a_checkpoint);
    job.first = SAVED;
    fixture_reopen(&job, 4, 4, with(plain, "servers=1", NULL));
    fixture_run(&job, to_the_end);
    fixture_reference_close(&sgd);
    fixture_close(&job);
}
END_TEST

/* ---- With staleness ---------------------------------------------------------- */

/* Independent of the weights, so the sum of all steps does not depend on their order.
 */
static float given(int32_t rank, int64_t iteration, int32_t micro, size_t element,
                   float weight) {
    (void)weight;
    return fixture_pull(rank, iteration, micro, element, 0);
}

static void near(const float *a, const float *b, const char *what, int32_t rank) {
    for (size_t i = 0; i < job.cut.count - FIXTURE_CONTROL_WORDS; i++)
        ck_assert_msg(fabsf(a[i] - b[i]) <= 2e-5f,
                      "rank %d, %s: [%zu] is %.9g, not %.9g", rank, what, i,
                      (double)a[i], (double)b[i]);
}

static void expect_sgd(fixture_rank *rank, int64_t iteration) {
    fixture_synchronize(rank, iteration);
    near(rank->weights, weights_of[iteration], "weights", rank->me);
}

static void with_staleness(fixture_rank *rank) {
    fixture_iterations(rank, 0, SAVED);
    expect_sgd(rank, SAVED);
    fixture_iterations(rank, SAVED, ITERATIONS);
    expect_sgd(rank, ITERATIONS);
    near(rank->slot[0], sgd.rank.slot[0], "velocity", rank->me);
}

static void expect_all_equal(void) {
    for (int32_t r = 1; r < job.ranks; r++) {
        expect_same_bits(job.rank[r].weights, job.rank[0].weights, "weights", r,
                         ITERATIONS);
        expect_same_bits(job.rank[r].slot[0], job.rank[0].slot[0], "velocity", r,
                         ITERATIONS);
    }
}

static const char *const fixed[] = {"learning_rate=0.05", "momentum=0.8",
                                    "nesterov=yes", NULL};

static const struct {
    int32_t ranks;
    const char *staleness, *more;
} stale[] = {
    {2, "staleness=1", NULL},
    {3, "staleness=3", NULL},
    {4, "staleness=inf", NULL},
    {4, "staleness=2", "groups=2"},
    {5, "staleness=3", "servers=2"},
    {3, "staleness=inf", "servers=1"},
    {5, "staleness=1", "groups=2"},
    {3, "staleness=3", "groups=1"},
    {2, "staleness=1", "accumulation_steps=2"},
};

START_TEST(applies_every_step_once) {
    fixture_cut cut;
    int micro = stale[_i].more && strstr(stale[_i].more, "accumulation_steps") != NULL;
    fixture_cut_make(7 + (uint64_t)_i, 200, 1 + _i % 4, &cut);
    fixture_open(&job, stale[_i].ranks, stale[_i].ranks - 1, &cut,
                 with(fixed, stale[_i].staleness, stale[_i].more));
    job.gradient = given;
    set_deferred(_i % 2);
    job.batch_split = (const int64_t[]){5, 3, 0, 9, 1};
    job.fake.delay = 200e-6;
    job.pause = 300e-6;
    run_sgd(with(fixed, micro ? stale[_i].more : NULL, NULL));
    fixture_run(&job, with_staleness);
    expect_all_equal();
    fixture_reference_close(&sgd);
    fixture_close(&job);
}
END_TEST

/* The distant rank receives the weights of a synchronization last: no other rank may
 * have changed them by then. */
static void synchronizes_often(fixture_rank *rank) {
    for (int64_t i = 0; i < 30; i += 5) {
        fixture_iterations(rank, i, i + 5);
        expect_sgd(rank, i + 5);
    }
}

START_TEST(no_rank_leaves_a_synchronization_early) {
    fixture_cut cut;
    fixture_cut_make(3, 200, 2, &cut);
    fixture_open(
        &job, 4, 4, &cut,
        with(fixed, _i ? "staleness=inf" : "staleness=2", _i ? "servers=1" : NULL));
    job.gradient = given;
    job.fake.far = 3e-3;
    run_sgd(fixed);
    fixture_run(&job, synchronizes_often);
    fixture_reference_close(&sgd);
    fixture_close(&job);
}
END_TEST

/* Weight decay sees older weights, so the result differs a little, but only a little.
 */
static void decays(fixture_rank *rank) {
    fixture_iterations(rank, 0, ITERATIONS);
    fixture_synchronize(rank, ITERATIONS);
    for (size_t i = 0; i < job.cut.count - FIXTURE_CONTROL_WORDS; i++)
        ck_assert_float_eq_tol(rank->weights[i], weights_of[ITERATIONS][i], 2e-2f);
}

START_TEST(decays_once_not_once_a_rank) {
    static const char *const sets[] = {"learning_rate=0.02", "weight_decay=0.1",
                                       "accumulation_steps=2", "momentum=0.5", NULL};
    fixture_cut cut;
    fixture_cut_make(31, 200, 3, &cut);
    fixture_open(&job, 4, 4, &cut, with(sets, "staleness=1", NULL));
    job.gradient = given;
    run_sgd(sets);
    fixture_run(&job, decays);
    expect_all_equal();
    fixture_reference_close(&sgd);
    fixture_close(&job);
}
END_TEST

/* ---- Changing the staleness -------------------------------------------------- */

static dlc_settings *other[3];

static void configure(fixture_rank *rank, int i) {
    ck_assert_msg(job.ops->configure(rank->solver, other[i]) == DLC_OK, "%s",
                  dlc_detail());
}

static void changes(fixture_rank *rank) {
    fixture_iterations(rank, 0, 40);
    expect_sgd(rank, 40);
    configure(rank, 0);
    fixture_iterations(rank, 40, 80);
    expect_sgd(rank, 80);
    configure(rank, 1);
    fixture_iterations(rank, 80, 120);
    expect_sgd(rank, 120);
    ck_assert_int_eq(job.ops->configure(rank->solver, other[2]), DLC_ERR_CONFIG);
    configure(rank, 0);
    fixture_iterations(rank, 120, ITERATIONS);
    expect_sgd(rank, ITERATIONS);
    near(rank->slot[0], sgd.rank.slot[0], "velocity", rank->me);
}

START_TEST(changes_while_it_runs) {
    static const char *const stalenesses[2][3] = {
        {"staleness=0", "staleness=inf", "staleness=0"},
        {"staleness=3", "staleness=0", "staleness=3"}};
    fixture_cut cut;
    fixture_cut_make(12, 250, 3, &cut);
    fixture_open(&job, 4, 2, &cut,
                 with(fixed, stalenesses[_i % 2][0], _i > 1 ? "servers=1" : NULL));
    job.gradient = given;
    job.fake.delay = 100e-6;
    const dlc_feature *feature = plugin_find(DLC_KIND_SOLVER, "ssp");
    other[0] = plugin_settings(feature, with(fixed, stalenesses[_i % 2][1], NULL));
    other[1] = plugin_settings(feature, with(fixed, stalenesses[_i % 2][2], NULL));
    other[2] = plugin_settings(feature, with(fixed, "staleness=1.5", NULL));
    run_sgd(fixed);
    fixture_run(&job, changes);
    expect_all_equal();
    for (int i = 0; i < 3; i++)
        dlc_settings_free(other[i]);
    fixture_reference_close(&sgd);
    fixture_close(&job);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ssp steps");
    TCase *all = tcase_create("all");
    tcase_add_loop_test(all, bitwise_identical_to_sgd, 0,
                        sizeof shapes / sizeof *shapes);
    tcase_add_test(all, owns_by_batch_split);
    tcase_add_test(all, resumes_bitwise_identical);
    tcase_add_loop_test(all, applies_every_step_once, 0, sizeof stale / sizeof *stale);
    tcase_add_loop_test(all, no_rank_leaves_a_synchronization_early, 0, 2);
    tcase_add_test(all, decays_once_not_once_a_rank);
    tcase_add_loop_test(all, changes_while_it_runs, 0, 4);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
