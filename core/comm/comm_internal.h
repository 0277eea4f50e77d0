/* What opening a communicator (comm_open.c) and its collectives (collectives.c) share.
 */
#ifndef DLC_COMM_INTERNAL_H
#define DLC_COMM_INTERNAL_H

#include <stdatomic.h>

#include "comm/comm.h"
#include "comm/oob.h"
#include "comm/team.h"

typedef struct dlc_outer dlc_outer;

struct dlc_comm {
    int32_t rank, ranks;
    dlc_levels levels;
    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_oob *oob; /* out-of-band all-gathers of the teams; NULL: one rank */
    dlc_team *team[DLC_COMM_LEVELS]; /* NULL: this rank is alone in it, or has none */
    dlc_outer *outer;                /* NULL: no all-reduce was large enough so far */
    void *job;
    dlc_status (*check)(void *job);
    dlc_status (*oob_all_gather)(void *job, const void *mine, size_t bytes, void *all);
    atomic_int cancelled;
    atomic_uint_fast64_t deadline; /* of all calls; 0: none */
    dlc_status failed;             /* the first error */
};

/* collectives.c: ends the thread of the outermost level; NULL is allowed. */
void dlc_outer_close(dlc_outer *outer);

#endif
