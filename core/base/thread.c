/* See thread.h. */
#include "base/thread.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/memory.h"

/* The least that Linux gives. */
enum { TURN_NS = 100000 };

typedef struct start {
    char name[16];
    void *(*main)(void *);
    void *context;
} start;

/* The first version of what sched_setattr(2) takes, for which glibc has no name before
 * 2.41. */
typedef struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
} attributes;

void dlc_thread_take_short_turns(void) {
    attributes a = {.size = sizeof a};
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) != 0 || a.policy != SCHED_OTHER)
        return;
    a.runtime = TURN_NS;
    (void)syscall(SYS_sched_setattr, 0, &a, 0);
}

void dlc_signals_block(sigset_t *before) {
    static const int own[] = {SIGILL, SIGFPE, SIGSEGV, SIGBUS, SIGTRAP};
    sigset_t others;
    (void)sigfillset(&others);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        (void)sigdelset(&others, own[i]);
    (void)pthread_sigmask(SIG_BLOCK, &others, before);
}

void dlc_signals_unblock(const sigset_t *before) {
    (void)pthread_sigmask(SIG_SETMASK, before, NULL);
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

    dlc_signals_block(&before);
    int error = pthread_create(thread, NULL, begin, s);
    dlc_signals_unblock(&before);
    if (error == 0)
        return DLC_OK;
    dlc_free(s);
    return dlc_fail(DLC_ERR_NOMEM, "cannot start the thread %s: %s", name,
                    strerror(error));
}
