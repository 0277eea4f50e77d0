/* Every learning-rate policy against its closed form, what is refused, and what is said
 * about the learning rates of a whole job. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "config/config.h"
#include "solver/plateau.h"
#include "solver/solver.h"
#include "support/test.h"

/* The settings of [solver] and the policy of a job. */
typedef struct fixture {
    dlc_config *config;
    dlc_problems problems;
    dlc_settings *settings;
    dlc_lr_policy policy;
    dlc_lr_job job;
} fixture;

static fixture r;

/* Options of a solver beside the core's, or these alone; and its needs. */
static const dlc_option *table = dlc_solver_options;
static const char *momentum_name;

static void no_rule(const dlc_rule_step *step, size_t n, const float *gradient,
                    float *const *slots, float *weight) {
    (void)step, (void)n, (void)gradient, (void)slots, (void)weight;
}

/* Reads settings "solver.KEY=VALUE". */
static void open_settings(const char *const *sets, size_t count) {
    static const char *const reserved[] = {"solver", NULL};
    const dlc_option *const tables[] = {dlc_solver_options, table};
    size_t used = table == dlc_solver_options ? 1 : 2;
    r = (fixture){.job = {.max_iterations = -1,
                          .epoch_iterations = 100,
                          .batch = 64,
                          .effective_batch = 64}};
    ck_assert_int_eq(
        dlc_config_load(NULL, reserved, sets, count, &r.problems, &r.config), DLC_OK);
    ck_assert_int_eq(
        dlc_settings_make(r.config, "solver", tables, used, &r.problems, &r.settings),
        DLC_OK);
    ck_assert_msg(dlc_problems_report(&r.problems) == DLC_OK, "%s", dlc_detail());
}

static void close_settings(void) {
    dlc_settings_free(r.settings);
    dlc_config_free(r.config);
    dlc_problems_free(&r.problems);
}

#define OPEN(...) \
    do { \
        const char *const sets_[] = {__VA_ARGS__}; \
        open_settings(sets_, sizeof sets_ / sizeof *sets_); \
        ck_assert_msg(dlc_lr_policy_check(r.settings) == DLC_OK, "%s", dlc_detail()); \
    } while (0)

static dlc_status make_policy(void) {
    return dlc_lr_policy_make(r.settings, &r.job, &r.policy);
}

static void begin(void) {
    ck_assert_msg(make_policy() == DLC_OK, "%s", dlc_detail());
}

static double rate(int64_t iteration) {
    return dlc_lr_policy_rate(&r.policy, iteration);
}

static void expect(int64_t iteration, double value) {
    double got = rate(iteration);
    ck_assert_msg(fabs(got - value) <= 1e-12 * fabs(value) + 1e-15,
                  "iteration %lld: rate %.17g, expected %.17g", (long long)iteration,
                  got, value);
}

static const int64_t points[] = {0, 1, 7, 9, 10, 11, 19, 20, 99, 100, 101, 100000};

#define AT_ALL_POINTS(i, value) \
    for (size_t p_ = 0; p_ < sizeof points / sizeof *points; p_++) { \
        int64_t i = points[p_]; \
        expect(i, value); \
    }

TEST(fixed) {
    OPEN("solver.learning_rate=0.25");
    begin();
    AT_ALL_POINTS(i, (0.0 * (double)i) + 0.25)
    close_settings();
}

TEST(step) {
    OPEN("solver.policy=step", "solver.learning_rate=0.1", "solver.gamma=0.5",
         "solver.step_size=10");
    begin();
    AT_ALL_POINTS(i, 0.1 * pow(0.5, (double)(i / 10)))
    expect(9, 0.1);
    expect(10, 0.05);
    expect(20, 0.025);
    close_settings();
}

TEST(multistep) {
    OPEN("solver.policy=multistep", "solver.learning_rate=0.1", "solver.gamma=0.1",
         "solver.step_values=10, 20, 100");
    begin();
    expect(0, 0.1);
    expect(9, 0.1);
    expect(10, 0.01);
    expect(19, 0.01);
    expect(20, 0.001);
    expect(99, 0.001);
    expect(100, 0.0001);
    expect(1000000, 0.0001);
    close_settings();
}

TEST(exponential) {
    OPEN("solver.policy=exp", "solver.learning_rate=0.1", "solver.gamma=0.99");
    begin();
    AT_ALL_POINTS(i, 0.1 * pow(0.99, (double)i))
    close_settings();
}

