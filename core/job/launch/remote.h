/* A job on several hosts. The command starts `dlcore node` on each of them, by ssh or
 * another command that runs a program on a host; that starts the ranks of its host, in
 * the same folder and with the command's environment, except for what the host sets
 * itself (PATH, HOME). All of them end when one host or the command does. */
#ifndef DLC_JOB_REMOTE_H
#define DLC_JOB_REMOTE_H

#include <stddef.h>

#include "base/status.h"
#include "base/text.h"
#include "job/launch/hosts.h"

/* ---- The command: remote_launch.c */

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

/* ---- `dlcore node`: remote_node.c */

/* Starts the ranks of this host as standard input says, passes signals on to them, and
 * ends them when standard input ends. Blocks until all have ended; *exit_code is the
 * highest of theirs. */
dlc_status dlc_remote_node_run(int *exit_code);

/* ---- What they say to each other: remote_message.c */

/* On standard input of `dlcore node`, all texts with a NUL at the end:
 *
 *     "dlcore node 1", the folder, the first rank, how many ranks there, the ranks
 *     of the job, the number of variables, each "NAME=value", the number of
 *     arguments, each
 *
 * and then a byte for each signal that the ranks are to get. */
#define DLC_REMOTE_GREETING "dlcore node 1"

typedef struct dlc_remote_start {
    char *folder; /* the working directory */
    int first, local_ranks, ranks;
    char **environment; /* NULL-terminated, as are the arguments */
    char **arguments;   /* the program first */
} dlc_remote_start;

/* Adds the whole message. */
void dlc_remote_start_write(const dlc_remote_start *start, dlc_text *text);
/* Reads it from a descriptor; the caller frees the result. DLC_ERR_PEER: the other
 * end sends something else, or has hung up. */
dlc_status dlc_remote_start_read(int fd, dlc_remote_start *start);
void dlc_remote_start_free(dlc_remote_start *start);

/* The first line that `dlcore node` writes to its standard output. It shows that the
 * launcher has started it (which may end with 0 without), and is not passed on. Begins
 * with a byte that nothing else in it repeats. */
#define DLC_REMOTE_STARTED "\1dlcore node\n"

/* The standard output of a host's launcher, which is passed on. */
typedef struct dlc_remote_output {
    int fd;         /* -1: none */
    size_t matched; /* bytes of DLC_REMOTE_STARTED that have come */
} dlc_remote_output;

/* Whether `dlcore node` has started there. */
int dlc_remote_output_has_started(const dlc_remote_output *output);
/* Passes on some of what is there, and closes at the end. 0: there was nothing. */
int dlc_remote_output_pass_on(dlc_remote_output *output);

#endif
