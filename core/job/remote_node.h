/* The far end of a job on several hosts: starts the ranks of this host as
 * remote_launch.c says on standard input, passes signals on to them, and ends them when
 * standard input ends. Called by the command. */
#ifndef DLC_JOB_REMOTE_NODE_H
#define DLC_JOB_REMOTE_NODE_H

#include "base/status.h"

/* Blocks until all ranks of this host have ended; *exit_code is the highest of theirs.
 */
dlc_status dlc_remote_node_run(int *exit_code);

#endif
