/* Fake p2p channels between ranks that are threads of one process, with random delays.
 * A message is copied from the sender's memory only when it arrives, and only then is
 * the send complete: a model that touches the memory too early is found by the thread
 * sanitizer or by what arrives. */
#ifndef TEST_SSP_FAKE_P2P_H
#define TEST_SSP_FAKE_P2P_H

#include <pthread.h>

#include <dlcore/consistency.h>

#define FAKE_RANKS_MAX 8

typedef struct fake_rank {
    struct fake_p2p *fake;
    int32_t me;
    dlc_p2p_channel p2p;
    pthread_cond_t moved;
    int awake;
    struct dlc_request *sends,
        *recvs;               /* to this rank, and by this rank; oldest first */
    struct dlc_request *made; /* all requests of this rank that have not completed */
    uint64_t random;
    size_t sent; /* bytes sent to this rank */
} fake_rank;

typedef struct fake_p2p {
    int32_t ranks;
    int32_t node[FAKE_RANKS_MAX];
    double delay; /* longest delay of a message, in seconds */
    double far;   /* additional delay of each message to the last rank */
    int ended;    /* the job is ending: calls fail; under the lock */
    pthread_mutex_t lock;
    fake_rank rank[FAKE_RANKS_MAX];
} fake_p2p;

/* The first `on_first` ranks are on node 0, the others on node 1. */
void fake_open(fake_p2p *fake, int32_t ranks, int32_t on_first, double delay);
void fake_close(fake_p2p *fake);
/* Ends the job: every rank's next call fails. */
void fake_end(fake_p2p *fake);

/* A pseudorandom number, 0 <= x < 1, that depends only on the state. */
double fake_random(uint64_t *state);

#endif
