/* What code of a plugin must leave as it was: how the calling thread computes, and
 * cheap-to-read state of the process.
 *
 * A plugin that sets another rounding, or flush-to-zero, makes every later sum of the
 * thread a different one, without an error. */
#ifndef DLC_BASE_PROCESS_STATE_H
#define DLC_BASE_PROCESS_STATE_H

#include <signal.h>
#include <sys/time.h>

/* ---- Floating-point modes -------------------------------------------------------- */

/* Sets the modes of the calling thread back to those in which every process starts.
 * Returns what had been changed, such as "the rounding of floating-point numbers", or
 * NULL. Takes a few nanoseconds. */
const char *dlc_modes_restore(void);

/* ---- The process ----------------------------------------------------------------- */

enum { DLC_TIMERS = 3 }; /* ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF */

typedef struct dlc_process_state {
    sigset_t blocked; /* in the calling thread */
    int has_timer[DLC_TIMERS];
    char locale[256];
} dlc_process_state;

void dlc_process_state_take(dlc_process_state *state);

/* Returns what differs from before, such as "the locale", or NULL. The same thread must
 * have taken `before`. */
const char *dlc_process_state_change(const dlc_process_state *before);

#endif
