/* Opens a communicator's teams and runs its collectives over one or two levels.
 *
 * With two levels the ranks of each node are a team, and the ranks with the same number
 * within their nodes are another, each for its slice of the buffer. Where nodes have
 * unequal numbers of ranks the slices would not agree: then only the first ranks of the
 * nodes form an inter-node team, which reduces for all.
 */
#include "comm/comm.h"

#include <stdatomic.h>
#include <stdio.h>

#include "base/memory.h"
#include "base/slice.h"
#include "comm/oob.h"
#include "comm/team.h"

enum { INTRA_NODE, INTER_NODE, LEVELS };

struct dlc_comm {
    int32_t rank, ranks;
    int two_levels;
    dlc_nodes nodes;
    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_oob *oob;           /* out-of-band all-gathers of the teams; two levels only */
    dlc_team *team[LEVELS]; /* NULL: this rank is alone in it, or not a member. With one
                               level, INTRA_NODE has all ranks */
    void *job;
    dlc_status (*check)(void *job);
    dlc_status (*oob_all_gather)(void *job, const void *mine, size_t bytes, void *all);
    atomic_int cancelled;
    dlc_status failed; /* the first error */
};

/* ---- Services for the transports ----------------------------------------- */

static dlc_status check(void *context) {
    dlc_comm *comm = context;
    if (atomic_load_explicit(&comm->cancelled, memory_order_relaxed))
        return dlc_fail(DLC_ERR_CANCELLED, "the exchange was cancelled");
    return comm->check(comm->job);
}

static dlc_status oob_all_gather(void *context, const void *mine, size_t bytes,
                                 void *all) {
    dlc_comm *comm = context;
    return comm->oob_all_gather(comm->job, mine, bytes, all);
}

/* ---- Opening and closing ------------------------------------------------- */

/* The ranks of this rank's team at a level. */
typedef struct members {
    int32_t *rank; /* in the communicator, ascending */
    int32_t count, me;
} members;

static void add_member(members *list, const dlc_comm *comm, int32_t rank) {
    if (rank == comm->rank)
        list->me = list->count;
    list->rank[list->count++] = rank;
}

static void list_members(const dlc_comm *comm, int level, members *list) {
    const dlc_nodes *nodes = &comm->nodes;
    int32_t mine = nodes->node[comm->rank], local = nodes->local[comm->rank];

    list->count = 0;
    if (!comm->two_levels) {
        for (int32_t r = 0; r < comm->ranks; r++)
            add_member(list, comm, r);
    } else if (level == INTRA_NODE) {
        for (int32_t i = nodes->first[mine]; i < nodes->first[mine + 1]; i++)
            add_member(list, comm, nodes->member[i]);
    } else if (nodes->even || local == 0) {
        for (int32_t i = 0; i < nodes->nodes; i++)
            add_member(list, comm, nodes->member[nodes->first[i] + local]);
    }
}

static dlc_status open_level(dlc_comm *comm, const dlc_comm_args *args, int level,
                             members *list) {
    const dlc_comm_level *how = level == INTRA_NODE ? &args->level : &args->inter_node;

    list_members(comm, level, list);
    if (list->count < 2)
        return DLC_OK;
    if (!how->feature)
        return dlc_fail(DLC_ERR_INTERNAL, "a team of %d ranks has no transport",
                        list->count);
    dlc_rank_info *rank_info = dlc_alloc((size_t)list->count, sizeof *rank_info);
    if (!rank_info)
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < list->count; i++)
        rank_info[i] = comm->nodes.rank_info[list->rank[i]];
    dlc_team_args team = {.feature = how->feature,
                          .settings = how->settings,
                          .rank = list->me,
                          .ranks = list->count,
                          .rank_info = rank_info,
                          .device_ops = args->device_ops,
                          .device = comm->device,
                          .any_order = args->any_order,
                          .job = comm,
                          .oob_all_gather = oob_all_gather,
                          .check = check};
    dlc_status status = DLC_OK;
    if (comm->two_levels) {
        team.oob_all_gather = dlc_oob_all_gather;
        team.check = dlc_oob_check;
        status = dlc_oob_add_group(comm->oob, level, list->rank, list->count,
                                   &team.job);
    }
    if (status == DLC_OK)
        status = dlc_team_open(&team, &comm->team[level]);
    dlc_free(rank_info);
    return status;
}

