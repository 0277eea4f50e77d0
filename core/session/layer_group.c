/* Opens and closes the group of ranks of collective layers, and gathers their values.
 */
#include "session/layer_group.h"

#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "comm/all_gather.h"
#include "comm/nodes.h"
#include "session/session.h"

#define DRAIN_POLL_NS 100000

/* ---- The service ------------------------------------------------------------- */

static dlc_status take_blocks(dlc_session *session, size_t bytes) {
    dlc_memory *blocks = &session->layer_group.blocks;
    if (blocks->base && blocks->bytes >= bytes)
        return DLC_OK;
    if (blocks->base)
        session->device_ops->free(session->device, blocks);
    *blocks = (dlc_memory){.size = sizeof *blocks};
    return session->device_ops->alloc(session->device, bytes, 0, blocks);
}

/* The blocks that arrive begin with this rank's own. */
static dlc_status gather_by_messages(dlc_session *session, char *values, size_t bytes) {
    dlc_session_layer_group *group = &session->layer_group;
    const dlc_device_ops *ops = session->device_ops;
    size_t rank = (size_t)group->table.rank, ranks = (size_t)group->table.ranks;
    const dlc_gather_group members = {.engine = group->engine,
                                      .tag = DLC_TAG_LAYER_GROUP,
                                      .first = group->first,
                                      .rank = group->table.rank,
                                      .ranks = group->table.ranks,
                                      .pending = &group->pending};
    DLC_TRY(take_blocks(session, ranks * bytes));
    char *blocks = group->blocks.base;
    DLC_TRY(ops->copy(session->device, session->queue, blocks, values + rank * bytes,
                      bytes));
    DLC_TRY(dlc_net_sync(session->net)); /* no more is queued that uses the blocks */
    DLC_TRY(dlc_gather_blocks(&members, blocks, bytes));
    if (rank > 0)
        DLC_TRY(ops->copy(session->device, session->queue, values,
                          blocks + (ranks - rank) * bytes, rank * bytes));
    if (rank + 1 == ranks)
        return DLC_OK;
    return ops->copy(session->device, session->queue, values + (rank + 1) * bytes,
                     blocks + bytes, (ranks - rank - 1) * bytes);
}

static dlc_status all_gather(void *context, void *values, size_t bytes) {
    dlc_session *session = context;
    dlc_session_layer_group *group = &session->layer_group;
    uint64_t began = dlc_now_ns();
    dlc_status status = DLC_ERR_INTERNAL;
    if (group->comm)
        status = dlc_comm_queue_all_gather(group->comm, session->queue, values,
                                           bytes / sizeof(float) *
                                               (size_t)group->table.ranks);
    else if (group->engine)
        status = gather_by_messages(session, values, bytes);
    else
        status = dlc_fail(DLC_ERR_INTERNAL, "the ranks are not connected yet");
    group->seconds += dlc_since(began);
    return status;
}

/* ---- Planning ---------------------------------------------------------------- */

void dlc_layer_group_plan(dlc_session *session) {
    dlc_session_layer_group *group = &session->layer_group;
    group->table = (dlc_layer_group){.size = sizeof group->table,
                                     .rank = session->rank,
                                     .ranks = session->ranks,
                                     .context = session,
                                     .all_gather = all_gather};
    DLC_EACH_AXIS(session, axis, shape_group)
    axis->ops->shape_group(axis, group);
}

const dlc_layer_group *dlc_layer_group_table(const dlc_session *session) {
    const dlc_layer_group *table = &session->layer_group.table;
    return table->ranks > 1 ? table : NULL;
}

dlc_status dlc_layer_group_check(const dlc_session *session) {
    const char *layer = dlc_net_collective_layer(session->net);
    if (!layer || dlc_session_allows(session, DLC_ALLOW_COLLECTIVE))
        return DLC_OK;
    return dlc_fail(DLC_ERR_CONFIG,
                    "layer '%s' computes statistics over the samples of all ranks, "
                    "which then must be in the same iteration, but consistency '%s' "
                    "lets them be in different ones; set statistics = local, or "
                    "[consistency] type = synchronous",
                    layer, session->setup->consistency->name);
}

/* ---- Opening ----------------------------------------------------------------- */

