/* Sums over layers, and the check of a cluster's numbers. */
#include "plan/cost.h"

#include <math.h>

double dlc_plan_parameter_bytes(const dlc_plan_layer *layer, size_t layers) {
    double bytes = 0;
    for (size_t i = 0; i < layers; i++)
        bytes += layer[i].parameter_bytes;
    return bytes;
}

double dlc_plan_compute(const dlc_plan_layer *layer, size_t layers, double samples) {
    double seconds = 0;
    for (size_t i = 0; i < layers; i++)
        seconds += dlc_plan_seconds(layer[i].forward, samples) +
                   dlc_plan_seconds(layer[i].backward, samples);
    return seconds;
}

static int is_amount(double value) {
    return isfinite(value) && value >= 0;
}

static dlc_status check_link(const char *name, const dlc_plan_link *link) {
    if (!is_amount(link->latency))
        return dlc_fail(DLC_ERR_CONFIG,
                        "the latency of the link %s is %g s; it must be 0 or "
                        "more",
                        name, link->latency);
    if (!is_amount(link->bandwidth) || link->bandwidth <= 0)
        return dlc_fail(DLC_ERR_CONFIG,
                        "the bandwidth of the link %s is %g bytes per second; "
                        "it must be more than 0",
                        name, link->bandwidth);
    return DLC_OK;
}

dlc_status dlc_plan_check(const dlc_plan_cluster *cluster) {
    if (cluster->nodes < 1 || cluster->ranks_per_node < 1 ||
        cluster->ranks_per_node > INT32_MAX / cluster->nodes)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%d machines with %d ranks each: both must be at "
                        "least 1",
                        (int)cluster->nodes, (int)cluster->ranks_per_node);
    if (cluster->ranks_per_node > 1)
        DLC_TRY(check_link("inside a machine", &cluster->inside));
    if (cluster->nodes > 1)
        DLC_TRY(check_link("between machines", &cluster->between));
    if (!is_amount(cluster->sum_bandwidth) || !is_amount(cluster->update_bandwidth) ||
        !is_amount(cluster->accumulate_bandwidth) || !is_amount(cluster->handover) ||
        !is_amount(cluster->interference) || !is_amount(cluster->rest) ||
        !is_amount(cluster->copies) || !is_amount(cluster->other_bytes))
        return dlc_fail(DLC_ERR_CONFIG, "bandwidths, times, copies of the weights "
                                        "and other memory must be 0 or more");
    return DLC_OK;
}
