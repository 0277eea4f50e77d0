/* Signals, the ends of child processes, and deadlines. */
#include "job/supervise.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "job/job.h"

#define STOP_AGAIN_S 0.2

/* ---- Signals -------------------------------------------------------------------- */

void dlc_rank_signals(sigset_t *set) {
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGUSR1);
}

unsigned dlc_signal_request(int signal) {
    return signal == SIGHUP    ? DLC_JOB_CHECKPOINT
           : signal == SIGUSR1 ? DLC_JOB_RELOAD
                               : 0;
}

dlc_status dlc_signals_open(const sigset_t *signals, const char *who, int *fd) {
    *fd = signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK);
    return *fd >= 0 ? DLC_OK
                    : dlc_fail(DLC_ERR_IO, "%s cannot listen for signals: %s", who,
                               strerror(errno));
}

int dlc_signals_next(int fd) {
    struct signalfd_siginfo info;
    return read(fd, &info, sizeof info) == (ssize_t)sizeof info ? (int)info.ssi_signo
                                                                : 0;
}

dlc_stop dlc_stop_count(uint64_t *first) {
    if (*first)
        return dlc_since(*first) >= STOP_AGAIN_S ? DLC_STOP_AGAIN : DLC_STOP_SAME;
    *first = dlc_now_ns();
    return DLC_STOP_FIRST;
}

int dlc_launcher_is_gone(pid_t *parent) {
    if (!*parent || getppid() == *parent)
        return 0;
    *parent = 0;
    dlc_warn("the launcher of this job has ended: stopping");
    return 1;
}

/* ---- Children ------------------------------------------------------------------- */

int dlc_process_has_ended(pid_t pid, dlc_ending *ending) {
    siginfo_t how = {0};
    if (waitid(P_PID, (id_t)pid, &how, WEXITED | WNOHANG | WNOWAIT) || !how.si_pid)
        return 0;
    *ending = (dlc_ending){.by_signal = how.si_code != CLD_EXITED,
                           .number = how.si_status};
    return 1;
}

dlc_ending dlc_process_wait(pid_t pid) {
    int how = 0;
    while (waitpid(pid, &how, 0) < 0 && errno == EINTR)
        continue;
    return WIFSIGNALED(how) ? (dlc_ending){.by_signal = 1, .number = WTERMSIG(how)}
                            : (dlc_ending){.number = WEXITSTATUS(how)};
}

/* ---- Loops ---------------------------------------------------------------------- */

int dlc_poll_until(const uint64_t *moments, int count) {
    uint64_t now = dlc_awake_ns(), next = UINT64_MAX;
    for (int i = 0; i < count; i++)
        if (moments[i] && moments[i] < next)
            next = moments[i];
    if (next == UINT64_MAX)
        return -1;
    return now >= next ? 0 : (int)((next - now) / 1000000u) + 1;
}

void dlc_close(int *fd) {
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void dlc_host_name(char *text, size_t room) {
    if (gethostname(text, room))
        snprintf(text, room, "localhost");
    text[room - 1] = '\0';
}
