/* Starts threads with signals blocked, and sets their scheduling slice. */
#include "base/thread.h"

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"

/* The shortest slice that Linux allows. */
enum { SLICE_NS = 100000 };
/* How often a waiting thread calls the job. */
#define CHECK_NS 100000000L

typedef struct start {
    char name[16];
    void *(*main)(void *);
    void *context;
} start;

/* The first version of the argument of sched_setattr(2), which glibc does not declare
 * before 2.41. */
typedef struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
} attributes;

void dlc_thread_request_short_slices(void) {
    attributes a = {.size = sizeof a};
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) != 0 || a.policy != SCHED_OTHER)
        return;
    a.runtime = SLICE_NS;
    (void)syscall(SYS_sched_setattr, 0, &a, 0);
}

/* A thread started while signals are blocked receives none: otherwise it could receive
 * a signal that this process waits for with all of its own threads blocked, and it
 * would be lost. Faults stay unblocked, since libraries probe the CPU with them. */
static void block_signals(sigset_t *before) {
    static const int own[] = {SIGILL, SIGFPE, SIGSEGV, SIGBUS, SIGTRAP};
    sigset_t others;
    (void)sigfillset(&others);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        (void)sigdelset(&others, own[i]);
    (void)pthread_sigmask(SIG_BLOCK, &others, before);
}

static void unblock_signals(const sigset_t *before) {
    (void)pthread_sigmask(SIG_SETMASK, before, NULL);
}

static void *wait_for_signals(void *context) {
    dlc_signal_guard *guard = context;
    (void)pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
    while (sem_wait(&guard->end) != 0 && errno == EINTR)
        continue;
    return NULL;
}

void dlc_signals_guard_begin(dlc_signal_guard *guard) {
    guard->has_thread = 0;
    block_signals(&guard->before);
    if (sigismember(&guard->before, SIGTERM) && sigismember(&guard->before, SIGINT))
        return;
    (void)sem_init(&guard->end, 0, 0);
    guard->has_thread = pthread_create(&guard->thread, NULL, wait_for_signals, guard) ==
                        0;
}

void dlc_signals_guard_end(dlc_signal_guard *guard) {
    if (guard->has_thread) {
        (void)sem_post(&guard->end);
        (void)pthread_join(guard->thread, NULL);
    }
    unblock_signals(&guard->before);
}

static void *begin(void *context) {
    start s = *(start *)context;
    dlc_free(context);
    (void)pthread_setname_np(pthread_self(), s.name);
    return s.main(s.context);
}

dlc_status dlc_thread_start(pthread_t *thread, const char *name, void *(*main)(void *),
                            void *context) {
    sigset_t before;
    start *s = dlc_alloc(1, sizeof *s);
    if (!s)
        return DLC_ERR_NOMEM;
    *s = (start){.main = main, .context = context};
    (void)snprintf(s->name, sizeof s->name, "%s", name);

    block_signals(&before);
    int error = pthread_create(thread, NULL, begin, s);
    unblock_signals(&before);
    if (error == 0)
        return DLC_OK;
    dlc_free(s);
    return dlc_fail(DLC_ERR_NOMEM, "cannot start the thread %s: %s", name,
                    strerror(error));
}

void dlc_thread_wait(pthread_cond_t *changed, pthread_mutex_t *lock,
                     dlc_status (*check)(void *context), void *context) {
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += CHECK_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_cond_clockwait(changed, lock, CLOCK_MONOTONIC, &until) == ETIMEDOUT)
        (void)check(context);
}
