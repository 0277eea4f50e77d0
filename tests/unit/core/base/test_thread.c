/* Tests the threads of the core, their scheduling slice, and signals around calls that
 * may hang. */
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/thread.h"
#include "support/test.h"

typedef struct seen {
    char name[16];
    int takes_signals, takes_faults;
    uint64_t slice_ns; /* 0: this system does not report it */
} seen;

/* The same struct as in base/thread.c. */
typedef struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
} attributes;

static uint64_t slice(void) {
    attributes a = {.size = sizeof a};
    return syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) == 0 ? a.runtime : 0;
}

/* Needs Linux 6.12, and no sandbox that forbids it. */
static int can_set_slice(void) {
    enum { OTHER_NS = 200000 };
    attributes a = {.size = sizeof a, .runtime = OTHER_NS};
    return syscall(SYS_sched_setattr, 0, &a, 0) == 0 && slice() == OTHER_NS;
}

static void *inspect(void *context) {
    seen *s = context;
    sigset_t blocked;
    (void)pthread_getname_np(pthread_self(), s->name, sizeof s->name);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    s->takes_signals = !sigismember(&blocked, SIGTERM);
    s->takes_faults = !sigismember(&blocked, SIGSEGV);
    s->slice_ns = slice();
    return s;
}

static void *inspect_with_short_slice(void *context) {
    dlc_thread_request_short_slices();
    return inspect(context);
}

TEST(thread_has_name_mask_and_slice) {
    pthread_t thread;
    seen s = {.takes_signals = 1};
    void *result = NULL;
    ck_assert_int_eq(dlc_thread_start(&thread, "a name of fifteen and more",
                                      inspect_with_short_slice, &s),
                     DLC_OK);
    ck_assert_int_eq(pthread_join(thread, &result), 0);
    ck_assert_ptr_eq(result, &s);
    ck_assert_str_eq(s.name, "a name of fifte");
    ck_assert_int_eq(s.takes_signals, 0);
    ck_assert_int_eq(s.takes_faults, 1);
    if (can_set_slice())
        ck_assert_uint_eq(s.slice_ns, 100000);
}

/* The starting thread keeps its own mask and slice. */
TEST(the_starting_thread_is_unchanged) {
    pthread_t thread;
    seen mine = {.takes_signals = 0}, its = {.takes_signals = 1};
    ck_assert_int_eq(dlc_thread_start(&thread, "other", inspect_with_short_slice, &its),
                     DLC_OK);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    inspect(&mine);
    ck_assert_str_ne(mine.name, "other");
    ck_assert_int_eq(mine.takes_signals, 1);
    if (can_set_slice())
        ck_assert_uint_ne(mine.slice_ns, its.slice_ns);
}

TEST(no_memory) {
    pthread_t thread;
    seen s = {.takes_signals = 0};
    dlc_memory_fail_at(1);
    ck_assert_int_eq(dlc_thread_start(&thread, "none", inspect, &s), DLC_ERR_NOMEM);
    dlc_memory_fail_at(0);
}

/* ---- Signals around a call that may never come back -------------------------- */

/* Forks a child that hangs in such a call, and reports that through the pipe. */
static pid_t start_hung(int *told, int blocked) {
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        dlc_signal_guard guard;
        sigset_t set;
        (void)signal(SIGINT, SIG_DFL); /* instead of Check's */
        (void)signal(SIGTERM, SIG_DFL);
        sigemptyset(&set);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGTERM);
        sigprocmask(blocked ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
        dlc_signals_guard_begin(&guard);
        _exit(write(ends[1], "x", 1) == 1 ? (sleep(30), 1) : 2);
    }
    close(ends[1]);
    *told = ends[0];
    return pid;
}

TEST_EACH(a_hanging_call_can_be_interrupted, 2) {
    static const int signals[] = {SIGINT, SIGTERM};
    int told, status = 0;
    char byte;
    pid_t pid = start_hung(&told, 0);
    ck_assert_int_eq(read(told, &byte, 1), 1);
    kill(pid, signals[_i]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status));
    ck_assert_int_eq(WTERMSIG(status), signals[_i]);
    close(told);
}

/* A caller that had blocked them waits for them itself. */
TEST(blocked_signals_stay_blocked) {
    int told, status = 0;
    char byte;
    pid_t pid = start_hung(&told, 1);
    ck_assert_int_eq(read(told, &byte, 1), 1);
    kill(pid, SIGTERM);
    usleep(100000);
    ck_assert_int_eq(waitpid(pid, &status, WNOHANG), 0);
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    close(told);
}

TEST(the_mask_is_restored) {
    dlc_signal_guard guard;
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    dlc_signals_guard_begin(&guard);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    ck_assert_int_eq(sigismember(&after, SIGTERM), 1);
    ck_assert_int_eq(sigismember(&after, SIGHUP), 1);
    ck_assert_int_eq(sigismember(&after, SIGSEGV), 0);
    dlc_signals_guard_end(&guard);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int s = 1; s < NSIG; s++)
        ck_assert_int_eq(sigismember(&after, s), sigismember(&before, s));
}
