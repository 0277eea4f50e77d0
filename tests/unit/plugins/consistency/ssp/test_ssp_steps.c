/* The weights and slots that ssp computes, for rules of any number of slots: bitwise
 * identical to synchronous training without staleness; with it the mean of the workers'
 * steps, up to rounding. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "config/config.h"
#include "reference.h"
#include "support/plugins.h"
#include "support/test.h"

enum { ITERATIONS = 200, SAVED = 90 };

static test_fixture job;
static reference expected;

/* The reference after each iteration. */
static float weights_of[ITERATIONS + 1][FIXTURE_COUNT_MAX];
static float slots_of[ITERATIONS + 1][DLC_MAX_SLOTS][FIXTURE_COUNT_MAX];
static float losses[ITERATIONS];

/* ---- Rules ------------------------------------------------------------------- */

enum { PLAIN, MOMENTUM, NESTEROV, ADAM, FOUR, RULES };

/* With everything that a rule can have. */
static rules_choice rich[RULES] = {
    [PLAIN] = {.learning_rate = 0.1f, .gamma = 1, .weight_decay = 0.01f},
    [MOMENTUM] = {.learning_rate = 0.1f,
                  .gamma = 1,
                  .weight_decay = 0.01f,
                  .own = {0.9f}},
    [NESTEROV] = {.learning_rate = 0.1f,
                  .gamma = 0.99f,
                  .weight_decay = 0.01f,
                  .own = {0.9f, 1}},
    [ADAM] = {.learning_rate = 0.02f,
              .gamma = 0.99f,
              .weight_decay = 0.01f,
              .own = {0.9f, 0.99f, 1e-6f}},
    [FOUR] = {.learning_rate = 0.05f,
              .gamma = 0.98f,
              .weight_decay = 0.01f,
              .initial = {0, 0.125f, 0.25f, 0.5f}},
};

/* Whose steps don't depend on the weights, so that the sum of all steps doesn't depend
 * on their order. */
static rules_choice fixed[RULES] = {
    [PLAIN] = {.learning_rate = 0.05f, .gamma = 1},
    [MOMENTUM] = {.learning_rate = 0.05f, .gamma = 1, .own = {0.8f}},
    [NESTEROV] = {.learning_rate = 0.05f, .gamma = 1, .own = {0.8f, 1}},
    [ADAM] = {.learning_rate = 0.01f, .gamma = 0.99f, .own = {0.9f, 0.99f, 1e-3f}},
    [FOUR] = {.learning_rate = 0.02f, .gamma = 1, .initial = {0, 0.125f, 0.25f, 0.5f}},
};

static void set_rules(void) {
    const dlc_rule *const rule[RULES] = {[PLAIN] = rules_plain,
                                         [MOMENTUM] = rules_momentum,
                                         [NESTEROV] = rules_momentum,
                                         [ADAM] = rules_adam,
                                         [FOUR] = rules_four};
    for (int i = 0; i < RULES; i++)
        rich[i].rule = fixed[i].rule = rule[i];
}

/* Every case runs twice: with Adam, and with one of the others in turn. */
static int rule_of(int i) {
    static const int others[] = {PLAIN, MOMENTUM, NESTEROV, FOUR};
    return i % 2 ? ADAM : others[i / 2 % 4];
}

/* A rule that is linear in gradient and slots: with staleness, too, its steps add up to
 * those of synchronous training. */
static int is_linear(int rule) {
    return rule <= NESTEROV;
}

/* ---- The reference ----------------------------------------------------------- */

static void note_reference(int64_t done) {
    memcpy(weights_of[done], expected.weights, sizeof expected.weights);
    memcpy(slots_of[done], expected.slot, sizeof expected.slot);
}

/* One iteration of the reference; all ranks synchronize after it if `synchronizes`. */
static void step_reference(int64_t iteration, int is_stale, int synchronizes) {
    if (is_stale)
        reference_iterate_stale(&expected, iteration);
    else
        reference_iterate(&expected, iteration);
    if (is_stale && synchronizes)
        reference_synchronize_stale(&expected);
    losses[iteration] = expected.loss;
    note_reference(iteration + 1);
}

/* Each worker steps on its own, and all synchronize after every `interval` iterations,
 * if `is_stale`. */
