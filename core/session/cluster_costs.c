/* Runs the communication benchmark and derives the planner's cost model from it. */
#include "session/cluster_costs.h"

#include "session/exchange_schedule.h"
#include "session/session.h"

/* Arithmetic operations that a device is assumed to do in the time it moves a byte. */
enum { OPERATIONS_PER_BYTE = 10, ZEROS = 1 << 20 };
static const double START = 2e-6; /* seconds that the smallest operation takes */
/* Seconds to hand a reduction over to another thread, as in comm/comm_benchmark.c. */
static const double HANDOVER = 200e-6;

static dlc_status benchmark_comm(const dlc_session *session, dlc_comm_cost *cost) {
    size_t bytes = ZEROS * sizeof(float);
    dlc_memory zeros = {.size = sizeof zeros};
    DLC_TRY(session->device_ops->alloc(session->device, bytes, 0, &zeros));
    dlc_status status = session->device_ops->fill(session->device, NULL, zeros.base, 0,
                                                  bytes);
    if (status == DLC_OK)
        status = dlc_comm_benchmark(session->connection.comm, session->device_ops,
                                    session->device, session->solver.slots, zeros.base,
                                    ZEROS, cost);
    session->device_ops->free(session->device, &zeros);
    return status;
}

static void describe_cluster(const dlc_session *session, dlc_cluster_costs *measured) {
    int on_host = (session->setup->device->caps & DLC_DEVICE_HOST) != 0;
    int32_t nodes = 1;
    for (int32_t r = 0; r < session->ranks; r++) {
        int32_t node = dlc_job_rank_info(session->job, r)->node;
        nodes = node >= nodes ? node + 1 : nodes;
    }
    measured->cluster = (dlc_plan_cluster){
        .nodes = nodes,
        .ranks_per_node = (session->ranks + nodes - 1) / nodes,
        .update_bandwidth = measured->comm.update_bandwidth,
        .interference = on_host ? 1 : 0,
        .handover = on_host ? HANDOVER : 0,
        .copies = 1 + session->solver.slots,
        .fused_update = dlc_exchange_schedule_is_fused(session)};
    dlc_plan_links_from_all_reduce(measured->comm.latency, measured->comm.bandwidth,
                                   &measured->cluster);
}

dlc_status dlc_cluster_costs_measure(const dlc_session *session,
                                     dlc_cluster_costs *measured) {
    dlc_cluster_costs made = {.cluster = {.nodes = 0}};
    double memory = 0;
    DLC_TRY(benchmark_comm(session, &made.comm));
    DLC_TRY(dlc_comm_benchmark_memory(session->connection.comm, session->device_ops,
                                      session->device, &memory));
    made.speed = (dlc_plan_speed){.multiply_adds = memory * OPERATIONS_PER_BYTE / 2,
                                  .bytes = memory,
                                  .start = START};
    describe_cluster(session, &made);
    *measured = made;
    return DLC_OK;
}
