/* The host table that plugins under check are handed: the core's, but that it ends
 * where memory does, counts what was allocated, and can refuse an allocation. */
#ifndef DLC_TOOLS_CONFORMANCE_HOST_H
#define DLC_TOOLS_CONFORMANCE_HOST_H

#include "suite.h"

/* A table of a host of version 1.0; reading behind it kills the process. */
const dlc_host *suite_host(suite_run *run);

/* Calls the plugin's load, if it has one. */
dlc_status suite_load(suite_run *run);

/* Pieces that were allocated and not freed yet. */
int64_t suite_host_pieces(void);

/* The n-th allocation from now on fails, that one alone; 0: none. */
void suite_host_refuse(int64_t n);
/* Was one refused since? */
int suite_host_refused(void);

/* Entries of a folder, of which only differences count: open files, threads. -1: it
 * cannot be read. */
#define SUITE_THREADS "/proc/self/task"
#define SUITE_FILES "/proc/self/fd"
int suite_count_entries(const char *folder);

#endif
