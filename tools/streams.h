/* stdout and stderr of the command: control characters are escaped, and a failed write
 * is reported. */
#ifndef TOOLS_STREAMS_H
#define TOOLS_STREAMS_H

#include <stdio.h>

#include "base/status.h"

/* From now on both streams escape control characters (base/escape.h), and a process
 * that would exit with 0 although stdout could not be written (a full disk) says so and
 * exits with 1. Call it once, at the start; ranks forked later inherit the streams. */
dlc_status dlc_tool_guard_streams(void);

/* Keeps stdout for what another program reads, such as a JSON document: from now on
 * plugins, and libraries below them, that print to stdout print to stderr. Call it
 * before they are opened. */
dlc_status dlc_tool_reserve_stdout(void);
/* Where to print that: stdout, unless it is reserved. */
FILE *dlc_tool_out(void);

/* The columns of the terminal that stdout is; 0: it is none, so lines may be longer. */
int dlc_tool_columns(void);

#endif