/* Takes part in the out-of-band all-gathers of other teams until all have finished. */
static dlc_status finish_oob(dlc_comm *comm) {
    return comm->two_levels ? dlc_oob_finish(comm->oob) : DLC_OK;
}

static dlc_status open_levels(dlc_comm *comm, const dlc_comm_args *args) {
    dlc_device_args device = args->device;
    members list = {0};

    device.threads = 1; /* the calling thread */
    device.cpus = NULL;
    DLC_TRY(args->device_ops->open(&device, &comm->device));
    if (comm->two_levels)
        DLC_TRY(dlc_oob_open(comm->rank, comm->ranks, comm, oob_all_gather, check,
                             &comm->oob));
    list.rank = dlc_alloc((size_t)comm->ranks, sizeof *list.rank);
    dlc_status status = list.rank ? DLC_OK : DLC_ERR_NOMEM;
    for (int level = INTRA_NODE; status == DLC_OK && level <= comm->two_levels;
         level++) {
        status = open_level(comm, args, level, &list);
        if (status == DLC_OK)
            status = finish_oob(comm);
    }
    dlc_free(list.rank);
    return status;
}

dlc_status dlc_comm_open(const dlc_comm_args *args, dlc_comm **comm) {
    if (args->ranks < 1 || args->rank < 0 || args->rank >= args->ranks)
        return dlc_fail(DLC_ERR_INTERNAL, "there is no rank %d among %d", args->rank,
                        args->ranks);
    if (args->ranks > 1 && !args->level.feature && !args->inter_node.feature)
        return dlc_fail(DLC_ERR_INTERNAL, "a communicator of %d ranks has no transport",
                        args->ranks);
    dlc_comm *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->rank = args->rank;
    made->ranks = args->ranks;
    made->device_ops = args->device_ops;
    made->job = args->job;
    made->check = args->check;
    made->oob_all_gather = args->oob_all_gather;
    dlc_status status = DLC_OK;
    if (args->ranks > 1) {
        status = dlc_nodes_make(args->rank_info, args->ranks, &made->nodes);
        made->two_levels = args->inter_node.feature != NULL;
        if (status == DLC_OK)
            status = open_levels(made, args);
    }
    if (status != DLC_OK) {
        dlc_comm_close(made);
        return status;
    }
    *comm = made;
    return DLC_OK;
}

void dlc_comm_close(dlc_comm *comm) {
    if (!comm)
        return;
    dlc_team_close(comm->team[INTER_NODE]);
    dlc_team_close(comm->team[INTRA_NODE]);
    dlc_oob_close(comm->oob);
    if (comm->device)
        comm->device_ops->close(comm->device);
    dlc_nodes_free(&comm->nodes);
    dlc_free(comm);
}

dlc_status dlc_comm_register_buffer(dlc_comm *comm, const dlc_memory *memory) {
    for (int level = INTRA_NODE; level < LEVELS; level++) {
        if (comm->team[level])
            DLC_TRY(dlc_team_register_buffer(comm->team[level], memory));
        DLC_TRY(finish_oob(comm));
    }
    return DLC_OK;
}

void dlc_comm_describe(dlc_comm *comm, char *text, size_t bytes) {
    size_t length = 0;

    text[0] = '\0';
    for (int level = INTRA_NODE; level < LEVELS; level++) {
        const dlc_team *team = comm->team[level];
        char used[256] = "";
        if (!team || !DLC_CAN(team->ops, describe) ||
            team->ops->describe(team->endpoint, used, sizeof used) != DLC_OK ||
            !used[0] || length >= bytes)
            continue;
        length += (size_t)snprintf(text + length, bytes - length, "%s%s: %s",
                                   length ? "; " : "", team->feature->name, used);
    }
}

