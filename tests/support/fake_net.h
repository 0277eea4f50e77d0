/* A network for tests in which every delay is chosen: ranks are threads of this
 * process, connected by the transport fake_net_feature, which only passes messages.
 *
 * Nothing arrives while any rank runs. When all of them wait in the transport, one
 * message, or a part of one, is moved, chosen by the schedule and the seed. So what a
 * rank sees depends only on the seed and on the calls of the ranks; and when nothing is
 * left to be moved, the ranks have deadlocked: that is an error at once, which lists
 * what every rank waits for.
 *
 * The fake enforces the contract of dlcore/transport.h: a buffer that is written while
 * it is sent is a fault, a receive buffer holds garbage until the request is done, and
 * an unbuffered send is done when it was received.
 */
#ifndef TEST_FAKE_NET_H
#define TEST_FAKE_NET_H

#include <dlcore/plugin.h>

#include "support/ranks.h"

typedef enum net_schedule {
    NET_RANDOM, /* any message, in parts of any length; half of the sends are buffered
                 */
    NET_EARLY,  /* every send is buffered and arrives before its receive is posted */
    NET_UNBUFFERED, /* no send is buffered; the oldest goes first */
    NET_ONE_BUFFER, /* one buffered send at a time between two ranks */
    NET_NEWEST,     /* the newest message goes first */
    NET_STARVED, /* messages for one rank (seed % ranks) go last, all sends are buffered
                  */
    NET_SLOW_BACK, /* messages to lower ranks go last and are not buffered */
    NET_SCHEDULES,
} net_schedule;

/* How a run ended. */
typedef struct net_result {
    int deadlocked;   /* deadlock: all ranks wait and nothing is left to be moved */
    int faults;       /* violations of the contract */
    uint64_t steps;   /* messages or parts moved */
    uint64_t trace;   /* a digest of them; equal for equal seeds, unless hurried */
    int hurried;      /* messages moved although not all ranks waited (IDLE_NS) */
    char detail[512]; /* describes the first of these */
} net_result;

/* Runs the body in a thread per rank. A failed check in a body ends the process
 * (support/ranks.h), so the test must be forked by Check. */
const dlc_feature *fake_net_feature(void);

/* Runs the body in one thread per rank. A failed check in a body ends the process
 * (support/ranks.h), so tests must run in a process of their own, as Check does it. */
net_result fake_net_run(int ranks, net_schedule schedule, uint64_t seed,
                        rank_body *body, void *context);

#endif
