/* Connects an agent to the hub, including the handshake. Called by external_rank.c. */
#ifndef DLC_JOB_CONNECT_H
#define DLC_JOB_CONNECT_H

#include "job/address.h"
#include "job/handshake.h"

/* Attempts that go on until time is up: what is waited for may not be there yet. */
typedef struct dlc_retry {
    int rank;       /* that waits, for messages */
    double timeout; /* seconds */
    uint64_t since; /* the first attempt */
    int pause_ms, has_said;
} dlc_retry;

dlc_retry dlc_retry_start(int rank, double timeout);
/* After a failed attempt, with its reason as the detail: pauses. After a while it says
 * once what is waited for, `what`, and why. 0: time is up. */
int dlc_retry_again(dlc_retry *retry, const char *what);

typedef struct dlc_connect_args {
    const char *host; /* of the hub, whose name may not be known yet, or another's */
    uint16_t port;
    const dlc_address *list; /* without `host`: candidate addresses of the hub */
    int count;
    const dlc_secret *secret;
    int rank, ranks;
    double timeout; /* seconds */
} dlc_connect_args;

/* Retries until the hub admits this rank, refuses it (DLC_ERR_CONFIG, with the reason),
 * or time is up (DLC_ERR_PEER). Blocks. *fd is the caller's; `text` is the address at
 * which the hub was found. */
dlc_status dlc_connect(const dlc_connect_args *args, int *fd,
                       char text[DLC_ADDRESS_TEXT]);

#endif
