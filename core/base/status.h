/* Errors: a status code and one detail sentence a thread. */
#ifndef DLC_BASE_STATUS_H
#define DLC_BASE_STATUS_H

#include <dlcore/status.h>

/* Sets this thread's detail sentence and returns `status`. Whoever finds an error
 * first calls it; callers pass the status on unchanged. `%s` of the present
 * detail (dlc_detail()) is allowed as an argument, to add where it happened. */
dlc_status dlc_fail(dlc_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The sentence of the last dlc_fail on this thread, "" if there was none. Valid
 * until the next one. */
const char *dlc_detail(void);

/* "out of memory" for a code; a class's name for an unknown code. */
const char *dlc_status_text(dlc_status status);

/* Exit code of the command for a status: 0 done, 1 failure, 2 configuration,
 * 3 plugin, 4 data or checkpoint, 5 a peer was lost. */
int dlc_exit_code(dlc_status status);

/* Hands the status on, out of a function that has nothing to clean up. */
#define DLC_TRY(expression) \
    do { \
        dlc_status dlc_try_status_ = (expression); \
        if (dlc_try_status_ != DLC_OK) \
            return dlc_try_status_; \
    } while (0)

#endif
