/* Formats a rank's activity, and takes heartbeats: reads from /proc whether a process
 * computes, waits or is stopped. */
#include "job/activity.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/process.h"

void dlc_activity_text(const dlc_activity *activity, char text[DLC_ACTIVITY_TEXT]) {
    int length = 0;
    text[0] = '\0';
    if (activity->phase[0]) {
        length = snprintf(text, DLC_ACTIVITY_TEXT, " during %.*s%s%.*s",
                          (int)sizeof activity->phase, activity->phase,
                          activity->name[0] ? " " : "", (int)sizeof activity->name,
                          activity->name);
        if (activity->bytes)
            length += snprintf(text + length, DLC_ACTIVITY_TEXT - (size_t)length,
                               " (%" PRIu64 " bytes)", activity->bytes);
    }
    if (activity->exchanged[0])
        length += snprintf(text + length, DLC_ACTIVITY_TEXT - (size_t)length,
                           " %s exchange of %.*s (%" PRIu64 " bytes)",
                           length ? "and" : "during", (int)sizeof activity->exchanged,
                           activity->exchanged, activity->exchanged_bytes);
    if (!activity->transport[0])
        return;
    length += snprintf(text + length, DLC_ACTIVITY_TEXT - (size_t)length,
                       "%s over %.*s", length ? "" : " during a message",
                       (int)sizeof activity->transport, activity->transport);
    if (activity->awaited >= 0)
        snprintf(text + length, DLC_ACTIVITY_TEXT - (size_t)length, " with rank %d",
                 activity->awaited);
}

/* ---- Heartbeats -------------------------------------------------------------- */

/* Waiting for another rank uses little CPU time, as transports sleep when nothing
 * happens. A process that uses a tenth of a core or more is computing. Where the kernel
 * provides no times, assume that it is. */
static int is_process_busy(const dlc_process_threads *now, uint64_t time,
                           const dlc_heartbeat_last *last) {
    if (!last->time || !now->busy_ns || now->waits_for_disk)
        return 1;
    uint64_t busy = now->busy_ns > last->busy ? now->busy_ns - last->busy : 0;
    return 10 * busy > time - last->time;
}

dlc_heartbeat dlc_heartbeat_take(pid_t pid, dlc_shared_activity *activity,
                                 dlc_heartbeat_last *last) {
    char path[64];
    uint64_t now = dlc_now_ns();
    dlc_heartbeat heartbeat = {
        .pid = (int32_t)pid,
        .steps = atomic_load_explicit(&activity->steps, memory_order_relaxed),
        .checks = atomic_load_explicit(&activity->checks, memory_order_relaxed),
        .waits = atomic_load_explicit(&activity->waits, memory_order_relaxed),
        .activity = activity->current};
    atomic_fetch_add_explicit(&activity->parent_ticks, 1, memory_order_relaxed);
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    heartbeat.state = dlc_process_state_at(path);
    dlc_process_threads threads = dlc_process_threads_read(pid);
    int stopped = heartbeat.state == 'T' || heartbeat.state == 't';
    heartbeat.busy = (char)(!stopped && is_process_busy(&threads, now, last));
    heartbeat.disk_wait = (char)(!stopped && threads.waits_for_disk);
    *last = (dlc_heartbeat_last){.time = now, .busy = threads.busy_ns};
    return heartbeat;
}
