/* Status codes: what every call of the SDK returns.
 *
 * 0 is success and every error is negative. The hundreds of an error are its class,
 * which tells the caller what to do: retry, close the object, leave the process, or
 * correct the input. The exact code and the detail sentence (dlc_host.fail) are for
 * people. New codes may be added within a class, so treat an unknown code by its
 * class. */
#ifndef DLCORE_STATUS_H
#define DLCORE_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

typedef int dlc_status;

enum {
    DLC_OK = 0,

    /* Class 1, retry: nothing is broken and the same call may succeed later. */

    DLC_ERR_AGAIN = -101,   /* no room, or no message, at the moment */
    DLC_ERR_TIMEOUT = -102, /* the time limit was reached */

    /* Class 2, object lost: close the object that the call was made on. The process can
     * continue. */

    DLC_ERR_IO = -201,          /* a file, socket or device failed */
    DLC_ERR_NOMEM = -202,       /* out of memory */
    DLC_ERR_UNAVAILABLE = -203, /* cannot work on this machine */
    DLC_ERR_CANCELLED = -204,   /* stopped on request */

    /* Class 3, process lost: a peer or the device is gone, or the state is unknown.
     * Save what can be saved and exit. */

    DLC_ERR_PEER = -301,     /* another rank died or hangs */
    DLC_ERR_DEVICE = -302,   /* the device stopped working */
    DLC_ERR_INTERNAL = -303, /* a bug: a rule of this SDK was broken */
    DLC_ERR_DIVERGED = -304, /* the loss or the weights became infinite or NaN */

    /* Class 4, bad input: the same call will fail every time. */

    DLC_ERR_CONFIG = -401,      /* a wrong setting, command-line option or argument */
    DLC_ERR_PLUGIN = -402,      /* a plugin is missing or was refused */
    DLC_ERR_DATA = -403,        /* a data set or checkpoint is wrong */
    DLC_ERR_UNSUPPORTED = -404, /* valid, but not implemented here */
};

/* The class of a status: 0 for success, otherwise 1 to 4. */
#define DLC_STATUS_CLASS(status) ((status) < 0 ? -(status) / 100 : 0)

#ifdef __cplusplus
}
#endif
#endif