static void run_reference(int is_stale, int64_t interval) {
    reference_open(&expected, &job);
    note_reference(0);
    for (int64_t i = 0; i < ITERATIONS; i++)
        step_reference(i, is_stale, (i + 1) % interval == 0);
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

static void expect_same_slots(const fixture_rank *rank,
                              float (*slot)[FIXTURE_COUNT_MAX], int64_t iteration) {
    static const char *const names[] = {"slot 0", "slot 1", "slot 2", "slot 3"};
    for (int i = 0; i < job.updater.slots; i++)
        expect_same_bits(rank->slot[i], slot[i], names[i], rank->me, iteration);
}

/* ---- Without staleness ------------------------------------------------------- */

static void iterate_and_compare(fixture_rank *rank, int64_t from, int64_t to) {
    int is_worker = rank->me < fixture_workers(&job);
    for (int64_t i = from; i < to; i++) {
        float control[FIXTURE_CONTROL_WORDS] = {is_worker ? fixture_loss(rank->me, i)
                                                          : 0};
        if (fixture_iterate(rank, i, control) != DLC_OK)
            ck_abort_msg("%s", dlc_detail());
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
    expect_same_slots(rank, slots_of[ITERATIONS], ITERATIONS);
}

static const struct {
    int32_t ranks, on_first;
    const char *set[2];
    int deferred;
    const int64_t *batch_split;
} shapes[] = {
    {2, 2, {NULL}, 0, NULL},
    {3, 3, {NULL}, 1, NULL},
    {4, 4, {NULL}, 0, NULL},
    {4, 2, {NULL}, 1, NULL},
    {4, 3, {NULL}, 0, NULL},
    {3, 3, {"servers=1"}, 1, NULL},
    {5, 2, {"servers=2"}, 0, NULL},
    {4, 3, {"servers=1"}, 1, (const int64_t[]){9, 1, 5, 0}},
    {1, 1, {NULL}, 0, NULL},
    {1, 1, {"staleness=2"}, 1, (const int64_t[]){64}},
    {3, 1, {"servers=2"}, 0, NULL},
    {8, 5, {NULL}, 1, NULL},
    {3, 3, {NULL}, 1, (const int64_t[]){28, 28, 8}},
    {4, 2, {NULL}, 0, (const int64_t[]){1, 0, 7, 2}},
};

static void set_deferred(int deferred) {
    for (int32_t r = 0; r < FAKE_RANKS_MAX; r++)
        job.rank[r].deferred = deferred;
}

TEST_SETTINGS(.timeout = 30);

TEST_EACH(bitwise_identical_to_synchronous, 2 * COUNT(shapes)) {
    fixture_cut cut;
    int shape = _i / 2;
    set_rules();
    fixture_cut_make((uint64_t)_i, 150 + 40 * (size_t)shape, 1 + shape % 5, &cut);
    fixture_open(&job, shapes[shape].ranks, shapes[shape].on_first, &cut,
                 &rich[rule_of(_i)], shapes[shape].set);
    set_deferred(shapes[shape].deferred);
    job.batch_split = shapes[shape].batch_split;
    job.fake.delay = shape % 3 ? 0 : 100e-6;
    run_reference(0, ITERATIONS);
    fixture_run(&job, to_the_end);
    fixture_close(&job);
}

/* A rank with fewer samples owns proportionally less, so it is sent less of what goes
 * to owners. A rank without samples is sent only weights and headers. */
static void few_iterations(fixture_rank *rank) {
    fixture_iterations(rank, 0, 10);
    fixture_synchronize(rank, 10);
}

TEST(owns_by_batch_split) {
    static const char *const none[] = {NULL};
    fixture_cut cut;
    set_rules();
    fixture_cut_make(5, 3000, 2, &cut);
    fixture_open(&job, 3, 3, &cut, &rich[MOMENTUM], none);
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

/* ---- Resuming ---------------------------------------------------------------- */

static void to_a_checkpoint(fixture_rank *rank) {
    iterate_and_compare(rank, 0, SAVED);
    fixture_synchronize(rank, SAVED);
}

/* Resumes with as many workers, with a server, from a synchronized job. */
TEST_EACH(resumes_bitwise_identical, RULES) {
    static const char *const none[] = {NULL}, *const servers[] = {"servers=1", NULL};
    fixture_cut cut;
    set_rules();
    fixture_cut_make(99, 300, 3, &cut);
    fixture_open(&job, 3, 3, &cut, &rich[_i], none);
    run_reference(0, ITERATIONS);
    fixture_run(&job, to_a_checkpoint);
    job.first = SAVED;
    fixture_reopen(&job, 4, 4, servers);
    fixture_run(&job, to_the_end);
    fixture_close(&job);
}

/* ---- With staleness ---------------------------------------------------------- */

/* Independent of the weights. */
static float given(int32_t rank, int64_t iteration, size_t element, float weight) {
    (void)weight;
    return fixture_pull(rank, iteration, element, 0);
}

static void near(const float *a, const float *b, const char *what, int32_t rank) {
    for (size_t i = 0; i < job.cut.count - FIXTURE_CONTROL_WORDS; i++)
        if (!(fabsf(a[i] - b[i]) <= 2e-5f))
            ck_abort_msg("rank %d, %s: [%zu] is %.9g, not %.9g", rank, what, i,
                         (double)a[i], (double)b[i]);
}

/* Parameters that are never updated, and padding, must not even be rounded. */
static void expect_frozen(const fixture_rank *rank) {
    for (size_t i = 0; i < job.cut.count - FIXTURE_CONTROL_WORDS; i++)
        if (job.cut.frozen[i] && bits(rank->weights[i]) != bits(weights_of[0][i]))
            ck_abort_msg("rank %d: frozen weight %zu is %.9g, was %.9g", rank->me, i,
                         (double)rank->weights[i], (double)weights_of[0][i]);
}

static void expect_reference(fixture_rank *rank, int64_t iteration) {
    fixture_synchronize(rank, iteration);
    near(rank->weights, weights_of[iteration], "weights", rank->me);
    for (int i = 0; i < job.updater.slots; i++)
        near(rank->slot[i], slots_of[iteration][i], "slot", rank->me);
    expect_frozen(rank);
}

static void with_staleness(fixture_rank *rank) {
    for (int64_t i = 0; i < ITERATIONS; i += 50) {
        fixture_iterations(rank, i, i + 50);
        expect_reference(rank, i + 50);
    }
}

static void expect_all_equal(void) {
    for (int32_t r = 1; r < job.ranks; r++) {
        expect_same_bits(job.rank[r].weights, job.rank[0].weights, "weights", r,
                         ITERATIONS);
        expect_same_slots(&job.rank[r], job.rank[0].slot, ITERATIONS);
    }
}

static const struct {
    int32_t ranks;
    const char *set[3];
} stale[] = {
    {2, {"staleness=1"}},
    {3, {"staleness=3"}},
    {4, {"staleness=inf"}},
    {4, {"staleness=2", "groups=2"}},
    {5, {"staleness=3", "servers=2"}},
    {3, {"staleness=inf", "servers=1"}},
    {5, {"staleness=1", "groups=2"}},
    {3, {"staleness=3", "groups=1"}},
};

TEST_EACH(applies_every_step_once, 2 * COUNT(stale)) {
    fixture_cut cut;
    int shape = _i / 2, rule = rule_of(_i);
    set_rules();
    fixture_cut_make(7 + (uint64_t)_i, 200, 1 + shape % 4, &cut);
    fixture_open(&job, stale[shape].ranks, stale[shape].ranks - 1, &cut, &fixed[rule],
                 stale[shape].set);
    job.gradient = given;
    set_deferred(shape % 2);
    job.batch_split = (const int64_t[]){5, 3, 0, 9, 1};
    job.fake.delay = 200e-6;
    job.pause = 300e-6;
    run_reference(!is_linear(rule), 50);
    fixture_run(&job, with_staleness);
    expect_all_equal();
    fixture_close(&job);
}

/* The distant rank receives the weights of a synchronization last: no other rank may
 * have changed them by then. */
static void synchronizes_often(fixture_rank *rank) {
    for (int64_t i = 0; i < 30; i += 5) {
        fixture_iterations(rank, i, i + 5);
        expect_reference(rank, i + 5);
    }
}

TEST_EACH(no_rank_leaves_a_synchronization_early, 2 * 2) {
    static const char *const sets[2][3] = {{"staleness=2"},
                                           {"staleness=inf", "servers=1"}};
    fixture_cut cut;
    int rule = rule_of(_i);
    set_rules();
    fixture_cut_make(3, 200, 2, &cut);
    fixture_open(&job, 4, 4, &cut, &fixed[rule], sets[_i / 2]);
    job.gradient = given;
    job.fake.far = 3e-3;
    run_reference(!is_linear(rule), 5);
    fixture_run(&job, synchronizes_often);
    fixture_close(&job);
}

/* Weight decay sees older weights, so the result differs a little, but only a little.
 */
static void decays(fixture_rank *rank) {
    fixture_iterations(rank, 0, ITERATIONS);
    fixture_synchronize(rank, ITERATIONS);
    for (size_t i = 0; i < job.cut.count - FIXTURE_CONTROL_WORDS; i++)
        ck_assert_float_eq_tol(rank->weights[i], weights_of[ITERATIONS][i], 2e-2f);
}

TEST(decays_once_not_once_a_rank) {
    static const char *const sets[] = {"staleness=1", NULL};
    static rules_choice choice = {
        .learning_rate = 0.02f, .gamma = 1, .weight_decay = 0.1f, .own = {0.5f}};
    fixture_cut cut;
    choice.rule = rules_momentum;
    fixture_cut_make(31, 200, 3, &cut);
    fixture_open(&job, 4, 4, &cut, &choice, sets);
    job.gradient = given;
    run_reference(0, ITERATIONS);
    fixture_run(&job, decays);
    expect_all_equal();
    fixture_close(&job);
}

/* ---- Changing the staleness -------------------------------------------------- */

enum { PERIOD = 40, PERIODS = ITERATIONS / PERIOD };

static dlc_settings *other[3];

static void configure(fixture_rank *rank, int i) {
    ck_assert_msg(job.ops->configure(rank->model, other[i]) == DLC_OK, "%s",
                  dlc_detail());
}

static void changes(fixture_rank *rank) {
    for (int64_t i = 0; i < PERIODS; i++) {
        if (i > 0)
            configure(rank, (int)(i % 2));
        ck_assert_int_eq(job.ops->configure(rank->model, other[2]), DLC_ERR_CONFIG);
        fixture_iterations(rank, i * PERIOD, (i + 1) * PERIOD);
        expect_reference(rank, (i + 1) * PERIOD);
    }
}

static void run_reference_that_changes(int first_is_stale) {
    reference_open(&expected, &job);
    note_reference(0);
    for (int64_t i = 0; i < ITERATIONS; i++)
        step_reference(i, (i / PERIOD % 2 == 0) == first_is_stale,
                       (i + 1) % PERIOD == 0);
}

TEST_EACH(changes_while_it_runs, 2 * 4) {
    static const char *const stalenesses[] = {"staleness=0", "staleness=inf",
                                              "staleness=3", "staleness=1.5"};
    const dlc_feature *feature = plugin_find(DLC_KIND_CONSISTENCY, "ssp");
    int shape = _i / 2, from_stale = shape % 2;
    const char *set[3] = {stalenesses[from_stale ? 2 : 0],
                          shape > 1 ? "servers=1" : NULL, NULL};
    const char *const to[3][2] = {{stalenesses[from_stale ? 2 : 0]},
                                  {stalenesses[from_stale ? 0 : 1]},
                                  {stalenesses[3]}};
    fixture_cut cut;
    set_rules();
    fixture_cut_make(12, 250, 3, &cut);
    fixture_open(&job, 4, 2, &cut, &fixed[rule_of(_i)], set);
    job.gradient = given;
    job.fake.delay = 100e-6;
    for (int i = 0; i < 3; i++)
        other[i] = plugin_settings(feature, to[i]);
    run_reference_that_changes(from_stale);
    fixture_run(&job, changes);
    expect_all_equal();
    for (int i = 0; i < 3; i++)
        dlc_settings_free(other[i]);
    fixture_close(&job);
}

/* ---- Losses ------------------------------------------------------------------ */

/* Every sample has a loss of 1, also where others have not given theirs yet. */
static void loses_one(fixture_rank *rank) {
    int is_worker = rank->me < fixture_workers(&job);
    float share = is_worker ? (float)fixture_share(&job, rank->me) : 0;
    for (int64_t i = 0; i < 8; i++) {
        float control[FIXTURE_CONTROL_WORDS] = {share};
        if (fixture_iterate(rank, i, control) != DLC_OK)
            ck_abort_msg("%s", dlc_detail());
        if (share > 0 && !(fabsf(control[0] - 1) < 1e-6f))
            ck_abort_msg("rank %d, iteration %lld: a loss of %g, not 1", rank->me,
                         (long long)i, (double)control[0]);
    }
    fixture_synchronize(rank, 8);
}

TEST_EACH(shows_the_loss_of_all_samples, 2 * 4) {
    static const int64_t uneven[] = {9, 1, 4, 2};
    static const char *const sets[][3] = {{"staleness=2"},
                                          {"staleness=inf"},
                                          {"staleness=1", "groups=2"},
                                          {"staleness=3", "servers=1"}};
    fixture_cut cut;
    set_rules();
    fixture_cut_make((uint64_t)_i, 300, 3, &cut);
    fixture_open(&job, 4, 2, &cut, &fixed[MOMENTUM], sets[_i / 2]);
    job.batch_split = _i % 2 ? uneven : NULL;
    job.pause = 2e-3;
    fixture_run(&job, loses_one);
    fixture_close(&job);
}
