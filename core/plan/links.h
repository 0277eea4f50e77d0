/* Links that were not measured. Called by `dlcore plan` for machines that are not here.
 */
#ifndef DLC_PLAN_LINKS_H
#define DLC_PLAN_LINKS_H

#include "plan/cost.h"
#include "topology/link.h"

/* A typical link of the class between two ranks. */
dlc_plan_link dlc_plan_assumed_link(dlc_topo_class class);

#endif
