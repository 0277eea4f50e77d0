/* The probe: before training, neighbors on each level of a communicator try what they
 * will use. Called by session/connection.c, which chooses again without what fails.
 *
 * Neighbors are the ranks next to each other in a team, and its first and last. Between
 * them are tried (probe_ways.h): the memory of the next rank, read and written, where
 * the transport maps it; messages of the transport, both ways. All bytes must be right,
 * and the bandwidth about what the topology and the transport predict.
 *
 * A slow machine is not a slow link. What peer memory should do is measured against
 * copies of the device's own memory at the same moment, and what looks slow is tried
 * again, several times, of which the fastest counts. */
#ifndef DLC_COMM_PROBE_H
#define DLC_COMM_PROBE_H

#include "comm/choose.h"
#include "comm/comm.h"
#include "comm/probe_ways.h"

typedef struct dlc_probe_args {
    const dlc_comm_args *how;       /* what the communicator was opened with */
    const dlc_transport_path *path; /* one per level: what is expected */
    dlc_device *device;             /* another opening of the communicator's */
} dlc_probe_args;

/* Start with {0}. The memory that is sent and received. */
typedef struct dlc_probe {
    dlc_memory memory; /* owned */
} dlc_probe;

/* Collective. Fills in the worst finding of any rank for each level, the same on all
 * ranks. If there is one, the communicator may be unusable. An error is one of the job,
 * or of this rank's device. */
dlc_status dlc_probe_run(dlc_probe *probe, const dlc_probe_args *args, dlc_comm *comm,
                         dlc_probe_finding finding[DLC_COMM_LEVELS]);

/* After a finding: call it when the communicator is closed, which may still receive. */
void dlc_probe_close(dlc_probe *probe, const dlc_probe_args *args);

#endif