/* With the numbers of Caffe's LeNet. */
TEST(inverse) {
    OPEN("solver.policy=inv", "solver.learning_rate=0.01", "solver.gamma=0.0001",
         "solver.power=0.75");
    begin();
    AT_ALL_POINTS(i, 0.01 * pow(1 + 0.0001 * (double)i, -0.75))
    expect(0, 0.01);
    ck_assert_double_eq_tol(rate(10000), 0.00594604, 5e-9);
    close_settings();
}

TEST(polynomial) {
    OPEN("solver.policy=poly", "solver.learning_rate=0.1", "solver.power=2",
         "solver.max_iterations=100");
    begin();
    AT_ALL_POINTS(i, i < 100 ? 0.1 * (1 - (double)i / 100) * (1 - (double)i / 100) : 0)
    close_settings();
}

TEST(polynomial_ends_with_the_job) {
    OPEN("solver.policy=poly", "solver.learning_rate=1");
    r.job.max_iterations = 50;
    begin();
    expect(0, 1);
    expect(25, 0.5);
    expect(50, 0);
    expect(51, 0);
    close_settings();
}

TEST(sigmoid) {
    OPEN("solver.policy=sigmoid", "solver.learning_rate=0.1", "solver.gamma=-0.05",
         "solver.step_size=100");
    begin();
    AT_ALL_POINTS(i, 0.1 / (1 + exp(0.05 * ((double)i - 100))))
    expect(100, 0.05);
    close_settings();
}

TEST(cosine) {
    OPEN("solver.policy=cosine", "solver.learning_rate=0.9",
         "solver.min_learning_rate=0.1", "solver.max_iterations=100");
    begin();
    AT_ALL_POINTS(i, i < 100 ? 0.1 + 0.4 * (1 + cos(M_PI * (double)i / 100)) : 0.1)
    expect(0, 0.9);
    expect(50, 0.5);
    close_settings();
}

/* Periods of 4, 8, 16 and 32 iterations, as those of PyTorch with T_0 = 4, T_mult = 2
 * and eta_min = 0.1. */
TEST(restarts) {
    OPEN("solver.policy=cosine_restarts", "solver.learning_rate=0.9",
         "solver.min_learning_rate=0.1", "solver.step_size=4", "solver.period_mult=2");
    begin();
    static const int64_t start[] = {0, 4, 12, 28, 60};
    for (int k = 0; k < 4; k++)
        for (int64_t i = start[k]; i < start[k + 1]; i++)
            expect(i, 0.1 + 0.4 * (1 + cos(M_PI * (double)(i - start[k]) /
                                           (double)(start[k + 1] - start[k]))));
    expect(28, 0.9);
    expect(20, 0.5);
    close_settings();

    OPEN("solver.policy=cosine_restarts", "solver.learning_rate=1",
         "solver.step_size=10");
    begin();
    AT_ALL_POINTS(i, (1 + cos(M_PI * (double)(i % 10) / 10)) / 2)
    close_settings();
}

/* torch.optim.lr_scheduler.OneCycleLR with anneal_strategy = cos and two phases, as its
 * documentation and source say: from `start` to `top` and to `end`. */
static double torch_cycle(double at, double total_steps, double pct_start, double start,
                          double top, double end) {
    double rise = pct_start * total_steps - 1, last = total_steps - 1;
    int falls = at > rise;
    double from = falls ? top : start, to = falls ? end : top;
    double pct = falls ? (at - rise) / (last - rise) : at / rise;
    return to + (from - to) / 2 * (1 + cos(M_PI * pct));
}

static void expect_near(int64_t i, double got, double value, double tolerance) {
    ck_assert_msg(fabs(got - value) <= tolerance * value,
                  "iteration %lld: %.17g, expected %.17g", (long long)i, got, value);
}

TEST(one_cycle) {
    OPEN("solver.policy=one_cycle", "solver.learning_rate=1", "solver.cycle_rise=0.25",
         "solver.cycle_divisor=10", "solver.min_learning_rate=0.02");
    r.job.max_iterations = 84;
    begin();
    expect(0, 0.1);
    expect(10, 0.55);
    expect(20, 1);
    expect(83, 0.02);
    expect(1000, 0.02);
    for (int64_t i = 0; i < 84; i++)
        expect_near(i, rate(i), torch_cycle((double)i, 84, 0.25, 0.1, 1, 0.02), 1e-12);
    close_settings();
}

