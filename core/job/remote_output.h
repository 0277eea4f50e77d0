/* What comes back from a host: the standard output of its launcher, which is passed on.
 * Its first line by `dlcore node`, which is not, shows that the launcher has started
 * it: a launcher may end with 0 without. Used by remote_launch.c and remote_node.c. */
#ifndef DLC_JOB_REMOTE_OUTPUT_H
#define DLC_JOB_REMOTE_OUTPUT_H

#include <stddef.h>

/* Begins with a byte that nothing else in it repeats. */
#define DLC_REMOTE_STARTED "\1dlcore node\n"

typedef struct dlc_remote_output {
    int fd;         /* -1: none */
    size_t matched; /* bytes of DLC_REMOTE_STARTED that have come */
} dlc_remote_output;

/* Whether `dlcore node` has started there. */
int dlc_remote_output_has_started(const dlc_remote_output *output);

/* Passes on some of what is there, and closes at the end. 0: there was nothing. */
int dlc_remote_output_pass_on(dlc_remote_output *output);
void dlc_remote_output_close(dlc_remote_output *output);

#endif
