/* An agent's way to the hub. */
#ifndef DLC_JOB_CONNECT_H
#define DLC_JOB_CONNECT_H

#include "job/address.h"
#include "job/handshake.h"

typedef struct dlc_connect_args {
    const dlc_address *list; /* where the hub may be */
    int count;
    const dlc_secret *secret;
    int rank, ranks;
    uint64_t digest;
    double patience; /* seconds */
} dlc_connect_args;

/* Tries until the hub lets us in, says no (DLC_ERR_CONFIG, with what it says), or time
 * is up. `text` is where it was found. */
dlc_status dlc_connect(const dlc_connect_args *args, int *fd,
                       char text[DLC_ADDRESS_TEXT]);

#endif
