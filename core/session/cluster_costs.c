/* Runs the communication benchmark and derives the planner's cost model from it. */
#include "session/cluster_costs.h"

#include "comm/nodes.h"
#include "plugin/device_objects.h"
#include "session/exchange_schedule.h"
#include "session/session.h"

enum { LEAST_BYTES = 1 << 20, ZEROS = 1 << 20 };

size_t dlc_cluster_costs_bytes(const dlc_session *session) {
    double bytes = session->setup->train_bytes / session->ranks;
    if (!(bytes > 0) || bytes > DLC_COMM_BENCHMARK_BYTES)
        return DLC_COMM_BENCHMARK_BYTES;
    return bytes > LEAST_BYTES ? (size_t)bytes : LEAST_BYTES;
}

static dlc_status benchmark(const dlc_session *session, dlc_cluster_costs *measured) {
    const dlc_device_ops *ops = session->device_ops;
    size_t bytes = dlc_cluster_costs_bytes(session), count = bytes / sizeof(float);
    dlc_memory zeros;
    DLC_TRY(dlc_device_alloc(ops, session->device, bytes, 0, &zeros));
    dlc_status status = ops->fill(session->device, NULL, zeros.base, 0, bytes);
    if (status == DLC_OK)
        status = dlc_comm_benchmark(session->connection.comm, ops, session->device,
                                    zeros.base, count < ZEROS ? count : ZEROS,
                                    &measured->comm);
    if (status == DLC_OK)
        status = dlc_comm_benchmark_memory(session->connection.comm, ops,
                                           session->device, zeros.base, count,
                                           &measured->memory);
    dlc_device_free(ops, session->device, &zeros);
    return status;
}

static void describe_cluster(const dlc_session *session, dlc_cluster_costs *measured) {
    int on_host = (session->setup->device->caps & DLC_DEVICE_HOST) != 0;
    int32_t nodes = dlc_nodes_count(dlc_job_rank_info(session->job, 0), session->ranks);
    measured->cluster = (dlc_plan_cluster){
        .nodes = nodes,
        .ranks_per_node = (session->ranks + nodes - 1) / nodes,
        .update_bandwidth = measured->comm.in_place /
                            dlc_plan_update_moves(session->solver.slots),
        .interference = on_host ? 1 : 0,
        .handover = on_host ? DLC_PLAN_HANDOVER : 0,
        .copies = 1 + session->solver.slots,
        .fused_update = dlc_exchange_schedule_is_fused(session,
                                                       session->connection.comm)};
    dlc_plan_links_from_all_reduce(measured->comm.latency, measured->comm.bandwidth,
                                   &measured->cluster);
}

dlc_status dlc_cluster_costs_measure(const dlc_session *session,
                                     dlc_cluster_costs *measured) {
    dlc_cluster_costs made = {.cluster = {.nodes = 0}};
    DLC_TRY(benchmark(session, &made));
    describe_cluster(session, &made);
    *measured = made;
    return DLC_OK;
}
