/* The schedule of a pipeline, simulated: it ends for any number of stages and
 * sub-batches, keeps within its bound of sub-batches under way, and takes as long as it
 * should. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "train/pipeline/turns.h"

enum { STAGES = 8, SUB_BATCHES = 24, FOREVER = 1 << 28 };

/* What one stage is at. */
typedef struct stage_at_work {
    dlc_turns turns;
    dlc_turn doing;
    int until;             /* the time at which that is done */
    int most;              /* sub-batches that were under way at once */
    int came[SUB_BATCHES]; /* the time at which inputs, then gradients are there */
    int back[SUB_BATCHES];
    int busy;
} stage;

/* How long things take. */
typedef struct pace {
    int forward[STAGES], backward[STAGES], message;
    int jitter; /* 0: none; else each takes up to so much longer */
} pace;

static void begin(stage *all, int stages, int sub_batches) {
    memset(all, 0, (size_t)stages * sizeof *all);
    for (int s = 0; s < stages; s++) {
        all[s].turns = (dlc_turns){
            .stage = s, .stages = stages, .sub_batches = sub_batches};
        for (int k = 0; k < SUB_BATCHES; k++) {
            all[s].came[k] = s == 0 ? 0 : FOREVER;
            all[s].back[k] = FOREVER;
        }
    }
}

static int longer(dlc_random *random, int jitter) {
    return jitter ? (int)dlc_random_below(random, (uint64_t)jitter + 1) : 0;
}

/* A stage has done what it was at: its neighbours get what comes of it. */
static void end_turn(stage *all, int s, int stages, int now, const pace *how,
                     dlc_random *random) {
    dlc_turns *turns = &all[s].turns;
    int k = all[s].doing == DLC_TURN_FORWARD ? turns->forward : turns->backward;
    int there = now + how->message + longer(random, how->jitter);
    if (all[s].doing == DLC_TURN_FORWARD && s == stages - 1)
        all[s].back[k] = now;
    else if (all[s].doing == DLC_TURN_FORWARD)
        all[s + 1].came[k] = there;
    else if (s > 0)
        all[s - 1].back[k] = there;
    dlc_turns_done(turns, all[s].doing);
    all[s].doing = DLC_TURN_NONE;
    int under_way = dlc_turns_under_way(turns);
    all[s].most = under_way > all[s].most ? under_way : all[s].most;
}

static void begin_turn(stage *it, int s, int now, const pace *how, dlc_random *random) {
    const dlc_turns *turns = &it->turns;
    int can_forward = turns->forward < turns->sub_batches &&
                      it->came[turns->forward] <= now;
    int can_backward = turns->backward < turns->forward &&
                       it->back[turns->backward] <= now;
    it->doing = dlc_turns_next(turns, can_forward, can_backward);
    int takes = it->doing == DLC_TURN_FORWARD    ? how->forward[s]
                : it->doing == DLC_TURN_BACKWARD ? how->backward[s]
                                                 : 0;
    takes += takes ? longer(random, how->jitter) : 0;
    it->until = now + takes;
    it->busy += takes;
}

static int is_over(const stage *all, int stages) {
    for (int s = 0; s < stages; s++)
        if (dlc_turns_next(&all[s].turns, 0, 0) != DLC_TURN_OVER)
            return 0;
    return 1;
}

/* Returns when all are through; ends the test where that never comes. */
static int simulate(stage *all, int stages, int sub_batches, const pace *how,
                    dlc_random *random) {
    begin(all, stages, sub_batches);
    for (int now = 0; now < 100000; now++) {
        for (int s = 0; s < stages; s++)
            if ((all[s].doing == DLC_TURN_FORWARD ||
                 all[s].doing == DLC_TURN_BACKWARD) &&
                all[s].until == now)
                end_turn(all, s, stages, now, how, random);
        if (is_over(all, stages))
            return now;
        for (int s = 0; s < stages; s++)
            if (all[s].doing != DLC_TURN_FORWARD && all[s].doing != DLC_TURN_BACKWARD)
                begin_turn(&all[s], s, now, how, random);
    }
    ck_abort_msg("%d stages and %d sub-batches never end", stages, sub_batches);
    return 0;
}