void dlc_comm_cancel(dlc_comm *comm) {
    atomic_store(&comm->cancelled, 1);
}

dlc_status dlc_comm_oob_all_gather(dlc_comm *comm, const void *mine, size_t bytes,
                                   void *all) {
    return comm->oob_all_gather(comm->job, mine, bytes, all);
}

int32_t dlc_comm_rank(const dlc_comm *comm) {
    return comm->rank;
}

int32_t dlc_comm_ranks(const dlc_comm *comm) {
    return comm->ranks;
}

/* ---- Collectives over the levels ----------------------------------------- */

/* The slice of a buffer that this rank reduces with the corresponding ranks of the
 * other nodes. Returns where it begins; *n is its length. */
static size_t slice_of(const dlc_comm *comm, size_t count, size_t *n) {
    int32_t local = comm->nodes.local[comm->rank];
    int32_t ranks = dlc_nodes_size(&comm->nodes, comm->nodes.node[comm->rank]);
    size_t begin = dlc_slice(count, local, ranks);
    *n = dlc_slice(count, local + 1, ranks) - begin;
    return begin;
}

static dlc_status reduce_even(dlc_comm *comm, float *buffer, size_t count) {
    size_t n = 0;
    float *slice = buffer + slice_of(comm, count, &n);

    if (comm->team[INTRA_NODE])
        DLC_TRY(dlc_team_reduce_scatter(comm->team[INTRA_NODE], buffer, count));
    if (n > 0)
        DLC_TRY(dlc_team_all_reduce(comm->team[INTER_NODE], slice, n));
    return comm->team[INTRA_NODE]
               ? dlc_team_all_gather(comm->team[INTRA_NODE], buffer, count)
               : DLC_OK;
}

static dlc_status reduce_uneven(dlc_comm *comm, float *buffer, size_t count) {
    if (comm->team[INTRA_NODE])
        DLC_TRY(dlc_team_all_reduce(comm->team[INTRA_NODE], buffer, count));
    if (comm->team[INTER_NODE])
        DLC_TRY(dlc_team_all_reduce(comm->team[INTER_NODE], buffer, count));
    return comm->team[INTRA_NODE] ? dlc_team_broadcast(comm->team[INTRA_NODE], 0,
                                                       buffer, count * sizeof(float))
                                  : DLC_OK;
}

static dlc_status all_reduce(dlc_comm *comm, float *buffer, size_t count) {
    if (!comm->two_levels)
        return dlc_team_all_reduce(comm->team[INTRA_NODE], buffer, count);
    return comm->nodes.even ? reduce_even(comm, buffer, count)
                            : reduce_uneven(comm, buffer, count);
}

static dlc_status reduce_scatter(dlc_comm *comm, float *buffer, size_t count) {
    size_t n = 0;

    if (!comm->two_levels)
        return dlc_team_reduce_scatter(comm->team[INTRA_NODE], buffer, count);
    if (!comm->nodes.even)
        return reduce_uneven(comm, buffer, count);
    float *slice = buffer + slice_of(comm, count, &n);
    if (comm->team[INTRA_NODE])
        DLC_TRY(dlc_team_reduce_scatter(comm->team[INTRA_NODE], buffer, count));
    return n > 0 ? dlc_team_reduce_scatter(comm->team[INTER_NODE], slice, n) : DLC_OK;
}

static dlc_status all_gather(dlc_comm *comm, float *buffer, size_t count) {
    size_t n = 0;

    if (!comm->two_levels)
        return dlc_team_all_gather(comm->team[INTRA_NODE], buffer, count);
    if (!comm->nodes.even)
        return DLC_OK; /* reduce_scatter has already reduced everything everywhere */
    float *slice = buffer + slice_of(comm, count, &n);
    if (n > 0)
        DLC_TRY(dlc_team_all_gather(comm->team[INTER_NODE], slice, n));
    return comm->team[INTRA_NODE]
               ? dlc_team_all_gather(comm->team[INTRA_NODE], buffer, count)
               : DLC_OK;
}