/* Values of torch 1.13: OneCycleLR(SGD(lr=1), max_lr=1, final_div_factor=1e30). */
TEST(short_cycles) {
    static const struct {
        int64_t steps;
        const char *rise;
        double rates[4];
    } cases[] = {
        {1, "solver.cycle_rise=0.3", {0}},
        {2, "solver.cycle_rise=0.3", {0.8117449009293667}},
        {3, "solver.cycle_rise=0.3", {0.9944154131125642, 0.4626349532067879}},
        {4, "solver.cycle_rise=0.3", {0.04, 0.8117449009293667, 0.283058130441221}},
        {4, "solver.cycle_rise=0.5", {0.04, 1, 0.5}},
        {4, "solver.cycle_rise=0", {0.8535533905932737, 0.5, 0.14644660940672627}},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        OPEN("solver.policy=one_cycle", "solver.learning_rate=1", cases[k].rise);
        r.job.max_iterations = cases[k].steps;
        begin();
        for (int64_t i = 0; i < cases[k].steps; i++)
            ck_assert_double_eq_tol(rate(i), cases[k].rates[i], 1e-12);
        close_settings();
    }
}

/* ---- Momentum ----------------------------------------------------------------- */

enum { CYCLE = 80 };

TEST(momentum_as_in_pytorch) {
    OPEN("solver.policy=one_cycle", "solver.learning_rate=0.4",
         "solver.min_learning_rate=0.001", "solver.cycle_momentum=yes",
         "solver.base_momentum=0.8", "solver.max_momentum=0.97");
    r.job.max_iterations = CYCLE;
    begin();
    for (int64_t i = 0; i < CYCLE; i++) {
        double at = (double)i;
        expect_near(i, rate(i), torch_cycle(at, CYCLE, 0.3, 0.4 / 25, 0.4, 0.001),
                    1e-12);
        expect_near(i, dlc_lr_policy_momentum(&r.policy, i),
                    torch_cycle(at, CYCLE, 0.3, 0.97, 0.8, 0.97), 1e-12);
    }
    close_settings();
}

static dlc_status inertia_needs(const dlc_settings *settings, dlc_solver_needs *needs) {
    static const dlc_rule rule = {.size = sizeof rule, .run = no_rule};
    (void)settings;
    needs->rule = &rule;
    needs->momentum = momentum_name;
    return DLC_OK;
}

static dlc_status inertia_values(const dlc_settings *settings, int64_t iteration,
                                 dlc_rule_values *values) {
    (void)iteration;
    values->own[0] = (float)dlc_settings_get_float(settings, "inertia");
    values->own[1] = (float)dlc_settings_get_float(settings, "learning_rate");
    return DLC_OK;
}

static const dlc_option inertia_options[] = {
    DLC_FLOAT("inertia", "0.9", 0, 1, "momentum"),
    DLC_INT("whole", "3", 0, 9, "no momentum"),
    DLC_OPTIONS_END,
};
static const dlc_solver_ops inertia_ops = {
    .size = sizeof inertia_ops, .needs = inertia_needs, .values = inertia_values};
static const dlc_feature inertia = {.size = sizeof inertia,
                                    .kind = DLC_KIND_SOLVER,
                                    .name = "inertia",
                                    .options = inertia_options,
                                    .ops = &inertia_ops};

static void open_inertia(const char *name, const char *const *sets, size_t count) {
    momentum_name = name;
    table = inertia_options;
    open_settings(sets, count);
    table = dlc_solver_options;
}

/* The rule gets what the schedule says instead of the setting. */
TEST(momentum_is_replaced) {
    for (int cycles = 0; cycles < 2; cycles++) {
        const char *const sets[] = {"solver.policy=one_cycle",
                                    cycles ? "solver.cycle_momentum=yes"
                                           : "solver.cycle_momentum=no"};
        dlc_solver solver;
        open_inertia("inertia", sets, 2);
        ck_assert_msg(dlc_solver_make(&inertia, r.settings, &solver) == DLC_OK, "%s",
                      dlc_detail());
        r.job.max_iterations = CYCLE;
        ck_assert_int_eq(dlc_solver_set_schedule(&solver, &r.job), DLC_OK);
        for (int64_t i = 0; i < CYCLE; i++) {
            dlc_rule_values values;
            ck_assert_int_eq(dlc_solver_values(&solver, i, &values), DLC_OK);
            double momentum = torch_cycle((double)i, CYCLE, 0.3, 0.95, 0.85, 0.95);
            expect_near(i, (double)values.own[0], cycles ? momentum : 0.9, 1e-7);
            expect_near(i, (double)values.own[1], 0.01, 1e-7);
        }
        close_settings();
    }
}

