/* Implements probes: the child sends the status and the sentence of the call. */
#include "plugin/probe.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"
#include "plugin/child.h"

typedef struct probe {
    dlc_status (*call)(void *context);
    void *context;
    int shown;
} probe;

/* What the child sends. */
typedef struct answer {
    dlc_status status;
    char sentence[1024];
} answer;

static void make_call(int fd, void *context) {
    const probe *made = context;
    answer given = {.status = DLC_OK};
    if (!made->shown)
        dlc_child_isolate();
    dlc_detail_clear();
    given.status = made->call(made->context);
    (void)fflush(NULL);
    strncpy(given.sentence, dlc_detail(), sizeof given.sentence - 1);
    dlc_child_send(fd, &given, sizeof given);
}

/* 1: complete; 0: nothing will follow; -1: the time is over. */
static int receive(const dlc_child *child, double seconds, answer *given) {
    dlc_stopwatch watch = {0};
    size_t length = 0;
    while (length < sizeof *given) {
        double left = seconds - dlc_stopwatch_look(&watch);
        if (!dlc_child_wait(child, left)) {
            if (left <= 0)
                return -1;
            continue;
        }
        ssize_t got = read(child->fd, (char *)given + length, sizeof *given - length);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            return 0;
        length += (size_t)got;
    }
    return 1;
}

static dlc_status try(const char *what, double seconds, probe made) {
    dlc_child child;
    answer given;
    (void)fflush(NULL); /* so that it is not printed twice */
    if (!dlc_child_start(make_call, &made, &child))
        return dlc_fail(DLC_ERR_IO, "%s: cannot be tried: %s", what,
                        strerror(errno)); // NOLINT(concurrency-mt-unsafe)
    seconds = dlc_child_patience(seconds);
    int received = receive(&child, seconds, &given);
    int signal = dlc_child_end(&child, received == 0);
    if (received < 0)
        return dlc_fail(DLC_ERR_PLUGIN, "%s did not return within %.3g s", what,
                        seconds);
    if (received == 0 && signal)
        return dlc_fail(DLC_ERR_PLUGIN, "%s crashed (signal %d, %s)", what, signal,
                        strsignal(signal)); // NOLINT(concurrency-mt-unsafe)
    if (received == 0)
        return dlc_fail(DLC_ERR_PLUGIN, "%s ended the process", what);
    return given.status == DLC_OK ? DLC_OK
                                  : dlc_fail(given.status, "%s", given.sentence);
}

dlc_status dlc_probe(const char *what, double seconds,
                     dlc_status (*call)(void *context), void *context) {
    return try(what, seconds, (probe){.call = call, .context = context});
}

dlc_status dlc_probe_shown(const char *what, double seconds,
                           dlc_status (*call)(void *context), void *context) {
    return try(what, seconds, (probe){.call = call, .context = context, .shown = 1});
}
