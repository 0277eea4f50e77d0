/* Threads of the core, and short turns for them. */
#include <check.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/thread.h"

typedef struct seen {
    char name[16];
    int takes_signals, takes_faults;
    uint64_t turn_ns; /* 0: this system does not tell */
} seen;

/* As in base/thread.c. */
typedef struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
} attributes;

static uint64_t turn(void) {
    attributes a = {.size = sizeof a};
    return syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) == 0 ? a.runtime : 0;
}

/* Not before Linux 6.12, nor where a sandbox forbids it. */
static int may_ask_for_turns(void) {
    enum { OTHER_NS = 200000 };
    attributes a = {.size = sizeof a, .runtime = OTHER_NS};
    return syscall(SYS_sched_setattr, 0, &a, 0) == 0 && turn() == OTHER_NS;
}

static void *look(void *context) {
    seen *s = context;
    sigset_t blocked;
    (void)pthread_getname_np(pthread_self(), s->name, sizeof s->name);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    s->takes_signals = !sigismember(&blocked, SIGTERM);
    s->takes_faults = !sigismember(&blocked, SIGSEGV);
    s->turn_ns = turn();
    return s;
}

static void *look_in_short_turns(void *context) {
    dlc_thread_take_short_turns();
    return look(context);
}

START_TEST(is_as_asked_for) {
    pthread_t thread;
    seen s = {.takes_signals = 1};
    void *result = NULL;
    ck_assert_int_eq(dlc_thread_start(&thread, "a name of fifteen and more",
                                      look_in_short_turns, &s),
                     DLC_OK);
    ck_assert_int_eq(pthread_join(thread, &result), 0);
    ck_assert_ptr_eq(result, &s);
    ck_assert_str_eq(s.name, "a name of fifte");
    ck_assert_int_eq(s.takes_signals, 0);
    ck_assert_int_eq(s.takes_faults, 1);
    if (may_ask_for_turns())
        ck_assert_uint_eq(s.turn_ns, 100000);
}
END_TEST

/* Whoever starts one keeps its own. */
START_TEST(starter_is_left_alone) {
    pthread_t thread;
    seen mine = {.takes_signals = 0}, its = {.takes_signals = 1};
    ck_assert_int_eq(dlc_thread_start(&thread, "other", look_in_short_turns, &its),
                     DLC_OK);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    look(&mine);
    ck_assert_str_ne(mine.name, "other");
    ck_assert_int_eq(mine.takes_signals, 1);
    if (may_ask_for_turns())
        ck_assert_uint_ne(mine.turn_ns, its.turn_ns);
}
END_TEST

START_TEST(no_memory) {
    pthread_t thread;
    seen s = {.takes_signals = 0};
    dlc_memory_fail_at(1);
    ck_assert_int_eq(dlc_thread_start(&thread, "none", look, &s), DLC_ERR_NOMEM);
    dlc_memory_fail_at(0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("thread");
    TCase *tests = tcase_create("thread");
    tcase_add_test(tests, is_as_asked_for);
    tcase_add_test(tests, starter_is_left_alone);
    tcase_add_test(tests, no_memory);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
