/* Solver sgd: every learning rate policy against its closed form, and what is refused.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "fixture.h"

static test_fixture r;

static double rate(int64_t iteration) {
    return r.ops->learning_rate(r.solver, iteration);
}

static void expect(int64_t iteration, double value) {
    double got = rate(iteration);
    ck_assert_msg(fabs(got - value) <= 1e-12 * fabs(value) + 1e-15,
                  "iteration %lld: rate %.17g, expected %.17g", (long long)iteration,
                  got, value);
}

static void begin(void) {
    ck_assert_msg(fixture_create(&r) == DLC_OK, "%s", dlc_detail());
}

static const int64_t points[] = {0, 1, 7, 9, 10, 11, 19, 20, 99, 100, 101, 100000};

#define AT_ALL_POINTS(i, value) \
    for (size_t p_ = 0; p_ < sizeof points / sizeof *points; p_++) { \
        int64_t i = points[p_]; \
        expect(i, value); \
    }

START_TEST(fixed) {
    FIXTURE_OPEN(&r, "solver.learning_rate=0.25");
    begin();
    AT_ALL_POINTS(i, (0.0 * (double)i) + 0.25)
    fixture_close(&r);
}
END_TEST

START_TEST(step) {
    FIXTURE_OPEN(&r, "solver.policy=step", "solver.learning_rate=0.1",
                 "solver.gamma=0.5", "solver.step_size=10");
    begin();
    AT_ALL_POINTS(i, 0.1 * pow(0.5, (double)(i / 10)))
    expect(9, 0.1);
    expect(10, 0.05);
    expect(20, 0.025);
    fixture_close(&r);
}
END_TEST

START_TEST(multistep) {
    FIXTURE_OPEN(&r, "solver.policy=multistep", "solver.learning_rate=0.1",
                 "solver.gamma=0.1", "solver.step_values=10, 20, 100");
    begin();
    expect(0, 0.1);
    expect(9, 0.1);
    expect(10, 0.01);
    expect(19, 0.01);
    expect(20, 0.001);
    expect(99, 0.001);
    expect(100, 0.0001);
    expect(1000000, 0.0001);
    fixture_close(&r);
}
END_TEST

START_TEST(exponential) {
    FIXTURE_OPEN(&r, "solver.policy=exp", "solver.learning_rate=0.1",
                 "solver.gamma=0.99");
    begin();
    AT_ALL_POINTS(i, 0.1 * pow(0.99, (double)i))
    fixture_close(&r);
}
END_TEST

/* With the numbers of Caffe's LeNet. */
START_TEST(inverse) {
    FIXTURE_OPEN(&r, "solver.policy=inv", "solver.learning_rate=0.01",
                 "solver.gamma=0.0001", "solver.power=0.75");
    begin();
    AT_ALL_POINTS(i, 0.01 * pow(1 + 0.0001 * (double)i, -0.75))
    expect(0, 0.01);
    ck_assert_double_eq_tol(rate(10000), 0.00594604, 5e-9);
    fixture_close(&r);
}
END_TEST

START_TEST(polynomial) {
    FIXTURE_OPEN(&r, "solver.policy=poly", "solver.learning_rate=0.1", "solver.power=2",
                 "solver.max_iterations=100");
    begin();
    AT_ALL_POINTS(i, i < 100 ? 0.1 * (1 - (double)i / 100) * (1 - (double)i / 100) : 0)
    fixture_close(&r);
}
END_TEST

START_TEST(polynomial_ends_with_the_job) {
    FIXTURE_OPEN(&r, "solver.policy=poly", "solver.learning_rate=1");
    r.max_iterations = 50;
    begin();
    expect(0, 1);
    expect(25, 0.5);
    expect(50, 0);
    expect(51, 0);
    fixture_close(&r);
}
END_TEST

START_TEST(sigmoid) {
    FIXTURE_OPEN(&r, "solver.policy=sigmoid", "solver.learning_rate=0.1",
                 "solver.gamma=-0.05", "solver.step_size=100");
    begin();
    AT_ALL_POINTS(i, 0.1 / (1 + exp(0.05 * ((double)i - 100))))
    expect(100, 0.05);
    fixture_close(&r);
}
END_TEST

