/* A fake p2p channel (dlc_p2p_channel) between threads of one process, for tests of the
 * progress engine and of what uses it. */
#ifndef TEST_SUPPORT_FAKE_P2P_H
#define TEST_SUPPORT_FAKE_P2P_H

#include <pthread.h>

#include <dlcore/consistency.h>

enum { FAKE_RANKS = 4 };

typedef struct fake_message fake_message;

typedef struct fake_p2p fake_p2p;

/* One rank's endpoint. */
typedef struct fake_endpoint {
    fake_p2p *fabric;
    int32_t rank;
    int32_t node[FAKE_RANKS];
    int woken; /* the next wait returns at once */
    dlc_p2p_channel p2p;
} fake_endpoint;

struct fake_p2p {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int32_t ranks;
    fake_endpoint endpoint[FAKE_RANKS];
    fake_message *first[FAKE_RANKS][FAKE_RANKS]; /* [from][to], oldest first */
    int64_t sent;                                /* messages, ever */
};

void fake_p2p_open(fake_p2p *fabric, int32_t ranks);
/* Closes the channel; returns the number of messages that were not received. */
int fake_p2p_close(fake_p2p *fabric);

#endif
