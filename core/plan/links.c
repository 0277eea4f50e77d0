/* Typical bandwidths per direction, and latencies. */
#include "plan/links.h"

static const double gbs[DLC_TOPO_CLASSES] = {
    [DLC_TOPO_X] = 100,  [DLC_TOPO_NV] = 20,  [DLC_TOPO_SHM] = 10,
    [DLC_TOPO_PIX] = 11, [DLC_TOPO_PXB] = 11, [DLC_TOPO_PHB] = 10,
    [DLC_TOPO_NODE] = 9, [DLC_TOPO_SYS] = 8,  [DLC_TOPO_NET] = 1.25};
static const double NEAR_LATENCY = 10e-6, NET_LATENCY = 20e-6;

dlc_plan_link dlc_plan_assumed_link(dlc_topo_class class) {
    return (dlc_plan_link){.latency = class == DLC_TOPO_NET ? NET_LATENCY
                                                            : NEAR_LATENCY,
                           .bandwidth = gbs[class] * 1e9};
}
