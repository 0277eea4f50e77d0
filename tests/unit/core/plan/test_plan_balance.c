/* Cutting a net by work and boundary tensors, compared with every possible cut. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "plan/stages.h"
#include "support/test.h"

enum { LAYERS = 11 };

static double boundary_cost[LAYERS];

/* Time of the slowest stage; messages in both directions count for the sender. */
static double largest(const double *work, const int32_t *first, int32_t stages) {
    double most = 0;
    for (int32_t s = 0; s < stages; s++) {
        double sum = 0;
        for (int32_t i = first[s]; i < first[s + 1]; i++)
            sum += work[i];
        sum += s + 1 < stages ? 2 * boundary_cost[first[s + 1]] : 0;
        most = sum > most ? sum : most;
    }
    return most;
}

/* The best of all ways to begin stages `s` and later. */
static double try_all(const double *work, const char *may, int32_t stages, int32_t s,
                      int32_t *first) {
    if (s == stages) {
        first[stages] = LAYERS;
        return largest(work, first, stages);
    }
    double best = INFINITY;
    for (int32_t i = first[s - 1] + 1; i < LAYERS; i++) {
        if (!may[i])
            continue;
        first[s] = i;
        double found = try_all(work, may, stages, s + 1, first);
        best = found < best ? found : best;
    }
    return best;
}

/* The first layer that may begin a stage; it is part of the first stage. */
static int32_t first_place(const char *may) {
    int32_t i = 0;
    while (i < LAYERS && !may[i])
        i++;
    return i;
}

TEST_SETTINGS(.timeout = 60);

TEST_EACH(is_as_good_as_any, 4) {
    dlc_random random = dlc_random_make(3, (uint64_t)_i);
    for (int round = 0; round < 100; round++) {
        double work[LAYERS];
        char may[LAYERS], allowed[LAYERS];
        int32_t places = 0;
        for (int i = 0; i < LAYERS; i++) {
            work[i] = (double)dlc_random_below(&random, 10);
            boundary_cost[i] = round % 2 ? (double)dlc_random_below(&random, 10) : 0;
            may[i] = dlc_random_below(&random, 3) > 0;
            places += may[i];
        }
        memcpy(allowed, may, sizeof may);
        if (first_place(may) < LAYERS)
            allowed[first_place(may)] = 0;
        for (int32_t stages = 1; stages <= 5; stages++) {
            int32_t first[LAYERS + 1], tried[LAYERS + 1] = {0};
            dlc_status status = dlc_plan_stages_balance(
                work, may, round % 2 ? boundary_cost : NULL, LAYERS, stages, NULL,
                first);
            if (stages > 1 && stages > places) {
                ck_assert_int_eq(DLC_STATUS_CLASS(status),
                                 DLC_STATUS_CLASS(DLC_ERR_CONFIG));
                continue;
            }
            ck_assert_int_eq(status, DLC_OK);
            ck_assert_int_eq(first[0], 0);
            ck_assert_int_eq(first[stages], LAYERS);
            for (int32_t s = 1; s < stages; s++) {
                ck_assert_int_gt(first[s], first[s - 1]);
                ck_assert_int_lt(first[s], LAYERS);
                ck_assert(allowed[first[s]]);
            }
            double best = try_all(work, allowed, stages, 1, tried);
            ck_assert_double_eq_tol(largest(work, first, stages), best, 1e-9);
        }
    }
}

/* Two halves of equal work, but a large boundary tensor between them. */
TEST(sends_little) {
    static const double work[] = {2, 2, 2, 2}, costs[] = {0, 0, 9, 0};
    static const char may[] = {1, 1, 1, 1};
    int32_t first[3];
    ck_assert_int_eq(dlc_plan_stages_balance(work, may, NULL, 4, 2, NULL, first),
                     DLC_OK);
    ck_assert_int_eq(first[1], 2);
    ck_assert_int_eq(dlc_plan_stages_balance(work, may, costs, 4, 2, NULL, first),
                     DLC_OK);
    ck_assert_int_eq(first[1], 1);
}

/* Three ranks do three quarters of the work, in the time of one. */
TEST(stages_have_unequal_ranks) {
    static const double work[] = {2, 2, 2, 2};
    static const char may[] = {1, 1, 1, 1};
    static const int32_t many_first[] = {3, 1}, many_last[] = {1, 3};
    int32_t first[3];
    ck_assert_int_eq(dlc_plan_stages_balance(work, may, NULL, 4, 2, many_first, first),
                     DLC_OK);
    ck_assert_int_eq(first[1], 3);
    ck_assert_int_eq(dlc_plan_stages_balance(work, may, NULL, 4, 2, many_last, first),
                     DLC_OK);
    ck_assert_int_eq(first[1], 1);
}
