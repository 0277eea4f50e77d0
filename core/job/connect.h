/* Connects an agent to the hub, including the handshake. Called by external_run.c. */
#ifndef DLC_JOB_CONNECT_H
#define DLC_JOB_CONNECT_H

#include "job/address.h"
#include "job/handshake.h"

typedef struct dlc_connect_args {
    const dlc_address *list; /* candidate addresses of the hub */
    int count;
    const dlc_secret *secret;
    int rank, ranks;
    uint64_t digest;
    double timeout; /* seconds */
} dlc_connect_args;

/* Retries until the hub admits this rank, refuses it (DLC_ERR_CONFIG, with the reason),
 * or time is up (DLC_ERR_PEER). Blocks. *fd is the caller's; `text` is the address at
 * which the hub was found. */
dlc_status dlc_connect(const dlc_connect_args *args, int *fd,
                       char text[DLC_ADDRESS_TEXT]);

#endif
