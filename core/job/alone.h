/* Watches over the only rank of a job, as the hub does over several: owned by its
 * control thread (rank.c), which looks twice a second. */
#ifndef DLC_JOB_ALONE_H
#define DLC_JOB_ALONE_H

#include "job/doing.h"

typedef struct dlc_alone {
    dlc_doing *doing;
    double deadline; /* seconds without progress; 0: for ever */
    dlc_pulse_last last;
    dlc_pulse pulse;
    uint64_t looked, moved, worked, disk; /* when; of this process's clock */
    uint64_t warned;                      /* `moved` of the stall that was told of */
    uint64_t stop_time, end_at;           /* 0: not yet */
    int stop_signal;
} dlc_alone;

void dlc_alone_begin(dlc_alone *alone, dlc_doing *doing, double deadline);

/* SIGINT or SIGTERM came. 1: it is the first; the second one ends the process. */
int dlc_alone_stop(dlc_alone *alone, int signal);

/* Looks at this process. 1: it hangs, `text` says how, and it has DLC_GRACE_NS to end
 * because it was told; then, and where it does not stop when asked to, the process
 * ends here. */
int dlc_alone_look(dlc_alone *alone, char *text, size_t room);

#endif
