/* The signals that a job handles. */
#include "job/signals.h"

#include "job/job.h"

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
