/* Clocks: wall time, CPU time, age of the process. */
#ifndef DLC_BASE_CLOCK_H
#define DLC_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds of the monotonic clock. */
uint64_t dlc_now_ns(void);

/* The same without the time in which this process was stopped (Ctrl-Z, a suspended job,
 * a paused container): the clock of deadlines that other processes must keep. It
 * recognizes a stop by not having been called for DLC_STOPPED_NS, so whoever waits by
 * it wakes up more often. For one thread of a process. */
uint64_t dlc_awake_ns(void);
#define DLC_STOPPED_NS 2000000000u
/* To be called after a call that may block for longer, such as DNS: that was no stop.
 */
void dlc_awake_blocked(void);
/* Waits until something can be read, or until dlc_awake_ns() is `until`. Returns 1, 0
 * if time is up, or -1 with errno. */
int dlc_wait_readable(int fd, uint64_t until);

/* Time that a waiting process counts itself, by looking every now and then: a look adds
 * half a second at most. So hardly any time passes while the process is stopped; it
 * must look several times a second. Starts as {0}. */
typedef struct dlc_stopwatch {
    uint64_t looked;
    double seconds;
} dlc_stopwatch;

/* The seconds until now; 0 at the first look. */
double dlc_stopwatch_look(dlc_stopwatch *watch);

/* Seconds from one moment to a later one of the same clock; 0 if it is not later. */
double dlc_between(uint64_t from, uint64_t to);
/* Seconds since `start_ns`. */
double dlc_since(uint64_t start_ns);

/* Seconds of CPU time used by all threads of this process. */
double dlc_cpu_seconds(void);

/* Seconds since this process was started by exec, start-up included; 0 if /proc does
 * not tell. */
double dlc_process_seconds(void);

#endif
