/* Threads of the core beside the train thread. */
#ifndef DLC_BASE_THREAD_H
#define DLC_BASE_THREAD_H

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#include "base/status.h"

/* Threads that are started between these two take no signals: one that did would be
 * given those that this process waits for with signals blocked in its own threads, and
 * they would be lost. They take their own faults, which libraries try out on
 * themselves. */
void dlc_signals_block(sigset_t *before);
void dlc_signals_unblock(const sigset_t *before);

/* The same around a call that may never come back (a plugin's code while it is loaded):
 * SIGINT and SIGTERM, where they were not blocked before, go to a thread that stands
 * by, and do to the process what they did before. Between begin and end the caller may
 * not fork. Without memory for a thread they wait until the end. */
typedef struct dlc_signal_guard {
    sigset_t before;
    pthread_t thread;
    int has_thread;
    sem_t end; /* of the thread; no descriptor: the call may close them all */
} dlc_signal_guard;
void dlc_signals_guard_begin(dlc_signal_guard *guard);
void dlc_signals_guard_end(dlc_signal_guard *guard);

/* Starts one, named `name` (15 characters at most), which the caller joins. It takes no
 * signals: they are the train thread's. DLC_ERR_NOMEM. */
dlc_status dlc_thread_start(pthread_t *thread, const char *name, void *(*main)(void *),
                            void *context);

/* For threads that bring what computing threads wait for, called in them: asks for
 * short turns, so that the thread gets one sooner when it is woken where others compute
 * (Linux 6.12 and later: sched_runtime of sched_setattr(2) is what a thread asks for of
 * EEVDF). Who may not, or runs by another policy, goes on as it is. */
void dlc_thread_take_short_turns(void);

#endif
