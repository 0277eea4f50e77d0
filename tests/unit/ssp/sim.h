/* Mail between ranks that are threads of one process, with delays. A message is taken
 * from the sender's memory when it arrives, and only then is the sender's request done:
 * who touches the memory before that is seen by a thread sanitizer, or by what arrives.
 */
#ifndef TEST_SSP_SIM_H
#define TEST_SSP_SIM_H

#include <pthread.h>

#include <dlcore/solver.h>

#define SIM_RANKS_MAX 8

typedef struct sim_rank {
    struct sim *sim;
    int32_t me;
    dlc_mail mail;
    pthread_cond_t moved;
    int awake;
    struct dlc_request *sends, *recvs; /* to and by this rank, oldest first */
    struct dlc_request *made;          /* by this rank, all that live */
    uint64_t random;
    size_t sent; /* bytes that were sent to this rank */
} sim_rank;

typedef struct sim {
    int32_t ranks;
    int32_t node[SIM_RANKS_MAX];
    double delay; /* of a message, at most, in seconds */
    double far;   /* of each message to the last rank, in addition */
    int ended;    /* check fails from now on; under the lock */
    pthread_mutex_t lock;
    sim_rank rank[SIM_RANKS_MAX];
} test_sim;

/* The first `on_first` ranks are on node 0, the others on node 1. */
void sim_open(test_sim *sim, int32_t ranks, int32_t on_first, double delay);
void sim_close(test_sim *sim);
/* The job ends: everybody's next call fails. */
void sim_end(test_sim *sim);

/* 0 .. below 1, the same for the same seed. */
double sim_random(uint64_t *state);

#endif
