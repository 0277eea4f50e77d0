/* The costs that the planner assumes for a job before it trains: communication, as
 * measured between its ranks, and computation, estimated from memory bandwidth. Used
 * when settings are `auto`.
 */
#ifndef DLC_SESSION_CLUSTER_COSTS_H
#define DLC_SESSION_CLUSTER_COSTS_H

#include "comm/comm_benchmark.h"
#include "plan/exchange.h"

struct dlc_session;

typedef struct dlc_cluster_costs {
    dlc_plan_cluster cluster;
    dlc_comm_cost comm;
    double memory; /* bytes that a device moves per second */
} dlc_cluster_costs;

/* The memory that it takes to measure: as much as a rank's part of the net has, whose
 * speed is what matters; within limits. */
size_t dlc_cluster_costs_bytes(const struct dlc_session *session);

/* Collective, once the ranks are connected: all get the same numbers, those of the
 * slowest rank. */
dlc_status dlc_cluster_costs_measure(const struct dlc_session *session,
                                     dlc_cluster_costs *measured);

#endif
