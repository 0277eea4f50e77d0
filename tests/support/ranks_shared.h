/* The memory shared by all ranks of a test. Whatever starts them (ranks.c by fork;
 * tests/mpi/ranks.c under mpirun) provides it, zeroed, and implements ranks_run. */
#ifndef TEST_RANKS_SHARED_H
#define TEST_RANKS_SHARED_H

#include <stdatomic.h>

#include "support/ranks.h"

enum { RANKS_MAX = 64, RANKS_GATHER_BYTES = 4096, RANKS_SHARED_BYTES = 64 << 10 };

struct test_job {
    atomic_int arrived; /* at the barrier */
    atomic_uint round;
    atomic_int ended;
    atomic_int left; /* ranks that have finished; for the starter's own use */
    char gathered[RANKS_MAX][RANKS_GATHER_BYTES];
    char shared[RANKS_SHARED_BYTES];
};

#endif
