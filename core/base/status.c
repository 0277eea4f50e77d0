/* Detail sentences per thread, and the texts and exit codes of statuses. */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/escape.h"

#define DETAIL_BYTES 2048

static _Thread_local char detail[DETAIL_BYTES];

dlc_status dlc_fail(dlc_status status, const char *format, ...) {
    /* The arguments may include the current detail, so print into a buffer first. */
    char next[DETAIL_BYTES];
    va_list args;
    va_start(args, format);
    dlc_print(next, sizeof next, format, args);
    va_end(args);
    memcpy(detail, next, sizeof next);
    return status;
}

const char *dlc_detail(void) {
    return detail;
}

void dlc_detail_clear(void) {
    detail[0] = '\0';
}

const char *dlc_status_text(dlc_status status) {
    switch (status) {
    case DLC_OK:
        return "done";
    case DLC_ERR_AGAIN:
        return "try again";
    case DLC_ERR_TIMEOUT:
        return "timed out";
    case DLC_ERR_IO:
        return "input/output error";
    case DLC_ERR_NOMEM:
        return "out of memory";
    case DLC_ERR_UNAVAILABLE:
        return "not available here";
    case DLC_ERR_CANCELLED:
        return "cancelled";
    case DLC_ERR_PEER:
        return "a peer was lost";
    case DLC_ERR_DEVICE:
        return "the device failed";
    case DLC_ERR_INTERNAL:
        return "internal error";
    case DLC_ERR_DIVERGED:
        return "training diverged";
    case DLC_ERR_CONFIG:
        return "wrong configuration";
    case DLC_ERR_PLUGIN:
        return "plugin missing or refused";
    case DLC_ERR_DATA:
        return "bad data";
    case DLC_ERR_UNSUPPORTED:
        return "not supported";
    default:
        break;
    }
    switch (DLC_STATUS_CLASS(status)) {
    case 1:
        return "try again";
    case 3:
        return "the process is lost";
    case 4:
        return "bad input";
    default:
        return "failed";
    }
}

int dlc_exit_code(dlc_status status) {
    switch (status) {
    case DLC_OK:
        return 0;
    case DLC_ERR_CONFIG:
    case DLC_ERR_UNSUPPORTED:
        return 2;
    case DLC_ERR_PLUGIN:
        return 3;
    case DLC_ERR_DATA:
        return 4;
    case DLC_ERR_PEER:
        return 5;
    default:
        return DLC_STATUS_CLASS(status) == 4 ? 2 : 1;
    }
}
