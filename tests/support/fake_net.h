/* A network for tests, in which every delay is chosen: ranks are threads of this
 * process, and fake_net_feature is a transport of messages alone that joins them.
 *
 * Nothing arrives while any rank still runs. When all of them wait in the transport,
 * one message, or a part of one, is moved, as the schedule and the seed say. So what a
 * rank sees follows from the seed and from the calls of the ranks alone, and when
 * nothing is left to be moved the ranks would have waited for ever: that is an error
 * here, at once, which names what everybody waits for.
 *
 * The fake holds its callers to the contract (dlcore/transport.h): a buffer that is
 * written while it is sent is a fault, a buffer that is received into holds garbage
 * until the request is done, and a send that found no room is done when it was
 * received.
 */
#ifndef TEST_FAKE_NET_H
#define TEST_FAKE_NET_H

#include <dlcore/plugin.h>

#include "support/ranks.h"

typedef enum net_schedule {
    NET_RANDOM,   /* any message, in parts of any length; half of the sends have room */
    NET_EARLY,    /* every send has room and arrives before it is asked for */
    NET_NO_ROOM,  /* no send is done before it was received; the oldest first */
    NET_ONE_ROOM, /* between two ranks there is room for one send at a time */
    NET_NEWEST,   /* what was sent last comes first */
    NET_STARVED,  /* what is for one rank (seed % ranks) comes last, all sends have room
                   */
    NET_SLOW_BACK, /* what goes to a lower rank comes last, and has no room */
    NET_SCHEDULES,
} net_schedule;

/* How a run ended. */
typedef struct net_result {
    int stuck;        /* all ranks waited, and nothing was left to arrive */
    int faults;       /* breaches of the contract */
    uint64_t steps;   /* movements of messages */
    uint64_t trace;   /* a digest of them: the same for the same seed */
    char detail[512]; /* of the first of these, in words */
} net_result;

const dlc_feature *fake_net_feature(void);

/* Runs the body in a thread for each rank. A check of a body that doesn't hold ends the
 * process (support/ranks.h), so a test that runs this is one that Check forks. */
net_result fake_net_run(int ranks, net_schedule schedule, uint64_t seed,
                        rank_body *body, void *context);

#endif