/* Broadcasts within the root's node, from there to the first ranks of the other nodes,
 * and within each of these. */
static dlc_status broadcast(dlc_comm *comm, int32_t root, void *buffer, size_t bytes) {
    const dlc_nodes *nodes = &comm->nodes;

    if (!comm->two_levels)
        return dlc_team_broadcast(comm->team[INTRA_NODE], root, buffer, bytes);
    int with_root = nodes->node[comm->rank] == nodes->node[root];
    if (with_root && comm->team[INTRA_NODE])
        DLC_TRY(dlc_team_broadcast(comm->team[INTRA_NODE], nodes->local[root], buffer,
                                   bytes));
    if (nodes->local[comm->rank] == 0)
        DLC_TRY(dlc_team_broadcast(comm->team[INTER_NODE], nodes->node[root], buffer,
                                   bytes));
    if (!with_root && comm->team[INTRA_NODE])
        DLC_TRY(dlc_team_broadcast(comm->team[INTRA_NODE], 0, buffer, bytes));
    return DLC_OK;
}

static dlc_status barrier(dlc_comm *comm) {
    if (comm->team[INTRA_NODE])
        DLC_TRY(dlc_team_barrier(comm->team[INTRA_NODE]));
    if (!comm->two_levels)
        return DLC_OK;
    if (comm->nodes.local[comm->rank] == 0)
        DLC_TRY(dlc_team_barrier(comm->team[INTER_NODE]));
    return comm->team[INTRA_NODE] ? dlc_team_barrier(comm->team[INTRA_NODE]) : DLC_OK;
}

/* ---- Public collectives -------------------------------------------------- */

/* Sets *go if there is anything to do; returns the error of an earlier call, if any. */
static dlc_status begin(dlc_comm *comm, size_t count, int *go) {
    *go = comm->failed == DLC_OK && comm->ranks > 1 && count > 0;
    if (comm->failed != DLC_OK)
        return dlc_fail(comm->failed, "an earlier error has closed this communicator");
    return DLC_OK;
}

static dlc_status end(dlc_comm *comm, dlc_status status) {
    comm->failed = status;
    return status;
}

dlc_status dlc_comm_all_reduce(dlc_comm *comm, float *buffer, size_t count) {
    int go = 0;
    DLC_TRY(begin(comm, count, &go));
    return go ? end(comm, all_reduce(comm, buffer, count)) : DLC_OK;
}

dlc_status dlc_comm_reduce_scatter(dlc_comm *comm, float *buffer, size_t count) {
    int go = 0;
    DLC_TRY(begin(comm, count, &go));
    return go ? end(comm, reduce_scatter(comm, buffer, count)) : DLC_OK;
}

dlc_status dlc_comm_all_gather(dlc_comm *comm, float *buffer, size_t count) {
    int go = 0;
    DLC_TRY(begin(comm, count, &go));
    return go ? end(comm, all_gather(comm, buffer, count)) : DLC_OK;
}

dlc_status dlc_comm_broadcast(dlc_comm *comm, int32_t root, void *buffer,
                              size_t bytes) {
    int go = 0;
    if (root < 0 || root >= comm->ranks)
        return dlc_fail(DLC_ERR_INTERNAL, "broadcast: there is no rank %d among %d",
                        root, comm->ranks);
    DLC_TRY(begin(comm, bytes, &go));
    return go ? end(comm, broadcast(comm, root, buffer, bytes)) : DLC_OK;
}

dlc_status dlc_comm_barrier(dlc_comm *comm) {
    int go = 0;
    DLC_TRY(begin(comm, 1, &go));
    return go ? end(comm, barrier(comm)) : DLC_OK;
}

