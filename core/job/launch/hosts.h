/* The hosts of a job, as a user lists them: "a:4,b:4", or a file with a host a line.
 * Called by the command. */
#ifndef DLC_JOB_HOSTS_H
#define DLC_JOB_HOSTS_H

#include "base/status.h"

typedef struct dlc_job_host {
    char *name; /* as given, "user@" included: for the launcher */
    int ranks;  /* to start there */
} dlc_job_host;

/* In the order given: the ranks of the first host come first. */
typedef struct dlc_hosts {
    dlc_job_host *list;
    int count, ranks; /* hosts; ranks on all of them */
} dlc_hosts;

/* Reads "HOST[:RANKS],...", with one rank where no number is given. An IPv6 address
 * stands in brackets if a number follows. A host that is named several times gets the
 * sum of the numbers. DLC_ERR_CONFIG: the text is wrong. */
dlc_status dlc_hosts_parse(const char *text, dlc_hosts *hosts);
/* Reads a file with one host a line: "HOST", "HOST:RANKS", "HOST RANKS" or "HOST
 * slots=RANKS", as MPI launchers, PBS and Grid Engine write them, and comments that
 * begin with '#'. */
dlc_status dlc_hosts_read(const char *path, dlc_hosts *hosts);
void dlc_hosts_free(dlc_hosts *hosts);

#endif