TEST(momentum_is_checked) {
    static const char *const sets[] = {"solver.policy=one_cycle",
                                       "solver.cycle_momentum=yes"};
    static const struct {
        const char *name, *says;
        dlc_status status;
    } cases[] = {{NULL, "solver 'inertia' has no momentum", DLC_ERR_CONFIG},
                 {"whole", "has no number among its options", DLC_ERR_PLUGIN},
                 {"learning", "has no number among its options", DLC_ERR_PLUGIN}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dlc_solver solver;
        open_inertia(cases[i].name, sets, 2);
        ck_assert_int_eq(dlc_solver_make(&inertia, r.settings, &solver),
                         cases[i].status);
        ck_assert_msg(strstr(dlc_detail(), cases[i].says) != NULL, "%s", dlc_detail());
        close_settings();
    }
}

/* ---- Plateau ------------------------------------------------------------------ */

/* Reports losses of tests after iterations 10, 20, ...; returns the factor. */
static double after_tests(dlc_lr_plateau *plateau, int64_t *iteration, int tests,
                          const double *losses) {
    for (int i = 0; i < tests; i++) {
        double before = plateau->factor;
        int falls = dlc_lr_plateau_report(plateau, *iteration += 10, losses[i]);
        ck_assert_int_eq(falls, plateau->factor < before);
    }
    return plateau->factor;
}

TEST(plateau) {
    OPEN("solver.policy=plateau", "solver.learning_rate=1", "solver.gamma=0.5",
         "solver.patience=2", "solver.threshold=0.1", "solver.min_learning_rate=0.2");
    dlc_lr_plateau p = dlc_lr_plateau_make(r.settings);
    int64_t i = 0;
    const double falling[] = {4, 3, 2}, almost[] = {1.9, 1.85, 1.81};
    ck_assert_double_eq(after_tests(&p, &i, 3, falling), 1);
    ck_assert_double_eq(after_tests(&p, &i, 2, almost), 1);
    /* A test that is repeated does not count. */
    ck_assert_int_eq(dlc_lr_plateau_report(&p, i, 9), 0);
    ck_assert_double_eq(after_tests(&p, &i, 1, &almost[2]), 0.5);
    /* Progress, measured from the best loss, which is still 2. */
    const double better[] = {1.79, 1.79, 1.79};
    ck_assert_double_eq(after_tests(&p, &i, 3, better), 0.5);
    const double worse[] = {(double)NAN, 7, 7, 7, 7, 7, 7};
    ck_assert_double_eq(after_tests(&p, &i, 1, worse), 0.25);
    ck_assert_double_eq(after_tests(&p, &i, 3, worse), 0.2); /* not 0.125 */
    ck_assert_double_eq(after_tests(&p, &i, 7, worse), 0.2);
    close_settings();
}

/* A run that is resumed from the text goes on like the one that wrote it. */
TEST(plateau_is_saved) {
    OPEN("solver.policy=plateau", "solver.gamma=0.3", "solver.patience=1");
    char text[DLC_LR_PLATEAU_TEXT];
    const double losses[] = {0.7, 1.0 / 3, 0.5, 0.4, 0.4, 0.4, 0.4};
    for (int stop = 0; stop < 7; stop++) {
        dlc_lr_plateau one = dlc_lr_plateau_make(r.settings), other = one;
        int64_t i = 0, j;
        after_tests(&one, &i, stop, losses);
        j = i;
        dlc_lr_plateau_print(&one, text);
        ck_assert_int_eq(dlc_lr_plateau_read(&other, text), 1);
        ck_assert_double_eq(after_tests(&one, &i, 7 - stop, losses + stop),
                            after_tests(&other, &j, 7 - stop, losses + stop));
        ck_assert(one.factor < 0.1);
        ck_assert_mem_eq(&one, &other, sizeof one);
    }
    dlc_lr_plateau kept = dlc_lr_plateau_make(r.settings), read = kept;
    ck_assert_int_eq(dlc_lr_plateau_read(&read, "0.1 nonsense"), 0);
    ck_assert_mem_eq(&kept, &read, sizeof kept);
    close_settings();
}

TEST(other_policies_have_no_plateau) {
    OPEN("solver.policy=step", "solver.step_size=5", "solver.patience=0");
    dlc_lr_plateau p = dlc_lr_plateau_make(r.settings);
    const double losses[] = {1, 1, 1, 1};
    int64_t i = 0;
    ck_assert_double_eq(after_tests(&p, &i, 4, losses), 1);
    close_settings();
}

