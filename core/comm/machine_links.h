/* The bandwidth between the machines of a job, measured with the transport that
 * connects them. Called by session/measured_racks.c, to find racks that nobody named.
 *
 * One rank of each machine exchanges messages with one of every other machine, in
 * rounds in which every machine has another partner: so links that several pairs share,
 * such as those between racks, show what they give to all of them at once. */
#ifndef DLC_COMM_MACHINE_LINKS_H
#define DLC_COMM_MACHINE_LINKS_H

#include "comm/comm.h"

/* Of so many machines: fewer have no racks to find, more would take too long. */
enum { DLC_MACHINE_LINKS_LEAST = 4, DLC_MACHINE_LINKS_MOST = 64 };

/* Start with {0}. */
typedef struct dlc_machine_links {
    int32_t machines;
    double *bandwidth; /* owned; machines x machines, bytes a second, symmetric, the
                          same on all ranks */
    dlc_memory memory; /* owned; what is sent and received */
} dlc_machine_links;

/* Collective. `how` is what the communicator was opened with, and `device` another
 * opening of its device. Measures nothing (machines is 0) if there are too few or too
 * many machines. An error is one of the job or of this rank's device. */
dlc_status dlc_machine_links_measure(const dlc_comm_args *how, dlc_device *device,
                                     dlc_comm *comm, dlc_machine_links *links);

/* After an error: call it when the communicator is closed, which may still receive. */
void dlc_machine_links_free(dlc_machine_links *links, const dlc_comm_args *how,
                            dlc_device *device);

#endif
