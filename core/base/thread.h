/* Starts the core's own threads; they must not receive the signals that the job
 * handles. */
#ifndef DLC_BASE_THREAD_H
#define DLC_BASE_THREAD_H

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#include "base/status.h"

/* Blocks signals around a call that may never return (the code of a
 * plugin while it is loaded): SIGINT and SIGTERM, unless they were blocked before, are
 * delivered to a helper thread and act on the process as before. Between begin and end
 * the caller may not fork. Without memory for the thread they stay pending until the
 * end. */
typedef struct dlc_signal_guard {
    sigset_t before;
    pthread_t thread;
    int has_thread;
    sem_t end; /* of the thread; not a descriptor, as the call may close all of them */
} dlc_signal_guard;
void dlc_signals_guard_begin(dlc_signal_guard *guard);
void dlc_signals_guard_end(dlc_signal_guard *guard);

/* Starts a thread named `name` (at most 15 characters), which the caller joins. It
 * receives no signals. DLC_ERR_NOMEM. */
dlc_status dlc_thread_start(pthread_t *thread, const char *name, void *(*main)(void *),
                            void *context);

/* Waits on a condition, with its lock, for a thread that may itself be waiting for
 * another rank: every 100 ms calls `check`, which is the job's, so that its watchdog
 * sees that the calling thread waits, too. Returns after that or earlier. An error of
 * `check` is left to the other thread to report. */
void dlc_thread_wait(pthread_cond_t *changed, pthread_mutex_t *lock,
                     dlc_status (*check)(void *context), void *context);

/* For threads that compute threads wait for, to be called in them: requests a short
 * scheduling slice, so that the thread runs sooner when it is woken on a busy core
 * (Linux 6.12 and later: sched_runtime of sched_setattr(2) sets the slice of EEVDF).
 * Does nothing if it is not permitted or the policy is another one. */
void dlc_thread_request_short_slices(void);

#endif
