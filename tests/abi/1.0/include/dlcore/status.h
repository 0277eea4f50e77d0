/* Status codes: what every call of the SDK returns.
 *
 * Zero is success; an error is negative. The hundreds tell the class, which is
 * what a caller acts on; the exact code and the detail sentence (see
 * dlc_host.fail) are what a person reads. Codes are only ever added: an unknown
 * code is handled by its class.
 */
#ifndef DLCORE_STATUS_H
#define DLCORE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

typedef int dlc_status;

enum {
    DLC_OK = 0,

    /* Class 1, try again: nothing is broken, the same call may succeed later. */
    DLC_ERR_AGAIN = -101,   /* no room or no message right now */
    DLC_ERR_TIMEOUT = -102, /* the time given ran out */

    /* Class 2, object lost: destroy what the call was made on; the process is
     * fine. */
    DLC_ERR_IO = -201,          /* a file, socket or device refused */
    DLC_ERR_NOMEM = -202,       /* memory ran out */
    DLC_ERR_UNAVAILABLE = -203, /* cannot work on this machine; detail says why */
    DLC_ERR_CANCELLED = -204,   /* stopped on request */

    /* Class 3, process lost: a peer or the device is gone or state is unknown;
     * save what can be saved and leave. */
    DLC_ERR_PEER = -301,     /* another rank died or hangs */
    DLC_ERR_DEVICE = -302,   /* the device stopped working */
    DLC_ERR_INTERNAL = -303, /* a promise of this SDK was broken */
    DLC_ERR_DIVERGED = -304, /* numbers became infinite or NaN */

    /* Class 4, bad input: the same call will always fail. */
    DLC_ERR_CONFIG = -401,      /* a wrong setting, command line or argument */
    DLC_ERR_PLUGIN = -402,      /* a plugin is missing or was refused */
    DLC_ERR_DATA = -403,        /* a data set or checkpoint is wrong */
    DLC_ERR_UNSUPPORTED = -404, /* well-formed, but not offered here */
};

/* Class of a status: 0 for success, else the hundreds (1 .. 4). */
#define DLC_STATUS_CLASS(status) ((status) < 0 ? -(status) / 100 : 0)

#ifdef __cplusplus
}
#endif
#endif
