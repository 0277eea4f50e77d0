/* The memory that all ranks of a test map. Who starts them (ranks.c, which forks them;
 * tests/mpi/ranks.c, where mpirun did) has only to provide it, zeroed, and ranks_run.
 */
#ifndef TEST_RANKS_SHARED_H
#define TEST_RANKS_SHARED_H

#include <stdatomic.h>

#include "support/ranks.h"

enum { RANKS_MOST = 64, RANKS_CARD = 4096, RANKS_BOARD = 64 << 10 };

struct test_job {
    atomic_int arrived; /* at the barrier */
    atomic_uint round;
    atomic_int ended;
    atomic_int left; /* whoever starts ranks may count here who is through */
    char cards[RANKS_MOST][RANKS_CARD];
    char board[RANKS_BOARD];
};

#endif
