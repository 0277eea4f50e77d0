/* Clocks: wall time, CPU time, age of the process. */
#ifndef DLC_BASE_CLOCK_H
#define DLC_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds of the monotonic clock. */
uint64_t dlc_now_ns(void);

/* Seconds since `start_ns`. */
double dlc_since(uint64_t start_ns);

/* Seconds of CPU time used by all threads of this process. */
double dlc_cpu_seconds(void);

/* Seconds since this process was started by exec, start-up included; 0 if /proc does
 * not tell. */
double dlc_process_seconds(void);

#endif
