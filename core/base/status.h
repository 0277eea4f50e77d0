/* Errors: a status code, and one detail sentence per thread. */
#ifndef DLC_BASE_STATUS_H
#define DLC_BASE_STATUS_H

#include <dlcore/status.h>

/* Sets this thread's detail sentence and returns `status`. The function that detects an
 * error calls it; callers pass the status on unchanged. dlc_detail() may be an
 * argument, to add context. */
dlc_status dlc_fail(dlc_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The sentence of the last dlc_fail on this thread; "" if there was none. Valid until
 * the next one. */
const char *dlc_detail(void);

/* Before a call that may fail without a sentence, so that an old one is not taken for
 * its own. */
void dlc_detail_clear(void);

/* A short text for a code, such as "out of memory"; that of its class for an unknown
 * code. */
const char *dlc_status_text(dlc_status status);

/* The exit code of a command for a status: 0 done, 1 failure, 2 configuration, 3
 * plugin, 4 data or checkpoint, 5 a peer was lost. */
int dlc_exit_code(dlc_status status);

/* Returns from the calling function if the status is not DLC_OK. For functions that
 * have nothing to clean up. */
#define DLC_TRY(expression) \
    do { \
        dlc_status dlc_try_status_ = (expression); \
        if (dlc_try_status_ != DLC_OK) \
            return dlc_try_status_; \
    } while (0)

#endif
