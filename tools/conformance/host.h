/* The host table for plugins under test. It is the core's, but it ends at the end of a
 * page that is followed by an inaccessible one, counts allocations, can make one fail,
 * and fails the check if an option is read as another type than it has. */
#ifndef DLC_TOOLS_CONFORMANCE_HOST_H
#define DLC_TOOLS_CONFORMANCE_HOST_H

#include "suite.h"

/* Calls the plugin's load with the table; DLC_OK if it has none. A plugin that reads
 * beyond the table's end is killed by SIGSEGV. */
dlc_status suite_load(suite_run *run);

/* Number of allocations that have not been freed yet. */
int64_t suite_host_allocations(void);

/* Frees what the plugin has allocated for its caller; NULL allowed. */
void suite_host_free(void *memory);

/* Makes the n-th allocation from now on fail, and no other; 0: none. */
void suite_host_fail_allocation(int64_t n);

/* 1 if an allocation was made to fail since then. */
int suite_host_has_failed(void);

/* Folders with an entry for each thread and for each open file of the process. */
#define SUITE_THREADS "/proc/self/task"
#define SUITE_FILES "/proc/self/fd"

/* Number of entries of a folder, to compare with an earlier number; -1 if it cannot be
 * read. */
int suite_count_entries(const char *folder);

#endif