/* ---- Warm-up and resumed runs ------------------------------------------------- */

TEST(warmup) {
    OPEN("solver.learning_rate=0.8", "solver.warmup=10",
         "solver.warmup_learning_rate=0.2");
    begin();
    for (int64_t i = 0; i < 10; i++)
        expect(i, 0.2 + 0.06 * (double)i);
    expect(10, 0.8);
    expect(11, 0.8);
    close_settings();
}

/* A batch of 256 where learning_rate is set for 64. */
static const struct {
    const char *scaling;
    double factor;
} scalings[] = {{"none", 1}, {"linear", 4}, {"sqrt", 2}};

TEST_EACH(scaled, COUNT(scalings)) {
    char scaling[64];
    double factor = scalings[_i].factor;
    (void)snprintf(scaling, sizeof scaling, "solver.scale_learning_rate=%s",
                   scalings[_i].scaling);
    OPEN("solver.learning_rate=0.8", scaling, "solver.warmup=10",
         "solver.warmup_learning_rate=0.2", "solver.policy=step",
         "solver.step_size=50");
    r.job.effective_batch = 256;
    begin();
    for (int64_t i = 0; i < 10; i++)
        expect(i, 0.2 + (0.8 * factor - 0.2) * (double)i / 10);
    expect(10, 0.8 * factor);
    expect(49, 0.8 * factor);
    expect(50, 0.08 * factor);
    r.job.effective_batch = 64;
    begin();
    expect(10, 0.8);
    close_settings();
}

/* The largest rate of the policy, which no iteration reaches, is the scaled one. */
TEST(scaled_job) {
    char warning[512] = "";
    OPEN("solver.learning_rate=0.5", "solver.scale_learning_rate=linear",
         "solver.policy=one_cycle", "solver.max_iterations=1000");
    r.job.max_iterations = 100;
    r.job.effective_batch = 128;
    ck_assert_int_eq(
        dlc_lr_policy_check_job(r.settings, &r.job, warning, sizeof warning), DLC_OK);
    ck_assert_msg(strstr(warning, "learning_rate = 1 is never reached"), "%s", warning);
    close_settings();
}

/* Warm-up ends at the policy's value; the policy counts from iteration 0. */
TEST(warmup_meets_policy) {
    OPEN("solver.learning_rate=1", "solver.policy=poly", "solver.max_iterations=1000",
         "solver.warmup_epochs=2.5");
    r.job.epoch_iterations = 40;
    begin();
    expect(0, 0);
    expect(50, 0.45);
    expect(100, 0.9);
    expect(200, 0.8);
    close_settings();
}

/* A resumed run continues its schedule from where it was, at its own pace; a policy
 * that ends with the run is stretched over what is left. */
TEST(resumed) {
    const dlc_lr_schedule half = {.max_iterations = 100,
                                  .epoch_iterations = 10,
                                  .begin = 20,
                                  .from = 40,
                                  .step = 2,
                                  .from_to_end = 40,
                                  .step_to_end = 0.75};
    OPEN("solver.learning_rate=1", "solver.policy=step", "solver.gamma=0.5",
         "solver.step_size=10");
    r.job.schedule = &half;
    begin();
    expect(20, 1.0 / 16);
    expect(24, 1.0 / 16);
    expect(25, 1.0 / 32);
    expect(30, 1.0 / 64);
    close_settings();

    OPEN("solver.learning_rate=1", "solver.policy=poly", "solver.power=1");
    r.job.schedule = &half;
    begin();
    expect(20, 0.6);
    expect(60, 0.3);
    expect(100, 0);
    close_settings();

    OPEN("solver.learning_rate=0.8", "solver.warmup=60",
         "solver.warmup_learning_rate=0.2");
    r.job.schedule = &half;
    begin();
    expect(20, 0.6);
    expect(25, 0.7);
    expect(30, 0.8);
    close_settings();
}

/* ---- What is refused --------------------------------------------------------- */