static dlc_status send_merges(dlc_session *session, const dlc_merge *merges) {
    dlc_session_layer_group *group = &session->layer_group;
    size_t bytes = (size_t)(group->table.ranks - 1) * sizeof *merges;
    group->merges = (dlc_memory){.size = sizeof group->merges};
    DLC_TRY(session->device_ops->alloc(session->device, bytes, 0, &group->merges));
    group->table.merges = group->merges.base;
    return session->device_ops->copy(session->device, NULL, group->merges.base, merges,
                                     bytes);
}

static dlc_status open_merges(dlc_session *session) {
    const dlc_session_layer_group *group = &session->layer_group;
    int32_t ranks = group->table.ranks;
    dlc_nodes nodes = {0};
    dlc_merge *merges = dlc_alloc((size_t)ranks, sizeof *merges);
    if (!merges)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_nodes_make(dlc_job_rank_info(session->job, group->first),
                                       ranks, &nodes);
    if (status == DLC_OK) {
        dlc_nodes_merges(&nodes, merges);
        status = send_merges(session, merges);
    }
    dlc_nodes_free(&nodes);
    dlc_free(merges);
    return status;
}

/* A communicator for the queue, if that transport has collectives for it. */
static dlc_status open_comm(dlc_session *session) {
    dlc_session_layer_group *group = &session->layer_group;
    if (!dlc_session_async_queue(session) ||
        !dlc_comm_can_queue(session->connection.comm))
        return DLC_OK;
    DLC_TRY(dlc_comm_open(&session->connection.how, &group->comm));
    if (dlc_comm_can_queue(group->comm))
        return DLC_OK;
    dlc_comm_close(group->comm);
    group->comm = NULL;
    return DLC_OK;
}

dlc_status dlc_layer_group_open(dlc_session *session) {
    dlc_session_layer_group *group = &session->layer_group;
    if (!dlc_net_collective_layer(session->net))
        return DLC_OK;
    DLC_TRY(open_merges(session));
    DLC_EACH_AXIS(session, axis, shape_group)
    axis->ops->shape_group(axis, group);
    if (!group->engine)
        DLC_TRY(open_comm(session));
    if (group->engine || group->comm)
        return DLC_OK;
    DLC_TRY(dlc_progress_engine_connect(&session->connection.how, 0, &group->own));
    group->engine = group->own;
    return DLC_OK;
}

/* Waits until the queue uses the communicator no more. Transports abandon work that
 * waits for a dead peer only when polled, so both are polled meanwhile. */
static void drain(dlc_session *session) {
    const dlc_device_queue_ops *queues = session->device_ops->queues;
    const struct timespec pause = {.tv_nsec = DRAIN_POLL_NS};
    dlc_event *idle = NULL;
    int done = 0;
    if (queues->event_open(session->device, &idle) != DLC_OK)
        return;
    dlc_status status = queues->event_record(session->device, session->queue, idle);
    while (status == DLC_OK && !done) {
        (void)dlc_comm_poll(session->layer_group.comm);
        (void)dlc_comm_poll(session->connection.comm);
        status = queues->event_done(session->device, idle, &done);
        if (status == DLC_OK && !done)
            (void)nanosleep(&pause, NULL);
    }
    queues->event_close(session->device, idle);
}

void dlc_layer_group_close(dlc_session *session) {
    dlc_session_layer_group *group = &session->layer_group;
    const dlc_device_ops *ops = session->device_ops;
    if (group->comm)
        drain(session);
    dlc_comm_close(group->comm);
    dlc_progress_engine_close(group->own);
    if (group->blocks.base)
        ops->free(session->device, &group->blocks);
    if (group->merges.base)
        ops->free(session->device, &group->merges);
    *group = (dlc_session_layer_group){.first = 0};
}

/* ---- Queues ------------------------------------------------------------------ */

const char *dlc_layer_group_capture_obstacle(const dlc_session *session) {
    const dlc_session_layer_group *group = &session->layer_group;
    if (!group->engine && (!group->comm || dlc_comm_can_capture(group->comm)))
        return NULL;
    return "the transport needs the CPU for what layers reduce over the ranks";
}

dlc_status dlc_layer_group_poll(const dlc_session *session) {
    dlc_comm *comm = session->layer_group.comm;
    return comm ? dlc_comm_poll(comm) : DLC_OK;
}
