/* Checks the traces that ssp wrote against the rule of bounded staleness. */
#ifndef TEST_SSP_TRACE_H
#define TEST_SSP_TRACE_H

#include "fixture.h"

typedef struct trace_counts {
    long updates, answers, delayed, waits, reads;
    int64_t stalest; /* the most clocks that any read was behind */
} trace_counts;

/* Reads the files of all ranks, `path` with the rank appended. `staleness` and `groups`
 * as the model had them; groups 0: each worker is its own. Fails the test unless
 *   - an owner answers as soon as, and not before, it has the updates that the next
 *   iteration of the rank needs, and reports the right clocks;
 *   - a rank waits only if it lacks an update that it needs;
 *   - no read is too old. */
void trace_check(const test_fixture *fixture, const char *path, int64_t staleness,
                 int32_t groups, trace_counts *counts);

#endif
