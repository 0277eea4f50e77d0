/* Watches over the only rank of a job, as the hub does over several. Owned by that
 * rank's control thread (control.c), which calls it twice a second. */
#ifndef DLC_JOB_SELF_WATCHDOG_H
#define DLC_JOB_SELF_WATCHDOG_H

#include "job/activity.h"

typedef struct dlc_self_watchdog {
    dlc_shared_activity *activity;
    double hang_timeout; /* seconds without progress; 0: for ever */
    dlc_heartbeat_last last;
    dlc_heartbeat heartbeat;
    /* When it was last checked, made progress, was busy, waited for a disk, by
     * dlc_awake_ns: the process itself may have been stopped. */
    uint64_t last_look, last_progress, last_busy, last_disk_wait;
    uint64_t warned_stall;      /* last_progress of the stall that was warned about */
    uint64_t stop_time, end_at; /* 0: not yet */
    int stop_signal;
} dlc_self_watchdog;

void dlc_self_watchdog_begin(dlc_self_watchdog *watchdog, dlc_shared_activity *activity,
                             double hang_timeout);

/* SIGINT or SIGTERM has arrived. Returns 1 for the first; the second ends the process.
 */
int dlc_self_watchdog_stop(dlc_self_watchdog *watchdog, int signal);

/* Checks this process. Returns 1 once if it hangs: `text` says how, and the process has
 * DLC_GRACE_NS to end by itself. After that, and if it does not stop when asked to, the
 * process ends in here. */
int dlc_self_watchdog_check(dlc_self_watchdog *watchdog, char *text, size_t room);

#endif