static const struct {
    const char *sets[3];
    const char *says;
} wrong[] = {
    {{"solver.policy=step"}, "policy = step needs step_size"},
    {{"solver.policy=sigmoid"}, "policy = sigmoid needs step_size"},
    {{"solver.policy=multistep"}, "policy = multistep needs step_values"},
    {{"solver.policy=multistep", "solver.step_values=10,20,20"},
     "step_values must increase, but 20 follows 20"},
    {{"solver.policy=multistep", "solver.step_values=10,5"},
     "step_values must increase, but 5 follows 10"},
    {{"solver.policy=exp", "solver.gamma=-0.5"}, "gamma may be negative only with"},
    {{"solver.warmup=5", "solver.warmup_epochs=1"}, "give warmup or warmup_epochs"},
    {{"solver.policy=cosine_restarts"}, "policy = cosine_restarts needs step_size"},
    {{"solver.policy=one_cycle", "solver.warmup=5"}, "a rise of its own"},
    {{"solver.policy=one_cycle", "solver.warmup_epochs=0.5"}, "a rise of its own"},
    {{"solver.policy=plateau", "solver.gamma=1"}, "needs a gamma below 1"},
    {{"solver.policy=cosine", "solver.cycle_momentum=yes"},
     "cycle_momentum needs policy = one_cycle"},
    {{"solver.policy=one_cycle", "solver.cycle_momentum=yes",
      "solver.base_momentum=0.96"},
     "base_momentum is more than max_momentum"},
};

TEST_EACH(refuses, COUNT(wrong)) {
    size_t count = 0;
    while (count < 3 && wrong[_i].sets[count])
        count++;
    open_settings(wrong[_i].sets, count);
    ck_assert_int_eq(dlc_lr_policy_check(r.settings), DLC_ERR_CONFIG);
    ck_assert_msg(strstr(dlc_detail(), wrong[_i].says) != NULL, "%s", dlc_detail());
    ck_assert_msg(strncmp(dlc_detail(), "--set: ", 7) == 0, "%s", dlc_detail());
    close_settings();
}

TEST_EACH(refuses_what_never_ends, 3) {
    static const char *const policies[] = {"poly", "cosine", "one_cycle"};
    char text[64];
    snprintf(text, sizeof text, "solver.policy=%s", policies[_i]);
    OPEN(text);
    ck_assert_int_eq(make_policy(), DLC_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), policies[_i]));
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "needs to know where it ends"));
    close_settings();
}

/* ---- A whole job -------------------------------------------------------------- */

/* A job of 100 iterations, 10 of them an epoch. */
static const struct {
    const char *sets[4];
    dlc_status status;
    const char *says; /* the error or the warning; NULL: nothing */
} jobs[] = {
    {{"solver.policy=fixed"}, DLC_OK, NULL},
    {{"solver.learning_rate=0"}, DLC_ERR_CONFIG, "nothing would be learned"},
    {{"solver.policy=exp", "solver.gamma=1e9"}, DLC_ERR_CONFIG, "would grow to"},
    {{"solver.warmup_epochs=20"}, DLC_OK, "it ends before"},
    {{"solver.policy=poly", "solver.max_iterations=50"}, DLC_OK, "nothing more"},
    {{"solver.policy=sigmoid", "solver.gamma=0.1", "solver.step_size=200"},
     DLC_OK,
     "is never reached"},
    /* The highest rate is in the middle. */
    {{"solver.policy=one_cycle"}, DLC_OK, NULL},
    {{"solver.policy=one_cycle", "solver.max_iterations=1000"},
     DLC_OK,
     "is never reached"},
    /* The warm-up hides the first period, and the next one begins in time or too late.
     */
    {{"solver.policy=cosine_restarts", "solver.step_size=60", "solver.warmup=50"},
     DLC_OK,
     NULL},
    {{"solver.policy=cosine_restarts", "solver.step_size=110", "solver.warmup=90"},
     DLC_OK,
     "is never reached"},
};

TEST_EACH(whole_job, COUNT(jobs)) {
    char warning[512] = "";
    size_t count = 0;
    while (count < 4 && jobs[_i].sets[count])
        count++;
    open_settings(jobs[_i].sets, count);
    r.job.max_iterations = 100;
    r.job.epoch_iterations = 10;
    ck_assert_int_eq(dlc_lr_policy_check(r.settings), DLC_OK);
    ck_assert_int_eq(
        dlc_lr_policy_check_job(r.settings, &r.job, warning, sizeof warning),
        jobs[_i].status);
    const char *said = jobs[_i].status == DLC_OK ? warning : dlc_detail();
    if (jobs[_i].says)
        ck_assert_msg(strstr(said, jobs[_i].says) != NULL, "%s", said);
    else
        ck_assert_str_eq(said, "");
    close_settings();
}
