/* The schedule of an iteration (core/session/schedule.h), written as a word: Read,
 * Forward, Backward, reduCe, Update. */

#include "session/session_schedule.h"
#include "support/test.h"

/* Two micro-batches, forward of both first; the context counts passes. */
static dlc_status begin_two(void *context) {
    ++*(int *)context;
    return DLC_OK;
}

static dlc_status next_of_two(void *context, int32_t done, dlc_work *work,
                              int32_t *micro_batch) {
    static const dlc_work works[] = {DLC_WORK_FORWARD, DLC_WORK_FORWARD,
                                     DLC_WORK_BACKWARD, DLC_WORK_BACKWARD,
                                     DLC_WORK_DONE};
    (void)context;
    *work = works[done];
    *micro_batch = done % 2;
    return DLC_OK;
}

static const dlc_schedule_ops two = {.begin = begin_two, .next = next_of_two};
static const dlc_axis_ops axis_of_two = {.schedule = &two};

static const char *word_of(dlc_session *session) {
    static char word[64];
    static const char letters[] = {[DLC_WORK_READ] = 'R',
                                   [DLC_WORK_FORWARD] = 'F',
                                   [DLC_WORK_BACKWARD] = 'B',
                                   [DLC_WORK_REDUCE] = 'C',
                                   [DLC_WORK_UPDATE] = 'U'};
    dlc_schedule schedule = dlc_schedule_of(session);
    dlc_work work = DLC_WORK_READ;
    size_t length = 0;
    while (length < sizeof word - 1) {
        ck_assert_int_eq(dlc_schedule_next(&schedule, &work), DLC_OK);
        if (work == DLC_WORK_DONE)
            break;
        word[length++] = letters[work];
    }
    word[length] = '\0';
    return word;
}

TEST(the_whole_net) {
    dlc_session session = {.local_batch = 4, .accumulation_steps = 1};
    ck_assert_str_eq(word_of(&session), "RFBCU");
}

TEST(accumulation_updates_once) {
    dlc_session session = {.local_batch = 4, .accumulation_steps = 3};
    ck_assert_str_eq(word_of(&session), "RFBCRFBCRFBCU");
}

TEST(a_rank_without_samples_takes_part_in_reductions) {
    dlc_session session = {.local_batch = 0, .accumulation_steps = 2};
    ck_assert_str_eq(word_of(&session), "CCU");
}

TEST(an_axis_orders_the_micro_batches) {
    int passes = 0;
    dlc_axis axis = {.ops = &axis_of_two, .in_use = 1, .state = &passes};
    dlc_session session = {
        .local_batch = 4, .accumulation_steps = 2, .axis = &axis, .axes = 1};
    ck_assert_str_eq(word_of(&session), "RFFBBCRFFBBCU");
    ck_assert_int_eq(passes, 2);
}

TEST(an_axis_that_is_not_in_use_orders_nothing) {
    dlc_axis axis = {.ops = &axis_of_two};
    dlc_session session = {
        .local_batch = 4, .accumulation_steps = 1, .axis = &axis, .axes = 1};
    ck_assert_str_eq(word_of(&session), "RFBCU");
}
