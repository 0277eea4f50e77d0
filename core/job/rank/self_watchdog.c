/* The watchdog of a job with one rank: whether it makes progress, and that it stops
 * when asked to. The rules are those of hub/watchdog.c, but a rank that computes keeps
 * nobody waiting: it is named in a warning and goes on until it is asked to stop. A
 * rank that has never recorded an activity is left alone. */
#include "job/rank/self_watchdog.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "job/job.h"
#include "job/supervise.h"

void dlc_self_watchdog_begin(dlc_self_watchdog *watchdog, dlc_shared_activity *activity,
                             double hang_timeout) {
    uint64_t now = dlc_awake_ns();
    *watchdog = (dlc_self_watchdog){.activity = activity,
                                    .hang_timeout = hang_timeout,
                                    .last_look = now,
                                    .last_progress = now,
                                    .last_busy = now};
}

int dlc_self_watchdog_stop(dlc_self_watchdog *watchdog, int signal) {
    dlc_stop stop = dlc_stop_count(&watchdog->stop_time);
    if (stop == DLC_STOP_AGAIN)
        _exit(128 + signal); /* the second request: as if killed by the signal */
    if (stop == DLC_STOP_FIRST)
        watchdog->stop_signal = signal;
    return stop == DLC_STOP_FIRST;
}

static void take_heartbeat(dlc_self_watchdog *watchdog, uint64_t now) {
    uint64_t steps = watchdog->heartbeat.steps;
    watchdog->last_look = now;
    watchdog->heartbeat = dlc_heartbeat_take(getpid(), watchdog->activity,
                                             &watchdog->last);
    if (watchdog->heartbeat.steps != steps)
        watchdog->last_progress = now;
    if (watchdog->heartbeat.busy)
        watchdog->last_busy = now;
    if (watchdog->heartbeat.disk_wait)
        watchdog->last_disk_wait = now;
}

static void end_late_stop(const dlc_self_watchdog *watchdog, uint64_t now,
                          const char *activity) {
    double late = dlc_since(watchdog->stop_time);
    if (late <= watchdog->hang_timeout ||
        dlc_between(watchdog->last_progress, now) <= watchdog->hang_timeout ||
        (watchdog->last_disk_wait &&
         dlc_between(watchdog->last_disk_wait, now) <= watchdog->hang_timeout))
        return;
    dlc_warn("asked to stop %.0f s ago, but pid %d makes no progress%s ([parallel] "
             "hang_timeout = %g): ending it",
             late, (int)getpid(), activity, watchdog->hang_timeout);
    _exit(128 + watchdog->stop_signal);
}

static void warn_of_own_stall(dlc_self_watchdog *watchdog, double stalled,
                              const char *activity) {
    if (watchdog->warned_stall == watchdog->last_progress)
        return;
    watchdog->warned_stall = watchdog->last_progress;
    if (strcmp(watchdog->heartbeat.activity.phase, DLC_SETUP) == 0) {
        dlc_info("still busy%s, for %.0f s so far", activity, stalled);
        return;
    }
    dlc_warn("pid %d has computed for %.0f s%s without progress ([parallel] "
             "hang_timeout = %g)",
             (int)getpid(), stalled, activity, watchdog->hang_timeout);
}

int dlc_self_watchdog_check(dlc_self_watchdog *watchdog, char *text, size_t room) {
    uint64_t now = dlc_awake_ns();
    char activity[DLC_ACTIVITY_TEXT];
    if (now - watchdog->last_look < DLC_HEARTBEAT_NS)
        return 0;
    take_heartbeat(watchdog, now);
    if (watchdog->end_at && now >= watchdog->end_at)
        _exit(dlc_exit_code(DLC_ERR_PEER));
    if (!(watchdog->hang_timeout > 0) || !watchdog->heartbeat.steps || watchdog->end_at)
        return 0;
    dlc_activity_text(&watchdog->heartbeat.activity, activity);
    if (watchdog->stop_signal)
        end_late_stop(watchdog, now, activity);
    double stalled = dlc_between(watchdog->last_progress, now);
    if (stalled <= watchdog->hang_timeout)
        return 0;
    if (dlc_between(watchdog->last_busy, now) <= watchdog->hang_timeout) {
        warn_of_own_stall(watchdog, stalled, activity);
        return 0;
    }
    snprintf(text, room,
             "pid %d hangs: no progress for %.1f s%s ([parallel] hang_timeout = %g)",
             (int)getpid(), stalled, activity, watchdog->hang_timeout);
    watchdog->end_at = now + DLC_GRACE_NS;
    return 1;
}
