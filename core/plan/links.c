/* The latency of an exchange over links of a class, software included. */
#include "plan/links.h"

static const double NEAR_LATENCY = 10e-6;

dlc_plan_link dlc_plan_assumed_link(dlc_topo_class class) {
    dlc_topo_speed typical = dlc_topo_typical(class);
    return (dlc_plan_link){.latency = class == DLC_TOPO_NET ? typical.latency
                                                            : NEAR_LATENCY,
                           .bandwidth = typical.bandwidth};
}
