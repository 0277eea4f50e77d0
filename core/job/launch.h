/* The process of a job that has the hub in it. */
#ifndef DLC_JOB_LAUNCH_H
#define DLC_JOB_LAUNCH_H

#include "job/hub.h"
#include "job/spawn.h"

dlc_status dlc_hub_open(const dlc_launch *launch, int ranks, dlc_hub *hub);
/* Closes what the hub has open; nothing is told, killed or waited for. */
void dlc_hub_close(dlc_hub *hub);
/* Forks a rank that will be a child of the hub. */
dlc_status dlc_hub_start_rank(const dlc_launch *launch, dlc_hub *hub,
                              const dlc_spawn *spawn);
/* One that was forked already; takes its channels over. */
void dlc_hub_adopt(dlc_hub *hub, int rank, dlc_child *child, dlc_doing *doing);
/* Between taking the signals and giving them back: listens for them. */
dlc_status dlc_hub_listen(const dlc_launch *launch, dlc_hub *hub);

#endif
