/* An NCCL for tests without a GPU: a library of the same name with the calls that the
 * transport uses. Streams are queues of the device "async", ranks are processes that
 * share a board, on which the test says what is to go wrong. */
#ifndef FAKE_NCCL_H
#define FAKE_NCCL_H

#include <stdatomic.h>

enum { FAKE_RANKS = 4, FAKE_FLOATS = 16384, FAKE_MESSAGE = 4096 };

/* Zeroed memory that all ranks share: nothing goes wrong. */
typedef struct fake_board {
    /* Set by the test. */
    atomic_int polls;     /* "in progress" so often, after each call */
    atomic_int fail_rank; /* 1 + the rank that sees an error; 0: none */
    atomic_int fail_call; /* at which of its collectives, from 1 */
    atomic_int no_memory; /* registering is refused */
    atomic_int id_fails;  /* ncclGetUniqueId fails */

    /* What happened, by rank. */
    atomic_int reduce_scatters[FAKE_RANKS], reduces[FAKE_RANKS];
    atomic_int all_gathers[FAKE_RANKS], broadcasts[FAKE_RANKS];
    atomic_int registered[FAKE_RANKS];
    atomic_int aborted[FAKE_RANKS], destroyed[FAKE_RANKS];

    /* Its own. */
    atomic_int started, finished;
    atomic_uint arrived, round;
    float slot[FAKE_RANKS][FAKE_FLOATS];
    struct {
        atomic_uint sent, taken;
        char bytes[FAKE_MESSAGE];
    } message[FAKE_RANKS][FAKE_RANKS]; /* from, to */
} fake_board;

/* The library's, beside NCCL's: which board. Called "fake_nccl_use". */
typedef void fake_nccl_use_fn(fake_board *board);

#endif
