/* What solvers wrote of a job, held against the rule. */
#ifndef TEST_SSP_TRACE_H
#define TEST_SSP_TRACE_H

#include "rig.h"

typedef struct trace_counts {
    long updates, answers, parked, stands, reads;
    int64_t stalest; /* clocks that any read was behind */
} trace_counts;

/* Reads the files of all ranks, `path` with the rank's number behind it. `staleness`
 * and `groups` as the solver had them; groups 0: each worker its own. Stops the test
 * where the rule is broken:
 *   - an owner answers as soon as, and not before, the updates are in that the asker's
 *     next iteration needs, and says rightly which are;
 *   - nobody stands still who knows of all updates that it needs;
 *   - nobody reads what is too old. */
void trace_check(const test_rig *rig, const char *path, int64_t staleness,
                 int32_t groups, trace_counts *counts);

#endif
