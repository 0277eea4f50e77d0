/* Reads and compares the modes of the floating-point unit, signals, timers and locale.
 */
#include "base/process_state.h"

#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ---- Floating-point modes -------------------------------------------------------- */

#if defined(__x86_64__)

/* The bits of the SSE unit that are results, not modes. */
#define FLAGS 0x3fu

static const char *mode_that_differs(const femode_t *now, const femode_t *usual) {
    enum { FLUSH_OR_DENORMALS_ZERO = 0x8040, ROUNDING = 0x6000, X87_ROUNDING = 0x0c00 };
    unsigned sse = (now->__mxcsr ^ usual->__mxcsr) & ~FLAGS;
    unsigned x87 = (unsigned)(now->__control_word ^ usual->__control_word);
    if (!sse && !x87)
        return NULL;
    if (sse & FLUSH_OR_DENORMALS_ZERO)
        return "how the smallest floating-point numbers are treated (FTZ, DAZ)";
    if (sse & ROUNDING || x87 & X87_ROUNDING)
        return "the rounding of floating-point numbers";
    return "the modes of the floating-point unit";
}

#else

static const char *mode_that_differs(const femode_t *now, const femode_t *usual) {
    return memcmp(now, usual, sizeof *now) == 0
               ? NULL
               : "the modes of the floating-point unit";
}

#endif

const char *dlc_modes_restore(void) {
    static _Thread_local int has_usual;
    static _Thread_local femode_t usual;
    femode_t now;
    (void)fegetmode(&now);
    if (!has_usual) {
        (void)fesetmode(FE_DFL_MODE);
        (void)fegetmode(&usual);
        has_usual = 1;
    }
    const char *changed = mode_that_differs(&now, &usual);
    if (changed)
        (void)fesetmode(FE_DFL_MODE);
    return changed;
}

/* ---- The process ----------------------------------------------------------------- */

void dlc_process_state_take(dlc_process_state *state) {
    static const enum __itimer_which timers[DLC_TIMERS] = {ITIMER_REAL, ITIMER_VIRTUAL,
                                                           ITIMER_PROF};
    memset(state, 0, sizeof *state);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &state->blocked);
    for (int i = 0; i < DLC_TIMERS; i++) {
        struct itimerval left;
        if (getitimer(timers[i], &left) == 0)
            state->has_timer[i] = left.it_value.tv_sec || left.it_value.tv_usec ||
                                  left.it_interval.tv_sec || left.it_interval.tv_usec;
    }
    const char *locale = setlocale(LC_ALL, NULL); // NOLINT(concurrency-mt-unsafe)
    (void)snprintf(state->locale, sizeof state->locale, "%s", locale ? locale : "");
}

const char *dlc_process_state_change(const dlc_process_state *before) {
    dlc_process_state now;
    dlc_process_state_take(&now);
    for (int s = 1; s < NSIG; s++)
        if (sigismember(&now.blocked, s) != sigismember(&before->blocked, s))
            return "which signals are blocked";
    if (memcmp(now.has_timer, before->has_timer, sizeof now.has_timer) != 0)
        return "a timer of the process (alarm, setitimer)";
    if (strcmp(now.locale, before->locale) != 0)
        return "the locale";
    return NULL;
}
