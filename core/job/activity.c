/* Keeps and formats a rank's activity, and takes heartbeats: reads from /proc whether
 * a process computes, waits or is stopped. */
#include "job/activity.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/read.h"

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

/* ---- Writing ----------------------------------------------------------------- */

static void copy_text(char *to, size_t room, const char *text) {
    size_t i = 0;
    for (; i < room - 1 && text[i]; i++)
        to[i] = text[i];
    to[i] = '\0';
}

/* Lost increments do not matter: readers only look whether the value changes. */
static void increment(_Atomic uint64_t *counter) {
    uint64_t count = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, count + 1, memory_order_relaxed);
}

void dlc_activity_progress(dlc_shared_activity *activity) {
    activity->current.transport[0] = '\0';
    increment(&activity->steps);
}

void dlc_activity_set(dlc_shared_activity *activity, const char *phase,
                      const char *name, uint64_t bytes) {
    dlc_activity *current = &activity->current;
    copy_text(current->phase, sizeof current->phase, phase ? phase : "");
    copy_text(current->name, sizeof current->name, phase && name ? name : "");
    current->bytes = bytes;
    dlc_activity_progress(activity);
}

void dlc_activity_set_exchange(dlc_shared_activity *activity, const char *name,
                               uint64_t bytes) {
    dlc_activity *current = &activity->current;
    copy_text(current->exchanged, sizeof current->exchanged, name ? name : "");
    current->exchanged_bytes = bytes;
    dlc_activity_progress(activity);
}

void dlc_activity_set_wait(dlc_shared_activity *activity, const char *transport,
                           int32_t rank) {
    activity->current.awaited = rank;
    copy_text(activity->current.transport, sizeof activity->current.transport,
              transport);
}

void dlc_activity_check(dlc_shared_activity *activity, int is_main) {
    increment(&activity->checks);
    if (is_main)
        increment(&activity->waits);
}

/* ---- Heartbeats -------------------------------------------------------------- */

/* The state of a process or thread: 'R' running or runnable, 'S' sleeping, 'D' waiting
 * for a disk, 'T' stopped. */
static char state_of(const char *path) {
    char line[256];
    /* The name is in parentheses and may contain anything, parentheses too. */
    const char *end = dlc_read_text(path, line, sizeof line) ? strrchr(line, ')')
                                                             : NULL;
    return end && end[1] == ' ' && end[2] ? end[2] : '?';
}

/* What the threads of a process have done, taken together. */
typedef struct threads {
    unsigned long long busy; /* nanoseconds that they ran, or waited for a CPU */
    int waits_for_disk;
} threads;

static threads read_threads(pid_t pid) {
    char path[320], line[128];
    threads found = {.busy = 0};
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    if (!folder)
        return found;
    for (struct dirent *entry; (entry = readdir(folder));) {
        unsigned long long ran = 0, waited = 0;
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "/proc/%d/task/%s/schedstat", (int)pid,
                 entry->d_name);
        if (dlc_read_text(path, line, sizeof line) &&
            sscanf(line, "%llu %llu", &ran, &waited) == 2)
            found.busy += ran + waited;
        snprintf(path, sizeof path, "/proc/%d/task/%s/stat", (int)pid, entry->d_name);
        found.waits_for_disk |= state_of(path) == 'D';
    }
    closedir(folder);
    return found;
}

/* Waiting for another rank uses little CPU time, as transports sleep when nothing
 * happens. A process that uses a tenth of a core or more is computing. Where the kernel
 * provides no times, assume that it is. */
static int is_busy(const threads *now, uint64_t time, const dlc_heartbeat_last *last) {
    if (!last->time || !now->busy || now->waits_for_disk)
        return 1;
    unsigned long long busy = now->busy > last->busy ? now->busy - last->busy : 0;
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
    heartbeat.state = state_of(path);
    threads threads_now = read_threads(pid);
    int stopped = heartbeat.state == 'T' || heartbeat.state == 't';
    heartbeat.busy = (char)(!stopped && is_busy(&threads_now, now, last));
    heartbeat.disk_wait = (char)(!stopped && threads_now.waits_for_disk);
    *last = (dlc_heartbeat_last){.time = now, .busy = threads_now.busy};
    return heartbeat;
}