START_TEST(cosine) {
    FIXTURE_OPEN(&r, "solver.policy=cosine", "solver.learning_rate=0.9",
                 "solver.min_learning_rate=0.1", "solver.max_iterations=100");
    begin();
    AT_ALL_POINTS(i, i < 100 ? 0.1 + 0.4 * (1 + cos(M_PI * (double)i / 100)) : 0.1)
    expect(0, 0.9);
    expect(50, 0.5);
    fixture_close(&r);
}
END_TEST

START_TEST(warmup) {
    FIXTURE_OPEN(&r, "solver.learning_rate=0.8", "solver.warmup=10",
                 "solver.warmup_learning_rate=0.2");
    begin();
    for (int64_t i = 0; i < 10; i++)
        expect(i, 0.2 + 0.06 * (double)i);
    expect(10, 0.8);
    expect(11, 0.8);
    fixture_close(&r);
}
END_TEST

/* Warm-up ends at the policy's value; the policy counts from iteration 0. */
START_TEST(warmup_meets_policy) {
    FIXTURE_OPEN(&r, "solver.learning_rate=1", "solver.policy=poly",
                 "solver.max_iterations=1000", "solver.warmup_epochs=2.5");
    r.epoch_iterations = 40;
    begin();
    expect(0, 0);
    expect(50, 0.45);
    expect(100, 0.9);
    expect(200, 0.8);
    fixture_close(&r);
}
END_TEST

/* A resumed run continues its schedule from where it was, at its own pace; a policy
 * that ends with the run is stretched over what is left. */
START_TEST(resumed) {
    const dlc_lr_schedule half = {.max_iterations = 100,
                                  .epoch_iterations = 10,
                                  .begin = 20,
                                  .from = 40,
                                  .step = 2,
                                  .from_to_end = 40,
                                  .step_to_end = 0.75};
    FIXTURE_OPEN(&r, "solver.learning_rate=1", "solver.policy=step", "solver.gamma=0.5",
                 "solver.step_size=10");
    r.schedule = &half;
    begin();
    expect(20, 1.0 / 16);
    expect(24, 1.0 / 16);
    expect(25, 1.0 / 32);
    expect(30, 1.0 / 64);
    fixture_close(&r);

    FIXTURE_OPEN(&r, "solver.learning_rate=1", "solver.policy=poly", "solver.power=1");
    r.schedule = &half;
    begin();
    expect(20, 0.6);
    expect(60, 0.3);
    expect(100, 0);
    fixture_close(&r);

    FIXTURE_OPEN(&r, "solver.learning_rate=0.8", "solver.warmup=60",
                 "solver.warmup_learning_rate=0.2");
    r.schedule = &half;
    begin();
    expect(20, 0.6);
    expect(25, 0.7);
    expect(30, 0.8);
    fixture_close(&r);
}
END_TEST

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
};

START_TEST(refuses) {
    dlc_status needs;
    size_t count = 0;
    while (count < 3 && wrong[_i].sets[count])
        count++;
    fixture_open(&r, wrong[_i].sets, count, &needs);
    ck_assert_int_eq(needs, DLC_ERR_CONFIG);
    ck_assert_msg(strstr(dlc_detail(), wrong[_i].says) != NULL, "%s", dlc_detail());
    ck_assert_msg(strncmp(dlc_detail(), "--set: ", 7) == 0, "%s", dlc_detail());
    fixture_close(&r);
}
END_TEST

START_TEST(refuses_endless_cosine) {
    FIXTURE_OPEN(&r, "solver.policy=cosine");
    ck_assert_int_eq(fixture_create(&r), DLC_ERR_CONFIG);
    ck_assert_ptr_nonnull(
        strstr(dlc_detail(), "policy = cosine needs to know where it ends"));
    ck_assert_ptr_null(r.solver);
    fixture_close(&r);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("policy");
    TCase *all = tcase_create("all");
    tcase_add_test(all, fixed);
    tcase_add_test(all, step);
    tcase_add_test(all, multistep);
    tcase_add_test(all, exponential);
    tcase_add_test(all, inverse);
    tcase_add_test(all, polynomial);
    tcase_add_test(all, polynomial_ends_with_the_job);
    tcase_add_test(all, sigmoid);
    tcase_add_test(all, cosine);
    tcase_add_test(all, warmup);
    tcase_add_test(all, warmup_meets_policy);
    tcase_add_test(all, resumed);
    tcase_add_loop_test(all, refuses, 0, (int)(sizeof wrong / sizeof *wrong));
    tcase_add_test(all, refuses_endless_cosine);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
