/* Opening, closing, and who does a collective: the transport or its messages. */
#include "comm/team.h"

#include "base/memory.h"

/* A transport that sums pairwise does so over the ranks; ours is over the ranks of a
 * node, then over the nodes. These are the same where there is one node, or one rank
 * a node. */
static int may_sum(const dlc_team *team, const dlc_team_args *args) {
    const dlc_nodes *nodes = &team->nodes;
    int same = nodes->nodes == 1 || nodes->nodes == nodes->ranks;
    int pairwise = (team->feature->caps & DLC_TRANSPORT_PAIRWISE) != 0;
    return args->any_order || (pairwise && same);
}

/* Of some transports it depends on the device that they are opened for. */
static dlc_status ask_for_queues(dlc_team *team) {
    team->queues = DLC_CAN(team->ops, queue_all_reduce);
    if (!team->queues || !DLC_CAN(team->ops, queues))
        return DLC_OK;
    return team->ops->queues(team->endpoint, &team->queues);
}

static dlc_status open_team(dlc_team *team, const dlc_team_args *args) {
    DLC_TRY(dlc_nodes_make(args->places, args->ranks, &team->nodes));
    team->sums = may_sum(team, args);
    team->args = (dlc_transport_args){.size = sizeof team->args,
                                      .rank = args->rank,
                                      .ranks = args->ranks,
                                      .places = team->nodes.place,
                                      .settings = args->settings,
                                      .device_ops = args->device_ops,
                                      .device = args->device,
                                      .job = args->job,
                                      .allgather = args->allgather,
                                      .check = args->check};
    DLC_TRY(team->ops->open(&team->args, &team->endpoint));
    return ask_for_queues(team);
}

dlc_status dlc_team_open(const dlc_team_args *args, dlc_team **team) {
    dlc_team *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->feature = args->feature;
    made->ops = args->feature->ops;
    dlc_status status = open_team(made, args);
    if (status != DLC_OK) {
        dlc_team_close(made);
        return status;
    }
    *team = made;
    return DLC_OK;
}

void dlc_team_close(dlc_team *team) {
    if (!team)
        return;
    if (team->endpoint)
        team->ops->close(team->endpoint);
    dlc_messages_free(team);
    dlc_nodes_free(&team->nodes);
    dlc_free(team);
}

dlc_status dlc_team_attach(dlc_team *team, const dlc_memory *memory) {
    if (!DLC_CAN(team->ops, attach))
        return DLC_OK;
    return team->ops->attach(team->endpoint, memory);
}

/* ---- Collectives ----------------------------------------------------------- */

/* The transport may say that its collectives don't serve this team, as long as
 * every rank's says so before anything moved. */
static int declined(dlc_team *team, dlc_status status) {
    if (status != DLC_ERR_UNSUPPORTED)
        return 0;
    team->messages_only = 1;
    return 1;
}

#define MAY_CALL(team, call) (!(team)->messages_only && DLC_CAN((team)->ops, call))

dlc_status dlc_team_reduce_scatter(dlc_team *team, float *buffer, size_t count) {
    if (team->sums && MAY_CALL(team, reduce_scatter)) {
        dlc_status status = team->ops->reduce_scatter(team->endpoint, buffer, count);
        if (!declined(team, status))
            return status;
    }
    return dlc_messages_reduce_scatter(team, buffer, count);
}

dlc_status dlc_team_all_gather(dlc_team *team, float *buffer, size_t count) {
    if (MAY_CALL(team, all_gather)) {
        dlc_status status = team->ops->all_gather(team->endpoint, buffer, count);
        if (!declined(team, status))
            return status;
    }
    return dlc_messages_all_gather(team, buffer, count);
}

dlc_status dlc_team_all_reduce(dlc_team *team, float *buffer, size_t count) {
    if (team->sums && MAY_CALL(team, all_reduce)) {
        dlc_status status = team->ops->all_reduce(team->endpoint, buffer, count);
        if (!declined(team, status))
            return status;
    }
    if (dlc_messages_sum_at_once(team, count))
        return dlc_messages_all_reduce_at_once(team, buffer, count);
    DLC_TRY(dlc_team_reduce_scatter(team, buffer, count));
    return dlc_team_all_gather(team, buffer, count);
}

dlc_status dlc_team_broadcast(dlc_team *team, int32_t root, void *buffer,
                              size_t bytes) {
    if (MAY_CALL(team, broadcast)) {
        dlc_status status = team->ops->broadcast(team->endpoint, root, buffer, bytes);
        if (!declined(team, status))
            return status;
    }
    return dlc_messages_broadcast(team, root, buffer, bytes);
}

dlc_status dlc_team_barrier(dlc_team *team) {
    return dlc_messages_barrier(team);
}
