/* The process in which a check runs: its state, which no call of a plugin may change,
 * and what it uses, which calls that are repeated must not increase. */
#ifndef DLC_TOOLS_CONFORMANCE_PROCESS_H
#define DLC_TOOLS_CONFORMANCE_PROCESS_H

#include "suite.h"

/* Remembers the state. Called once, before the plugin is opened. */
void suite_process_begin(suite_run *run);

/* Fails the check if the state is another one: floating-point modes, blocked signals,
 * timers, locale, umask, folder, environment, or a second process that returns from
 * `call`. suite_must does this after every call that it is told of. */
void suite_process_check(suite_run *run, const char *call);

/* At the end of a check: handlers of signals and the standard streams, too. */
void suite_process_finish(suite_run *run);

/* fork() for checks: the child takes part in the check. */
pid_t suite_fork(suite_run *run);

/* Calls `once` `times` times, and again and again. Fails the check if, once it is warm,
 * it uses more and more memory, files, threads or processes, or starts many threads in
 * each call. */
void suite_repeat(suite_run *run, int times, const char *calls,
                  void (*once)(void *context), void *context);

/* Folders with an entry for each thread and for each open file of the process. */
#define SUITE_THREADS "/proc/self/task"
#define SUITE_FILES "/proc/self/fd"

/* Number of entries of a folder, to compare with an earlier number; -1 if it cannot be
 * read. */
int suite_count_entries(const char *folder);

/* Number of processes that descend from this one, up to `most`. */
int suite_count_descendants(int most);

#endif