int dlc_comm_can_fuse_update(const dlc_comm *comm) {
    const dlc_team *team = comm->team[INTRA_NODE];
    return team && !comm->two_levels && team->reduces &&
           DLC_CAN(team->ops, fused_update) && DLC_CAN(comm->device_ops, update_to);
}

dlc_status dlc_comm_fused_update(dlc_comm *comm, float *gradients, float *weights,
                                 size_t count, const dlc_update_range *ranges,
                                 int32_t range_count) {
    const dlc_team *team = comm->team[INTRA_NODE];
    int go = 0;
    DLC_TRY(begin(comm, count, &go));
    return go ? end(comm, team->ops->fused_update(team->endpoint, gradients, weights,
                                                  count, ranges, range_count))
              : DLC_OK;
}

/* ---- Stream-ordered collectives
 * -------------------------------------------------------- */

int dlc_comm_can_queue(const dlc_comm *comm) {
    const dlc_team *team = comm->team[INTRA_NODE];
    return team && !comm->two_levels && team->reduces && team->supports_queues;
}

int dlc_comm_can_capture(const dlc_comm *comm) {
    return dlc_comm_can_queue(comm) &&
           (comm->team[INTRA_NODE]->feature->caps & DLC_TRANSPORT_CAPTURABLE) != 0;
}

typedef dlc_status queue_call(dlc_endpoint *endpoint, dlc_queue *queue, float *buffer,
                              size_t count);

static dlc_status submit(dlc_comm *comm, queue_call *call, dlc_queue *queue,
                         float *buffer, size_t count) {
    int go = 0;
    DLC_TRY(begin(comm, count, &go));
    return go ? end(comm, call(comm->team[INTRA_NODE]->endpoint, queue, buffer, count))
              : DLC_OK;
}

dlc_status dlc_comm_queue_all_reduce(dlc_comm *comm, dlc_queue *queue, float *buffer,
                                     size_t count) {
    return submit(comm, comm->team[INTRA_NODE]->ops->queues->all_reduce, queue, buffer,
                  count);
}

dlc_status dlc_comm_queue_reduce_scatter(dlc_comm *comm, dlc_queue *queue,
                                         float *buffer, size_t count) {
    return submit(comm, comm->team[INTRA_NODE]->ops->queues->reduce_scatter, queue,
                  buffer, count);
}

dlc_status dlc_comm_queue_all_gather(dlc_comm *comm, dlc_queue *queue, float *buffer,
                                     size_t count) {
    return submit(comm, comm->team[INTRA_NODE]->ops->queues->all_gather, queue, buffer,
                  count);
}

/* The transport is polled after an error, too: that is how it abandons waiting work. */
dlc_status dlc_comm_poll(dlc_comm *comm) {
    const dlc_team *team = comm->team[INTRA_NODE];
    dlc_status status = DLC_OK;
    int go = 0;
    if (team && team->supports_queues)
        status = team->ops->queues->poll(team->endpoint);
    DLC_TRY(begin(comm, 1, &go));
    if (go && status == DLC_OK)
        status = check(comm);
    return go ? end(comm, status) : DLC_OK;
}

/* ---- Shards -------------------------------------------------------------- */

int dlc_comm_has_shards(const dlc_comm *comm) {
    return comm->ranks > 1 && (!comm->two_levels || comm->nodes.even);
}

void dlc_comm_shard(const dlc_comm *comm, size_t count, size_t *begin, size_t *end) {
    *begin = 0;
    *end = count;
    if (!dlc_comm_has_shards(comm))
        return;
    if (!comm->two_levels) {
        *begin = dlc_slice(count, comm->rank, comm->ranks);
        *end = dlc_slice(count, comm->rank + 1, comm->ranks);
        return;
    }
    size_t n = 0, from = slice_of(comm, count, &n);
    int32_t node = comm->nodes.node[comm->rank], nodes = comm->nodes.nodes;
    *begin = from + dlc_slice(n, node, nodes);
    *end = from + dlc_slice(n, node + 1, nodes);
}
