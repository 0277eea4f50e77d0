/* Opens and closes the group of ranks of collective layers, and gathers their values.
 */
#include "session/layer_group.h"

#include "base/clock.h"
#include "base/memory.h"
#include "comm/nodes.h"
#include "comm/progress_engine.h"
#include "plugin/device_objects.h"

/* ---- The service ------------------------------------------------------------- */

static dlc_status take_blocks(dlc_session_layer_group *group, size_t bytes) {
    dlc_memory *blocks = &group->blocks;
    if (blocks->base && blocks->bytes >= bytes)
        return DLC_OK;
    dlc_device_free(group->device_ops, group->device, blocks);
    return dlc_device_alloc(group->device_ops, group->device, bytes, 0, blocks);
}

/* Waits until the queue uses the blocks no more. */
static dlc_status synchronize(const dlc_session_layer_group *group) {
    return group->queue
               ? group->device_ops->queues->queue_sync(group->device, group->queue)
               : DLC_OK;
}

/* The blocks that arrive begin with this rank's own. */
static dlc_status gather_by_messages(dlc_session_layer_group *group, char *values,
                                     size_t bytes) {
    const dlc_device_ops *ops = group->device_ops;
    size_t rank = (size_t)group->table.rank, ranks = (size_t)group->table.ranks;
    const dlc_gather_group members = {.engine = group->engine,
                                      .tag = DLC_TAG_LAYER_GROUP,
                                      .first = group->first,
                                      .rank = group->table.rank,
                                      .ranks = group->table.ranks,
                                      .pending = &group->pending};
    DLC_TRY(take_blocks(group, ranks * bytes));
    char *blocks = group->blocks.base;
    DLC_TRY(
        ops->copy(group->device, group->queue, blocks, values + rank * bytes, bytes));
    DLC_TRY(synchronize(group));
    DLC_TRY(dlc_gather_blocks(&members, blocks, bytes));
    if (rank > 0)
        DLC_TRY(ops->copy(group->device, group->queue, values,
                          blocks + (ranks - rank) * bytes, rank * bytes));
    if (rank + 1 == ranks)
        return DLC_OK;
    return ops->copy(group->device, group->queue, values + (rank + 1) * bytes,
                     blocks + bytes, (ranks - rank - 1) * bytes);
}

static dlc_status all_gather(void *context, void *values, size_t bytes) {
    dlc_session_layer_group *group = context;
    uint64_t began = dlc_now_ns();
    dlc_status status = DLC_ERR_INTERNAL;
    if (group->comm)
        status = dlc_comm_queue_all_gather(group->comm, group->queue, values,
                                           bytes / sizeof(float) *
                                               (size_t)group->table.ranks);
    else if (group->engine)
        status = gather_by_messages(group, values, bytes);
    else
        status = dlc_fail(DLC_ERR_INTERNAL, "the ranks are not connected yet");
    group->seconds += dlc_since(began);
    return status;
}

/* ---- Planning ---------------------------------------------------------------- */

void dlc_layer_group_plan(int32_t rank, int32_t ranks, dlc_session_layer_group *group) {
    group->table = (dlc_layer_group){.size = sizeof group->table,
                                     .rank = rank,
                                     .ranks = ranks,
                                     .context = group,
                                     .all_gather = all_gather};
}

const dlc_layer_group *dlc_layer_group_table(const dlc_session_layer_group *group) {
    return group->table.ranks > 1 ? &group->table : NULL;
}

/* ---- Opening ----------------------------------------------------------------- */

static dlc_status send_merges(dlc_session_layer_group *group, const dlc_merge *merges) {
    size_t bytes = (size_t)(group->table.ranks - 1) * sizeof *merges;
    DLC_TRY(
        dlc_device_alloc(group->device_ops, group->device, bytes, 0, &group->merges));
    group->table.merges = group->merges.base;
    return group->device_ops->copy(group->device, NULL, group->merges.base, merges,
                                   bytes);
}

static dlc_status open_merges(const dlc_rank_info *rank_info,
                              dlc_session_layer_group *group) {
    int32_t ranks = group->table.ranks;
    dlc_nodes nodes = {0};
    dlc_merge *merges = dlc_alloc((size_t)ranks, sizeof *merges);
    dlc_rank_info *by_rank = dlc_alloc((size_t)ranks, sizeof *by_rank);
    dlc_status status = merges && by_rank ? DLC_OK : DLC_ERR_NOMEM;
    for (int32_t r = 0; status == DLC_OK && r < ranks; r++) {
        by_rank[r] = rank_info[r];
        by_rank[r].order = 0; /* by rank: the first one must have the result */
    }
    if (status == DLC_OK)
        status = dlc_nodes_make(by_rank, ranks, &nodes);
    if (status == DLC_OK) {
        dlc_nodes_merges(&nodes, merges);
        status = send_merges(group, merges);
    }
    dlc_nodes_free(&nodes);
    dlc_free(by_rank);
    dlc_free(merges);
    return status;
}

/* A communicator for the queue, if that transport has collectives for it. */
static dlc_status open_comm(const dlc_layer_group_args *args,
                            dlc_session_layer_group *group) {
    if (!args->is_async || !dlc_comm_can_queue(args->exchange))
        return DLC_OK;
    DLC_TRY(dlc_comm_open(args->how, &group->comm));
    if (dlc_comm_can_queue(group->comm))
        return DLC_OK;
    dlc_comm_close(group->comm);
    group->comm = NULL;
    return DLC_OK;
}

dlc_status dlc_layer_group_open(const dlc_layer_group_args *args,
                                dlc_session_layer_group *group) {
    group->device_ops = args->how->device_ops;
    group->device = args->device;
    group->queue = args->queue;
    group->exchange = args->exchange;
    DLC_TRY(open_merges(args->rank_info, group));
    if (!group->engine)
        DLC_TRY(open_comm(args, group));
    if (group->engine || group->comm)
        return DLC_OK;
    DLC_TRY(dlc_progress_engine_connect(args->how, 0, &group->own));
    group->engine = group->own;
    return DLC_OK;
}

void dlc_layer_group_close(dlc_session_layer_group *group) {
    dlc_comm_close(group->comm);
    dlc_progress_engine_close(group->own);
    dlc_device_free(group->device_ops, group->device, &group->blocks);
    dlc_device_free(group->device_ops, group->device, &group->merges);
    *group = (dlc_session_layer_group){.first = 0};
}

/* ---- Queues ------------------------------------------------------------------ */

/* A device may run independent work of a graph one after the other. If it waits in a
 * reduction of a layer on one rank and in that of a bucket on another, neither ends;
 * the only bucket is ready after all layers. */
const char *dlc_layer_group_capture_obstacle(const dlc_session_layer_group *group,
                                             int32_t buckets) {
    if (group->comm && buckets > 1)
        return "gradients are exchanged while layers reduce values over the ranks";
    if (!group->engine && (!group->comm || dlc_comm_can_capture(group->comm)))
        return NULL;
    return "the transport needs the CPU for what layers reduce over the ranks";
}

dlc_status dlc_layer_group_poll(const dlc_session_layer_group *group) {
    return group->comm ? dlc_comm_poll(group->comm) : DLC_OK;
}
