/* The signals that a job handles. */
#include "job/signals.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "job/job.h"

void dlc_rank_signals(sigset_t *set) {
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
    sigaddset(set, SIGUSR1);
}

dlc_status dlc_signals_open(const sigset_t *signals, const char *who, int *fd) {
    *fd = signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK);
    return *fd >= 0 ? DLC_OK
                    : dlc_fail(DLC_ERR_IO, "%s cannot listen for signals: %s", who,
                               strerror(errno));
}

unsigned dlc_signal_request(int signal) {
    return signal == SIGHUP    ? DLC_JOB_CHECKPOINT
           : signal == SIGUSR1 ? DLC_JOB_RELOAD
                               : 0;
}

int dlc_launcher_is_gone(pid_t *parent) {
    if (!*parent || getppid() == *parent)
        return 0;
    *parent = 0;
    dlc_warn("the launcher of this job has ended: stopping");
    return 1;
}
