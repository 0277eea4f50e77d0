/* See doing.h. */
#include "job/doing.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

void dlc_words_text(const dlc_words *words, char text[DLC_DOING_TEXT]) {
    int length = 0;
    text[0] = '\0';
    if (words->phase[0]) {
        length = snprintf(text, DLC_DOING_TEXT, " during %.*s%s%.*s",
                          (int)sizeof words->phase, words->phase,
                          words->name[0] ? " " : "", (int)sizeof words->name,
                          words->name);
        if (words->bytes)
            length += snprintf(text + length, DLC_DOING_TEXT - (size_t)length,
                               " (%" PRIu64 " bytes)", words->bytes);
    }
    if (words->exchanged[0])
        snprintf(text + length, DLC_DOING_TEXT - (size_t)length,
                 " %s exchange of %.*s (%" PRIu64 " bytes)", length ? "and" : "during",
                 (int)sizeof words->exchanged, words->exchanged,
                 words->exchanged_bytes);
}

/* ---- Pulse ------------------------------------------------------------------- */

static int read_start(const char *path, char *line, size_t room) {
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    size_t got = fread(line, 1, room - 1, file);
    (void)fclose(file);
    line[got] = '\0';
    return got > 0;
}

/* What a process or thread is at: 'R' runs or could, 'S' sleeps, 'D' waits for a disk,
 * 'T' is stopped. */
static char state_of(const char *path) {
    char line[256];
    /* The name stands in brackets and may hold anything, brackets too. */
    const char *end = read_start(path, line, sizeof line) ? strrchr(line, ')') : NULL;
    return end && end[1] == ' ' && end[2] ? end[2] : '?';
}

/* What the threads of a process are at, all together. */
typedef struct threads {
    unsigned long long busy; /* nanoseconds that they ran, or waited for a processor */
    int waits_for_disk;
} threads;

static threads look_at_threads(pid_t pid) {
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
        if (read_start(path, line, sizeof line) &&
            sscanf(line, "%llu %llu", &ran, &waited) == 2)
            found.busy += ran + waited;
        snprintf(path, sizeof path, "/proc/%d/task/%s/stat", (int)pid, entry->d_name);
        found.waits_for_disk |= state_of(path) == 'D';
    }
    closedir(folder);
    return found;
}

/* Waiting for another rank costs little: transports sleep when nothing moves. From a
 * tenth of a core on, a process computes. Where the kernel doesn't tell, think well of
 * it. */
static int works(const threads *now, uint64_t time, const dlc_pulse_last *last) {
    if (!last->time || !now->busy || now->waits_for_disk)
        return 1;
    unsigned long long busy = now->busy > last->busy ? now->busy - last->busy : 0;
    return 10 * busy > time - last->time;
}

dlc_pulse dlc_pulse_take(pid_t pid, dlc_doing *doing, dlc_pulse_last *last) {
    char path[64];
    uint64_t now = dlc_now_ns();
    dlc_pulse pulse = {
        .pid = (int32_t)pid,
        .steps = atomic_load_explicit(&doing->steps, memory_order_relaxed),
        .checks = atomic_load_explicit(&doing->checks, memory_order_relaxed),
        .words = doing->words};
    atomic_fetch_add_explicit(&doing->looks, 1, memory_order_relaxed);
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    pulse.state = state_of(path);
    threads threads_now = look_at_threads(pid);
    int stopped = pulse.state == 'T' || pulse.state == 't';
    pulse.worked = (char)(!stopped && works(&threads_now, now, last));
    pulse.disk = (char)(!stopped && threads_now.waits_for_disk);
    *last = (dlc_pulse_last){.time = now, .busy = threads_now.busy};
    return pulse;
}
