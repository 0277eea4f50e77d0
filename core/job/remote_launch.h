/* Starts a job on several hosts, by ssh or another command that runs a program on a
 * host: there `dlcore node` (remote_node.h) starts the ranks, in the same folder and
 * with this process's environment, except for what the host sets itself (PATH, HOME).
 * All of them end when one host or this process does. Called by the command. */
#ifndef DLC_JOB_REMOTE_LAUNCH_H
#define DLC_JOB_REMOTE_LAUNCH_H

#include "job/hosts.h"

typedef struct dlc_remote_launch_args {
    const dlc_hosts *hosts;
    /* Is given a host's name and the program to run there; its words are separated by
     * blanks. NULL: ssh, and nothing for this host itself. */
    const char *launcher;
    char **arguments; /* of every rank, NULL-terminated; the program's path first */
} dlc_remote_launch_args;

/* Blocks until all hosts have ended. *exit_code is the job's; 5 if a host could not be
 * reached or was lost. */
dlc_status dlc_remote_launch(const dlc_remote_launch_args *args, int *exit_code);

#endif
