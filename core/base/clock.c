/* Reads the clocks of the system and of this process. */
#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/read.h"

uint64_t dlc_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t last_awake, stopped;

uint64_t dlc_awake_ns(void) {
    uint64_t now = dlc_now_ns();
    if (last_awake && now - last_awake > DLC_STOPPED_NS)
        stopped += now - last_awake;
    last_awake = now;
    return now - stopped;
}

void dlc_awake_blocked(void) {
    last_awake = dlc_now_ns();
}

int dlc_wait_readable(int fd, uint64_t until) {
    enum { LONGEST_MS = 500 }; /* shorter than DLC_STOPPED_NS */
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    for (;;) {
        uint64_t now = dlc_awake_ns(),
                 ms = until > now ? (until - now) / 1000000 + 1 : 0;
        int rc = ms ? poll(&polled, 1, ms < LONGEST_MS ? (int)ms : LONGEST_MS) : 0;
        if (rc > 0 || !ms)
            return rc;
        if (rc < 0 && errno != EINTR)
            return -1;
    }
}

double dlc_stopwatch_look(dlc_stopwatch *watch) {
    const double most = 0.5;
    double passed = watch->looked ? dlc_since(watch->looked) : 0;
    watch->looked = dlc_now_ns();
    watch->seconds += passed < most ? passed : most;
    return watch->seconds;
}

double dlc_between(uint64_t from, uint64_t to) {
    return to > from ? (double)(to - from) * 1e-9 : 0;
}

double dlc_since(uint64_t start_ns) {
    return (double)(dlc_now_ns() - start_ns) * 1e-9;
}

double dlc_cpu_seconds(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double dlc_process_seconds(void) {
    /* Field 22 of /proc/self/stat: start time in ticks since boot (proc(5)). The name
     * of the command, field 2, may contain anything, so count from its ')'. */
    char line[1024];
    (void)dlc_read_text("/proc/self/stat", line, sizeof line);
    const char *field = strrchr(line, ')');
    unsigned long long ticks = 0;
    struct timespec now;
    if (!field || sscanf(field + 1,
                         " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
                         "%*d %*d %*d %*d %llu",
                         &ticks) != 1)
        return 0;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9 -
           (double)ticks / (double)sysconf(_SC_CLK_TCK);
}
