/* --hosts, --hostfile and --launcher: commands whose ranks run on several hosts. */
#ifndef DLC_TOOLS_HOSTS_H
#define DLC_TOOLS_HOSTS_H

#include <argp.h>

#include "job/launch/hosts.h"

/* Initialize with {0}. */
typedef struct dlc_tool_hosts {
    dlc_hosts hosts;
    const char *launcher; /* NULL: ssh */
} dlc_tool_hosts;

/* A child parser; its input is a dlc_tool_hosts. */
extern const struct argp dlc_tool_hosts_argp;

/* Keeps the whole command line, which every rank gets. Call it before anything changes
 * it. */
dlc_status dlc_tool_hosts_keep(char **argv);

/* Whether this process is to start the ranks on hosts, and is not one of them. */
int dlc_tool_hosts_given(const dlc_tool_hosts *hosts);
/* Starts them with this command line and waits. Returns the exit code. */
int dlc_tool_hosts_run(const dlc_tool_hosts *hosts);

#endif
