/* The 1F1B schedule, simulated: it ends for any number of stages and micro-batches,
 * keeps to its bound on micro-batches in flight, and takes no longer than it should. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "plan/work_order.h"
#include "support/test.h"

enum { STAGES = 8, MICRO_BATCHES = 24, FOREVER = 1 << 28 };

/* State of one simulated stage. */
typedef struct stage_at_work {
    dlc_work_order schedule;
    dlc_work step;
    int until;                    /* when the step is done */
    int most;                     /* most micro-batches in flight */
    int inputs_at[MICRO_BATCHES]; /* when inputs, then gradients arrive */
    int gradients_at[MICRO_BATCHES];
    int busy;
} stage;

/* Durations of steps and messages. */
typedef struct step_durations {
    int forward[STAGES], backward[STAGES], message;
    int jitter; /* each takes up to so much longer */
} step_durations;

static void begin(stage *all, int stages, int micro_batches) {
    memset(all, 0, (size_t)stages * sizeof *all);
    for (int s = 0; s < stages; s++) {
        all[s].schedule = (dlc_work_order){
            .stage = s, .stages = stages, .micro_batches = micro_batches};
        for (int k = 0; k < MICRO_BATCHES; k++) {
            all[s].inputs_at[k] = s == 0 ? 0 : FOREVER;
            all[s].gradients_at[k] = FOREVER;
        }
    }
}

static int longer(dlc_random *random, int jitter) {
    return jitter ? (int)dlc_random_below(random, (uint64_t)jitter + 1) : 0;
}

/* A stage has done its step: sends the results to its neighbours. */
static void end_step(stage *all, int s, int stages, int now,
                     const step_durations *durations, dlc_random *random) {
    dlc_work_order *schedule = &all[s].schedule;
    int k = all[s].step == DLC_WORK_FORWARD ? schedule->forward : schedule->backward;
    int there = now + durations->message + longer(random, durations->jitter);
    if (all[s].step == DLC_WORK_FORWARD && s == stages - 1)
        all[s].gradients_at[k] = now;
    else if (all[s].step == DLC_WORK_FORWARD)
        all[s + 1].inputs_at[k] = there;
    else if (s > 0)
        all[s - 1].gradients_at[k] = there;
    dlc_work_order_done(schedule, all[s].step);
    all[s].step = DLC_WORK_WAIT;
    int in_flight = dlc_work_order_in_flight(schedule);
    all[s].most = in_flight > all[s].most ? in_flight : all[s].most;
}

static void begin_step(stage *it, int s, int now, const step_durations *durations,
                       dlc_random *random) {
    const dlc_work_order *schedule = &it->schedule;
    int can_forward = schedule->forward < schedule->micro_batches &&
                      it->inputs_at[schedule->forward] <= now;
    int can_backward = schedule->backward < schedule->forward &&
                       it->gradients_at[schedule->backward] <= now;
    it->step = dlc_work_order_next(schedule, can_forward, can_backward);
    int takes = it->step == DLC_WORK_FORWARD    ? durations->forward[s]
                : it->step == DLC_WORK_BACKWARD ? durations->backward[s]
                                                : 0;
    takes += takes ? longer(random, durations->jitter) : 0;
    it->until = now + takes;
    it->busy += takes;
}

static int is_over(const stage *all, int stages) {
    for (int s = 0; s < stages; s++)
        if (dlc_work_order_next(&all[s].schedule, 0, 0) != DLC_WORK_DONE)
            return 0;
    return 1;
}

/* Returns the time when all stages are done; fails the test if they never are. */
static int simulate(stage *all, int stages, int micro_batches,
                    const step_durations *durations, dlc_random *random) {
    begin(all, stages, micro_batches);
    for (int now = 0; now < 100000; now++) {
        for (int s = 0; s < stages; s++)
            if ((all[s].step == DLC_WORK_FORWARD || all[s].step == DLC_WORK_BACKWARD) &&
                all[s].until == now)
                end_step(all, s, stages, now, durations, random);
        if (is_over(all, stages))
            return now;
        for (int s = 0; s < stages; s++)
            if (all[s].step != DLC_WORK_FORWARD && all[s].step != DLC_WORK_BACKWARD)
                begin_step(&all[s], s, now, durations, random);
    }
    ck_abort_msg("%d stages and %d micro-batches never end", stages, micro_batches);
    return 0;
}

static void check_bound(const stage *all, int stages, int micro_batches) {
    for (int s = 0; s < stages; s++) {
        ck_assert_int_le(all[s].most, stages - s);
        ck_assert_int_le(all[s].most, dlc_work_order_max_in_flight(&all[s].schedule));
        ck_assert_int_eq(all[s].schedule.forward, micro_batches);
        ck_assert_int_eq(all[s].schedule.backward, micro_batches);
    }
}

