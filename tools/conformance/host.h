/* The host table for plugins under test. It is the core's, but it ends at the end of a
 * page that is followed by an inaccessible one, counts allocations, puts guards around
 * them, can make one fail, and fails the check if an option is read as another type
 * than it has. */
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

/* Bytes of memory that the plugin has allocated; 0: it is no such memory. */
size_t suite_host_size(const void *memory);

/* Fails the check if the plugin has written beyond memory that it has not freed yet. */
void suite_host_check(void);

/* Makes the n-th allocation from now on fail, and no other; 0: none. */
void suite_host_fail_allocation(int64_t n);

/* 1 if an allocation was made to fail since then. */
int suite_host_has_failed(void);

#endif
