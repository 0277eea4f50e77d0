/* The levels of a communicator.
 *
 * With two of them every node's ranks are a team; and between the nodes the ranks of
 * equal number in their nodes are one, each for its slice of the buffer. Where nodes
 * have unequal numbers of ranks, slices would not agree: then only the first ranks of
 * the nodes form a team, which sums for all.
 */
#include "comm/comm.h"

#include <stdatomic.h>
#include <stdio.h>

#include "base/memory.h"
#include "comm/meeting.h"
#include "comm/team.h"

enum { INSIDE, BETWEEN, LEVELS };

struct dlc_comm {
    int32_t rank, ranks;
    int two_levels;
    dlc_nodes nodes;
    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_meeting *meeting;   /* the teams' way to gather; two levels only */
    dlc_team *team[LEVELS]; /* NULL: this rank is alone in it, or not in it; one
                                 level only: INSIDE has all ranks */
    void *job;
    dlc_status (*check)(void *job);
    dlc_status (*gather)(void *job, const void *mine, size_t bytes, void *all);
    atomic_int cancelled;
    dlc_status failed; /* the first error */
};

/* ---- Services for the transports --------------------------------------------- */

static dlc_status check(void *context) {
    dlc_comm *comm = context;
    if (atomic_load_explicit(&comm->cancelled, memory_order_relaxed))
        return dlc_fail(DLC_ERR_CANCELLED, "the exchange was stopped");
    return comm->check(comm->job);
}

static dlc_status allgather(void *context, const void *mine, size_t bytes, void *all) {
    dlc_comm *comm = context;
    return comm->gather(comm->job, mine, bytes, all);
}

/* ---- Opening and closing --------------------------------------------------- */

/* Whom this rank meets at a level. */
typedef struct roll {
    int32_t *rank; /* of the job, in order */
    int32_t count, me;
} roll;

static void add(roll *list, const dlc_comm *comm, int32_t rank) {
    if (rank == comm->rank)
        list->me = list->count;
    list->rank[list->count++] = rank;
}

static void call_roll(const dlc_comm *comm, int level, roll *list) {
    const dlc_nodes *nodes = &comm->nodes;
    int32_t mine = nodes->node[comm->rank], local = nodes->local[comm->rank];

    list->count = 0;
    if (!comm->two_levels) {
        for (int32_t r = 0; r < comm->ranks; r++)
            add(list, comm, r);
    } else if (level == INSIDE) {
        for (int32_t i = nodes->first[mine]; i < nodes->first[mine + 1]; i++)
            add(list, comm, nodes->member[i]);
    } else if (nodes->even || local == 0) {
        for (int32_t i = 0; i < nodes->nodes; i++)
            add(list, comm, nodes->member[nodes->first[i] + local]);
    }
}

static dlc_status open_level(dlc_comm *comm, const dlc_comm_args *args, int level,
                             roll *list) {
    const dlc_comm_level *how = level == INSIDE ? &args->level : &args->between;

    call_roll(comm, level, list);
    if (list->count < 2)
        return DLC_OK;
    if (!how->feature)
        return dlc_fail(DLC_ERR_INTERNAL, "%d ranks and no transport", list->count);
    dlc_place *places = dlc_alloc((size_t)list->count, sizeof *places);
    if (!places)
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < list->count; i++)
        places[i] = comm->nodes.place[list->rank[i]];
    dlc_team_args team = {.feature = how->feature,
                          .settings = how->settings,
                          .rank = list->me,
                          .ranks = list->count,
                          .places = places,
                          .device_ops = args->device_ops,
                          .device = comm->device,
                          .any_order = args->any_order,
                          .job = comm,
                          .allgather = allgather,
                          .check = check};
    dlc_status status = DLC_OK;
    if (comm->two_levels) {
        team.allgather = dlc_meeting_allgather;
        team.check = dlc_meeting_check;
        status = dlc_meeting_seat(comm->meeting, level, list->rank, list->count,
                                  &team.job);
    }
    if (status == DLC_OK)
        status = dlc_team_open(&team, &comm->team[level]);
    dlc_free(places);
    return status;
}

