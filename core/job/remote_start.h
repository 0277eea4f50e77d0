/* What the command says to a host where it has started `dlcore node`: on that process's
 * standard input, all texts with a NUL at the end,
 *
 *     "dlcore node 1", the folder, the first rank, how many ranks there, the ranks of
 * the job, the number of variables, each "NAME=value", the number of arguments, each
 *
 * and then a byte for each signal that the ranks are to get. When it ends, so do they.
 * Written by remote_launch.c, read by remote_node.c. */
#ifndef DLC_JOB_REMOTE_START_H
#define DLC_JOB_REMOTE_START_H

#include "base/text.h"

#define DLC_REMOTE_GREETING "dlcore node 1"

typedef struct dlc_remote_start {
    char *folder; /* the working directory */
    int first, local_ranks, ranks;
    char **environment; /* NULL-terminated, as are the arguments */
    char **arguments;   /* the program first */
} dlc_remote_start;

/* Adds the whole message. */
void dlc_remote_start_write(const dlc_remote_start *start, dlc_text *text);
/* Reads it from a descriptor; what is returned is the caller's. DLC_ERR_PEER: the other
 * end sends something else, or has hung up. */
dlc_status dlc_remote_start_read(int fd, dlc_remote_start *start);
void dlc_remote_start_free(dlc_remote_start *start);

#endif
