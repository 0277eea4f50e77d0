/* Time. */
#ifndef DLC_BASE_CLOCK_H
#define DLC_BASE_CLOCK_H

#include <stdint.h>

/* Monotonic nanoseconds. */
uint64_t dlc_now_ns(void);

/* Seconds since `start_ns`. */
double dlc_since(uint64_t start_ns);

/* Seconds of processor time that this process has had, all its threads together. */
double dlc_cpu_seconds(void);

/* Seconds since the process was started by exec (start-up included). */
double dlc_process_seconds(void);

#endif