/* Waits for the ranks whose teams of this level gather more often, or at all. */
static dlc_status end_meeting(dlc_comm *comm) {
    return comm->two_levels ? dlc_meeting_end(comm->meeting) : DLC_OK;
}

static dlc_status open_levels(dlc_comm *comm, const dlc_comm_args *args) {
    dlc_device_args device = args->device;
    roll list = {0};

    device.threads = 1; /* the caller's, whichever that is */
    device.cpus = NULL;
    DLC_TRY(args->device_ops->open(&device, &comm->device));
    if (comm->two_levels)
        DLC_TRY(dlc_meeting_open(comm->rank, comm->ranks, comm, allgather, check,
                                 &comm->meeting));
    list.rank = dlc_alloc((size_t)comm->ranks, sizeof *list.rank);
    dlc_status status = list.rank ? DLC_OK : DLC_ERR_NOMEM;
    for (int level = INSIDE; status == DLC_OK && level <= comm->two_levels; level++) {
        status = open_level(comm, args, level, &list);
        if (status == DLC_OK)
            status = end_meeting(comm);
    }
    dlc_free(list.rank);
    return status;
}

dlc_status dlc_comm_open(const dlc_comm_args *args, dlc_comm **comm) {
    if (args->ranks < 1 || args->rank < 0 || args->rank >= args->ranks)
        return dlc_fail(DLC_ERR_INTERNAL, "there is no rank %d among %d", args->rank,
                        args->ranks);
    if (args->ranks > 1 && !args->level.feature && !args->between.feature)
        return dlc_fail(DLC_ERR_INTERNAL, "%d ranks and no transport", args->ranks);
    dlc_comm *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->rank = args->rank;
    made->ranks = args->ranks;
    made->device_ops = args->device_ops;
    made->job = args->job;
    made->check = args->check;
    made->gather = args->allgather;
    dlc_status status = DLC_OK;
    if (args->ranks > 1) {
        status = dlc_nodes_make(args->places, args->ranks, &made->nodes);
        made->two_levels = args->between.feature != NULL;
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
    dlc_team_close(comm->team[BETWEEN]);
    dlc_team_close(comm->team[INSIDE]);
    dlc_meeting_close(comm->meeting);
    if (comm->device)
        comm->device_ops->close(comm->device);
    dlc_nodes_free(&comm->nodes);
    dlc_free(comm);
}

dlc_status dlc_comm_attach(dlc_comm *comm, const dlc_memory *memory) {
    for (int level = INSIDE; level < LEVELS; level++) {
        if (comm->team[level])
            DLC_TRY(dlc_team_attach(comm->team[level], memory));
        DLC_TRY(end_meeting(comm));
    }
    return DLC_OK;
}

void dlc_comm_describe(dlc_comm *comm, char *text, size_t bytes) {
    size_t length = 0;

    text[0] = '\0';
    for (int level = INSIDE; level < LEVELS; level++) {
        const dlc_team *team = comm->team[level];
        char words[256] = "";
        if (!team || !DLC_CAN(team->ops, describe) ||
            team->ops->describe(team->endpoint, words, sizeof words) != DLC_OK ||
            !words[0] || length >= bytes)
            continue;
        length += (size_t)snprintf(text + length, bytes - length, "%s%s: %s",
                                   length ? "; " : "", team->feature->name, words);
    }
}

void dlc_comm_cancel(dlc_comm *comm) {
    atomic_store(&comm->cancelled, 1);
}

dlc_status dlc_comm_gather(dlc_comm *comm, const void *mine, size_t bytes, void *all) {
    return comm->gather(comm->job, mine, bytes, all);
}

int32_t dlc_comm_rank(const dlc_comm *comm) {
    return comm->rank;
}

int32_t dlc_comm_ranks(const dlc_comm *comm) {
    return comm->ranks;
}

/* ---- Collectives over the levels ------------------------------------------- */

/* The slice of a buffer that this rank sums with its like on the other nodes: where it
 * begins, and its length. */
static size_t slice_of(const dlc_comm *comm, size_t count, size_t *n) {
    int32_t local = comm->nodes.local[comm->rank];
    int32_t ranks = dlc_nodes_size(&comm->nodes, comm->nodes.node[comm->rank]);
    size_t begin = dlc_slice(count, local, ranks);
    *n = dlc_slice(count, local + 1, ranks) - begin;
    return begin;
}

static dlc_status sum_even(dlc_comm *comm, float *buffer, size_t count) {
    size_t n = 0;
    float *slice = buffer + slice_of(comm, count, &n);

    if (comm->team[INSIDE])
        DLC_TRY(dlc_team_reduce_scatter(comm->team[INSIDE], buffer, count));
    if (n > 0)
        DLC_TRY(dlc_team_all_reduce(comm->team[BETWEEN], slice, n));
    return comm->team[INSIDE] ? dlc_team_all_gather(comm->team[INSIDE], buffer, count)
                              : DLC_OK;
}

static dlc_status sum_uneven(dlc_comm *comm, float *buffer, size_t count) {
    if (comm->team[INSIDE])
        DLC_TRY(dlc_team_all_reduce(comm->team[INSIDE], buffer, count));
    if (comm->team[BETWEEN])
        DLC_TRY(dlc_team_all_reduce(comm->team[BETWEEN], buffer, count));
    return comm->team[INSIDE] ? dlc_team_broadcast(comm->team[INSIDE], 0, buffer,
                                                   count * sizeof(float))
                              : DLC_OK;
}

static dlc_status all_reduce(dlc_comm *comm, float *buffer, size_t count) {
    if (!comm->two_levels)
        return dlc_team_all_reduce(comm->team[INSIDE], buffer, count);
    return comm->nodes.even ? sum_even(comm, buffer, count)
                            : sum_uneven(comm, buffer, count);
}

static dlc_status reduce_scatter(dlc_comm *comm, float *buffer, size_t count) {
    size_t n = 0;

    if (!comm->two_levels)
        return dlc_team_reduce_scatter(comm->team[INSIDE], buffer, count);
    if (!comm->nodes.even)
        return sum_uneven(comm, buffer, count);
    float *slice = buffer + slice_of(comm, count, &n);
    if (comm->team[INSIDE])
        DLC_TRY(dlc_team_reduce_scatter(comm->team[INSIDE], buffer, count));
    return n > 0 ? dlc_team_reduce_scatter(comm->team[BETWEEN], slice, n) : DLC_OK;
}

static dlc_status all_gather(dlc_comm *comm, float *buffer, size_t count) {
    size_t n = 0;

    if (!comm->two_levels)
        return dlc_team_all_gather(comm->team[INSIDE], buffer, count);
    if (!comm->nodes.even)
        return DLC_OK; /* everybody has everything */
    float *slice = buffer + slice_of(comm, count, &n);
    if (n > 0)
        DLC_TRY(dlc_team_all_gather(comm->team[BETWEEN], slice, n));
    return comm->team[INSIDE] ? dlc_team_all_gather(comm->team[INSIDE], buffer, count)
                              : DLC_OK;
}

/* Over the root's node, from there to the first ranks of the others, and over each of
 * these. */
static dlc_status broadcast(dlc_comm *comm, int32_t root, void *buffer, size_t bytes) {
    const dlc_nodes *nodes = &comm->nodes;

    if (!comm->two_levels)
        return dlc_team_broadcast(comm->team[INSIDE], root, buffer, bytes);
    int with_root = nodes->node[comm->rank] == nodes->node[root];
    if (with_root && comm->team[INSIDE])
        DLC_TRY(
            dlc_team_broadcast(comm->team[INSIDE], nodes->local[root], buffer, bytes));
    if (nodes->local[comm->rank] == 0)
        DLC_TRY(
            dlc_team_broadcast(comm->team[BETWEEN], nodes->node[root], buffer, bytes));
    if (!with_root && comm->team[INSIDE])
        DLC_TRY(dlc_team_broadcast(comm->team[INSIDE], 0, buffer, bytes));
    return DLC_OK;
}

static dlc_status barrier(dlc_comm *comm) {
    if (comm->team[INSIDE])
        DLC_TRY(dlc_team_barrier(comm->team[INSIDE]));
    if (!comm->two_levels)
        return DLC_OK;
    if (comm->nodes.local[comm->rank] == 0)
        DLC_TRY(dlc_team_barrier(comm->team[BETWEEN]));
    return comm->team[INSIDE] ? dlc_team_barrier(comm->team[INSIDE]) : DLC_OK;
}

/* ---- The calls --------------------------------------------------------------- */

/* Is there anything to do? DLC_OK and *go = 1, or the error of before. */
static dlc_status begin(dlc_comm *comm, size_t count, int *go) {
    *go = comm->failed == DLC_OK && comm->ranks > 1 && count > 0;
    if (comm->failed != DLC_OK)
        return dlc_fail(comm->failed, "this communicator ended with an earlier error");
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

int dlc_comm_can_update(const dlc_comm *comm) {
    const dlc_team *team = comm->team[INSIDE];
    return team && !comm->two_levels && team->sums && DLC_CAN(team->ops, update) &&
           DLC_CAN(comm->device_ops, momentum_to);
}

dlc_status dlc_comm_update(dlc_comm *comm, float *gradients, float *weights,
                           size_t count, const dlc_weight_step *steps,
                           int32_t step_count) {
    const dlc_team *team = comm->team[INSIDE];
    int go = 0;
    DLC_TRY(begin(comm, count, &go));
    return go ? end(comm, team->ops->update(team->endpoint, gradients, weights, count,
                                            steps, step_count))
              : DLC_OK;
}

/* ---- Work for a queue -------------------------------------------------------- */

int dlc_comm_can_queue(const dlc_comm *comm) {
    const dlc_team *team = comm->team[INSIDE];
    return team && !comm->two_levels && team->sums && team->queues;
}

int dlc_comm_can_record(const dlc_comm *comm) {
    return dlc_comm_can_queue(comm) &&
           (comm->team[INSIDE]->feature->caps & DLC_TRANSPORT_RECORDS) != 0;
}

typedef dlc_status queue_call(dlc_endpoint *endpoint, dlc_queue *queue, float *buffer,
                              size_t count);

static dlc_status give(dlc_comm *comm, queue_call *call, dlc_queue *queue,
                       float *buffer, size_t count) {
    int go = 0;
    DLC_TRY(begin(comm, count, &go));
    return go ? end(comm, call(comm->team[INSIDE]->endpoint, queue, buffer, count))
              : DLC_OK;
}

dlc_status dlc_comm_queue_all_reduce(dlc_comm *comm, dlc_queue *queue, float *buffer,
                                     size_t count) {
    return give(comm, comm->team[INSIDE]->ops->queue_all_reduce, queue, buffer, count);
}

dlc_status dlc_comm_queue_reduce_scatter(dlc_comm *comm, dlc_queue *queue,
                                         float *buffer, size_t count) {
    return give(comm, comm->team[INSIDE]->ops->queue_reduce_scatter, queue, buffer,
                count);
}

dlc_status dlc_comm_queue_all_gather(dlc_comm *comm, dlc_queue *queue, float *buffer,
                                     size_t count) {
    return give(comm, comm->team[INSIDE]->ops->queue_all_gather, queue, buffer, count);
}

/* The transport is asked also after an error: it gives up what waits. */
dlc_status dlc_comm_poll(dlc_comm *comm) {
    const dlc_team *team = comm->team[INSIDE];
    dlc_status status = DLC_OK;
    int go = 0;
    if (team && DLC_CAN(team->ops, poll))
        status = team->ops->poll(team->endpoint);
    DLC_TRY(begin(comm, 1, &go));
    if (go && status == DLC_OK)
        status = check(comm);
    return go ? end(comm, status) : DLC_OK;
}

/* ---- Shards ------------------------------------------------------------------ */

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
