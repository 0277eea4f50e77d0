/* A network of two ranks in one process: what rank 0 sends arrives at rank 1 when, and
 * in the order in which, the test delivers it. */
#ifndef TEST_FAKE_UCX_H
#define TEST_FAKE_UCX_H

#include "ucx.h"

enum { PACKETS_MOST = 8 };

/* Opens both endpoints. `tcp`: only TCP reaches the peer, so messages go in chunks. */
void network_open(int tcp);
/* Closes them; fails the test if UCX was left with a message. */
void network_close(void);
dlc_endpoint *network_endpoint(int32_t rank);

/* From now on the packets of sends with a request leave when the test says so. */
void network_slow_down(void);
void network_complete(int i);

/* How often an endpoint has flushed what it had sent, which takes no time. */
int network_flushes(void);
/* How many packets were sent, and what happens when packet i arrives. */
int network_packets(void);
void network_deliver(int i);
/* What happens if a packet with these bytes arrives at rank 1. */
void network_inject(const void *head, size_t head_bytes, void *data, size_t bytes);

#endif