TEST_SETTINGS(.timeout = 60);

/* Equal stages take as long as it takes to fill and drain the pipeline, no longer. */
TEST(equal_stages_are_idle_only_at_both_ends) {
    static const int times[][2] = {{1, 1}, {1, 2}, {3, 5}};
    for (size_t t = 0; t < sizeof times / sizeof *times; t++)
        for (int stages = 1; stages <= STAGES; stages++)
            for (int m = 1; m <= MICRO_BATCHES; m++) {
                stage all[STAGES];
                step_durations durations = {.message = 0};
                for (int s = 0; s < stages; s++) {
                    durations.forward[s] = times[t][0];
                    durations.backward[s] = times[t][1];
                }
                int each = times[t][0] + times[t][1];
                int took = simulate(all, stages, m, &durations, NULL);
                ck_assert_msg(took == (m + stages - 1) * each,
                              "%d stages, %d micro-batches: %d, not %d", stages, m,
                              took, (m + stages - 1) * each);
                check_bound(all, stages, m);
                double bubble = 1.0 - (double)all[0].busy / took;
                ck_assert_double_eq_tol(bubble, dlc_work_order_bubble(stages, m),
                                        1e-12);
            }
}

/* With any durations the schedule ends, and memory is bounded. */
TEST_EACH(unequal_stages_end, 4) {
    dlc_random random = dlc_random_make(7, (uint64_t)_i);
    for (int round = 0; round < 300; round++) {
        stage all[STAGES];
        int stages = 1 + (int)dlc_random_below(&random, STAGES);
        int m = 1 + (int)dlc_random_below(&random, MICRO_BATCHES);
        step_durations durations = {.message = (int)dlc_random_below(&random, 20),
                                    .jitter = (int)dlc_random_below(&random, 20)};
        for (int s = 0; s < stages; s++) {
            durations.forward[s] = 1 + (int)dlc_random_below(&random, 10);
            durations.backward[s] = 1 + (int)dlc_random_below(&random, 20);
        }
        simulate(all, stages, m, &durations, &random);
        check_bound(all, stages, m);
    }
}

/* A stage that can do both runs backward, which frees memory. */
TEST(backward_comes_first) {
    dlc_work_order schedule = {.stage = 0, .stages = 3, .micro_batches = 4};
    ck_assert_int_eq(dlc_work_order_next(&schedule, 0, 1), DLC_WORK_WAIT);
    ck_assert_int_eq(dlc_work_order_next(&schedule, 1, 1), DLC_WORK_FORWARD);
    dlc_work_order_done(&schedule, DLC_WORK_FORWARD);
    ck_assert_int_eq(dlc_work_order_next(&schedule, 1, 1), DLC_WORK_BACKWARD);
    ck_assert_int_eq(dlc_work_order_next(&schedule, 1, 0), DLC_WORK_FORWARD);
    dlc_work_order_done(&schedule, DLC_WORK_FORWARD);
    dlc_work_order_done(&schedule, DLC_WORK_FORWARD);
    ck_assert_int_eq(dlc_work_order_next(&schedule, 1, 0), DLC_WORK_WAIT);
    for (int i = 0; i < 3; i++)
        dlc_work_order_done(&schedule, DLC_WORK_BACKWARD);
    ck_assert_int_eq(dlc_work_order_next(&schedule, 1, 0), DLC_WORK_FORWARD);
    dlc_work_order_done(&schedule, DLC_WORK_FORWARD);
    dlc_work_order_done(&schedule, DLC_WORK_BACKWARD);
    ck_assert_int_eq(dlc_work_order_next(&schedule, 1, 1), DLC_WORK_DONE);
}

/* In a fixed order a stage waits for what is next, whatever else is there. */
TEST(fixed_order) {
    dlc_work_order schedule = {
        .stage = 1, .stages = 3, .micro_batches = 3, .fixed_order = 1};
    static const dlc_work steps[] = {
        DLC_WORK_FORWARD, DLC_WORK_FORWARD,  DLC_WORK_BACKWARD,
        DLC_WORK_FORWARD, DLC_WORK_BACKWARD, DLC_WORK_BACKWARD,
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        int is_forward = steps[i] == DLC_WORK_FORWARD;
        ck_assert_int_eq(dlc_work_order_next(&schedule, !is_forward, is_forward),
                         DLC_WORK_WAIT);
        ck_assert_int_eq(dlc_work_order_next(&schedule, 1, 1), steps[i]);
        dlc_work_order_done(&schedule, steps[i]);
    }
    ck_assert_int_eq(dlc_work_order_next(&schedule, 1, 1), DLC_WORK_DONE);
}