static void check_bound(const stage *all, int stages, int sub_batches) {
    for (int s = 0; s < stages; s++) {
        ck_assert_int_le(all[s].most, stages - s);
        ck_assert_int_le(all[s].most, dlc_turns_most(&all[s].turns));
        ck_assert_int_eq(all[s].turns.forward, sub_batches);
        ck_assert_int_eq(all[s].turns.backward, sub_batches);
    }
}

/* Equal stages: as long as it takes to fill and to empty the pipeline, and no longer.
 */
START_TEST(equal_stages_waste_both_ends_alone) {
    static const int times[][2] = {{1, 1}, {1, 2}, {3, 5}};
    for (size_t t = 0; t < sizeof times / sizeof *times; t++)
        for (int stages = 1; stages <= STAGES; stages++)
            for (int m = 1; m <= SUB_BATCHES; m++) {
                stage all[STAGES];
                pace how = {.message = 0};
                for (int s = 0; s < stages; s++) {
                    how.forward[s] = times[t][0];
                    how.backward[s] = times[t][1];
                }
                int each = times[t][0] + times[t][1];
                int took = simulate(all, stages, m, &how, NULL);
                ck_assert_msg(took == (m + stages - 1) * each,
                              "%d stages, %d sub-batches: %d, not %d", stages, m, took,
                              (m + stages - 1) * each);
                check_bound(all, stages, m);
                double bubble = 1.0 - (double)all[0].busy / took;
                ck_assert_double_eq_tol(bubble, dlc_turns_bubble(stages, m), 1e-12);
            }
}
END_TEST

/* Whatever takes however long: it ends, and memory is bounded. */
START_TEST(unequal_stages_end) {
    dlc_random random = dlc_random_make(7, (uint64_t)_i);
    for (int round = 0; round < 300; round++) {
        stage all[STAGES];
        int stages = 1 + (int)dlc_random_below(&random, STAGES);
        int m = 1 + (int)dlc_random_below(&random, SUB_BATCHES);
        pace how = {.message = (int)dlc_random_below(&random, 20),
                    .jitter = (int)dlc_random_below(&random, 20)};
        for (int s = 0; s < stages; s++) {
            how.forward[s] = 1 + (int)dlc_random_below(&random, 10);
            how.backward[s] = 1 + (int)dlc_random_below(&random, 20);
        }
        simulate(all, stages, m, &how, &random);
        check_bound(all, stages, m);
    }
}
END_TEST

/* A stage that could do both frees memory first. */
START_TEST(backward_comes_first) {
    dlc_turns turns = {.stage = 0, .stages = 3, .sub_batches = 4};
    ck_assert_int_eq(dlc_turns_next(&turns, 0, 1), DLC_TURN_NONE);
    ck_assert_int_eq(dlc_turns_next(&turns, 1, 1), DLC_TURN_FORWARD);
    dlc_turns_done(&turns, DLC_TURN_FORWARD);
    ck_assert_int_eq(dlc_turns_next(&turns, 1, 1), DLC_TURN_BACKWARD);
    ck_assert_int_eq(dlc_turns_next(&turns, 1, 0), DLC_TURN_FORWARD);
    dlc_turns_done(&turns, DLC_TURN_FORWARD);
    dlc_turns_done(&turns, DLC_TURN_FORWARD);
    ck_assert_int_eq(dlc_turns_next(&turns, 1, 0), DLC_TURN_NONE);
    for (int i = 0; i < 3; i++)
        dlc_turns_done(&turns, DLC_TURN_BACKWARD);
    ck_assert_int_eq(dlc_turns_next(&turns, 1, 0), DLC_TURN_FORWARD);
    dlc_turns_done(&turns, DLC_TURN_FORWARD);
    dlc_turns_done(&turns, DLC_TURN_BACKWARD);
    ck_assert_int_eq(dlc_turns_next(&turns, 1, 1), DLC_TURN_OVER);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("turns");
    TCase *cases = tcase_create("turns");
    tcase_set_timeout(cases, 60);
    tcase_add_test(cases, equal_stages_waste_both_ends_alone);
    tcase_add_loop_test(cases, unequal_stages_end, 0, 4);
    tcase_add_test(cases, backward_comes_first);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
