/* Opens and closes a team, and lets each collective be done by the transport or be
 * built from its messages. */
#include "comm/team.h"

#include "base/memory.h"
#include "plugin/answers.h"

/* Whether the transport's own reductions may be used. One with DLC_TRANSPORT_PAIRWISE
 * reduces pairwise over the ranks. That is the required order (comm/nodes.h) for ranks
 * of one node, for nodes of one rank in one rack, and for racks of one rank. */
static int may_reduce(const dlc_team *team) {
    const dlc_nodes *nodes = &team->nodes;
    int same_order = nodes->nodes == 1 ||
                     (nodes->nodes == nodes->ranks &&
                      (nodes->racks == 1 || nodes->racks == nodes->nodes));
    int pairwise = (team->how.feature->caps & DLC_TRANSPORT_PAIRWISE) != 0;
    return team->how.any_order || (pairwise && same_order);
}

/* Some transports support queues only on some devices. */
static dlc_status query_queues(dlc_team *team) {
    team->supports_queues = DLC_CAN(team->ops, queues);
    if (!team->supports_queues || !DLC_CAN(team->ops->queues, supported))
        return DLC_OK;
    return team->ops->queues->supported(team->endpoint, &team->supports_queues);
}

/* ---- Services for the transport ------------------------------------------------ */

/* Waiting transports call this often. */
static dlc_status check_team(void *context) {
    const dlc_team *team = context;
    int32_t peer = atomic_load_explicit(&team->awaited, memory_order_relaxed);
    const dlc_team_args *how = &team->how;
    if (how->on_wait && peer != DLC_TEAM_NOBODY)
        how->on_wait(how->progress_context, how->feature->name,
                     peer < 0 ? peer : team->job_rank[peer]);
    return how->check(how->job);
}

static dlc_status team_all_gather(void *context, const void *mine, size_t bytes,
                                  void *all) {
    const dlc_team *team = context;
    return team->how.oob_all_gather(team->how.job, mine, bytes, all);
}

/* ---- Opening and closing --------------------------------------------------------- */

static dlc_status copy_job_ranks(dlc_team *team, const dlc_team_args *args) {
    team->job_rank = dlc_alloc((size_t)args->ranks, sizeof *team->job_rank);
    for (int32_t r = 0; team->job_rank && r < args->ranks; r++)
        team->job_rank[r] = args->job_rank ? args->job_rank[r] : r;
    return team->job_rank ? DLC_OK : DLC_ERR_NOMEM;
}

static dlc_status open_endpoint(dlc_team *team, const dlc_team_args *args) {
    DLC_TRY(copy_job_ranks(team, args));
    DLC_TRY(dlc_nodes_make(args->rank_info, args->ranks, &team->nodes));
    team->reduces = may_reduce(team);
    team->args = (dlc_transport_args){.size = sizeof team->args,
                                      .rank = args->rank,
                                      .ranks = args->ranks,
                                      .rank_info = team->nodes.rank_info,
                                      .settings = args->settings,
                                      .device_ops = args->device_ops,
                                      .device = args->device,
                                      .job = team,
                                      .oob_all_gather = team_all_gather,
                                      .check = check_team};
    dlc_team_await(team, DLC_TEAM_ANYONE);
    DLC_TRY(DLC_ASK(team->ops, "open", team->ops->open(&team->args, &team->endpoint)));
    dlc_team_await(team, DLC_TEAM_NOBODY);
    DLC_TRY(dlc_answer_check_opened(args->feature, "open", team->endpoint));
    return query_queues(team);
}

dlc_status dlc_team_open(const dlc_team_args *args, dlc_team **team) {
    dlc_team *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->how = *args;
    made->ops = args->feature->ops;
    dlc_status status = open_endpoint(made, args);
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
    dlc_free(team->job_rank);
    dlc_free(team);
}

dlc_status dlc_team_register_buffer(dlc_team *team, const dlc_memory *memory) {
    if (!DLC_CAN(team->ops, register_buffer))
        return DLC_OK;
    dlc_team_await(team, DLC_TEAM_ANYONE);
    dlc_status status = DLC_ASK(team->ops, "register_buffer",
                                team->ops->register_buffer(team->endpoint, memory));
    dlc_team_await(team, DLC_TEAM_NOBODY);
    return status;
}

/* ---- Collectives ----------------------------------------------------------- */

/* Called after a collective of the transport's own: whether it declined. It may, if
 * every rank's call declines before any data moved; its messages are used from then on.
 */
static int declined(dlc_team *team, dlc_status status) {
    dlc_team_await(team, DLC_TEAM_NOBODY);
    if (status != DLC_ERR_UNSUPPORTED)
        return 0;
    team->messages_only = 1;
    return 1;
}

#define MAY_CALL(team, call) (!(team)->messages_only && DLC_CAN((team)->ops, call))

/* Calls a collective of the transport's own. */
#define CALL(team, call, ...) \
    (dlc_team_await(team, DLC_TEAM_ANYONE), \
     (team)->ops->call((team)->endpoint, __VA_ARGS__))

static int may_reduce_scatter(const dlc_team *team) {
    return team->reduces && MAY_CALL(team, reduce_scatter);
}

dlc_status dlc_team_reduce_scatter(dlc_team *team, float *buffer, size_t count) {
    if (may_reduce_scatter(team)) {
        dlc_status status = CALL(team, reduce_scatter, buffer, count);
        if (!declined(team, status))
            return status;
    }
    return dlc_messages_reduce_scatter(team, buffer, count);
}

dlc_status dlc_team_all_gather(dlc_team *team, float *buffer, size_t count) {
    if (MAY_CALL(team, all_gather)) {
        dlc_status status = CALL(team, all_gather, buffer, count);
        if (!declined(team, status))
            return status;
    }
    return dlc_messages_all_gather(team, buffer, count);
}

dlc_status dlc_team_all_reduce(dlc_team *team, float *buffer, size_t count) {
    if (team->reduces && MAY_CALL(team, all_reduce)) {
        dlc_status status = CALL(team, all_reduce, buffer, count);
        if (!declined(team, status))
            return status;
    }
    if (dlc_messages_one_round(team, count))
        return dlc_messages_all_reduce_one_round(team, buffer, count);
    /* Messages of several machines to one share its link, and not all of them end at
     * the same time: with sums in between the link is busy all the same. In memory, or
     * between two machines, whole slices are no slower. */
    if (team->nodes.nodes > 2 && !may_reduce_scatter(team) &&
        !MAY_CALL(team, all_gather))
        return dlc_messages_all_reduce(team, buffer, count);
    DLC_TRY(dlc_team_reduce_scatter(team, buffer, count));
    return dlc_team_all_gather(team, buffer, count);
}

dlc_status dlc_team_broadcast(dlc_team *team, int32_t root, void *buffer,
                              size_t bytes) {
    if (MAY_CALL(team, broadcast)) {
        dlc_status status = CALL(team, broadcast, root, buffer, bytes);
        if (!declined(team, status))
            return status;
    }
    return dlc_messages_broadcast(team, root, buffer, bytes);
}

dlc_status dlc_team_barrier(dlc_team *team) {
    return dlc_messages_barrier(team);
}

dlc_status dlc_team_fused_update(dlc_team *team, float *gradients, float *weights,
                                 size_t count, const dlc_update_range *ranges,
                                 int32_t range_count) {
    dlc_status status = CALL(team, fused_update, gradients, weights, count, ranges,
                             range_count);
    dlc_team_await(team, DLC_TEAM_NOBODY);
    return status;
}
