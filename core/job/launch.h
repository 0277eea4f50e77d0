/* Opens and closes the hub of a job in this process, and forks ranks as its children.
 * Called by launch.c for local jobs and by external_run.c for rank 0. */
#ifndef DLC_JOB_LAUNCH_H
#define DLC_JOB_LAUNCH_H

#include "job/hub.h"
#include "job/spawn.h"

dlc_status dlc_hub_open(const dlc_launch *launch, int ranks, dlc_hub *hub);
/* Closes the hub's descriptors and frees its memory; no rank is notified, killed or
 * waited for. */
void dlc_hub_close(dlc_hub *hub);
/* Forks a rank as a child of the hub. */
dlc_status dlc_hub_start_rank(const dlc_launch *launch, dlc_hub *hub,
                              const dlc_spawn *spawn);
/* Makes a child that was forked before a rank of the hub; takes over its descriptors.
 */
void dlc_hub_attach_child(dlc_hub *hub, int rank, dlc_child *child,
                          dlc_shared_activity *activity);
/* Opens the hub's signalfd; the signals must be blocked (dlc_launch_block_signals). */
dlc_status dlc_hub_listen_for_signals(const dlc_launch *launch, dlc_hub *hub);

#endif
