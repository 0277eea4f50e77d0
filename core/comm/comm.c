/* Opens a communicator's teams and runs its collectives over its levels: on the way up
 * a rank reduces its part of the buffer with its team and keeps a smaller part, on the
 * way down it gathers these again. */
#include "comm/comm.h"

#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/slice.h"
#include "comm/oob.h"
#include "comm/outer.h"
#include "comm/team.h"

struct dlc_comm {
    int32_t rank, ranks;
    dlc_levels levels;
    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_oob *oob; /* out-of-band all-gathers of the teams; NULL: one rank */
    dlc_team *team[DLC_COMM_LEVELS]; /* NULL: this rank is alone in it, or has none */
    dlc_outer *outer;                /* NULL: no all-reduce was large enough so far */
    void *job;
    dlc_status (*check)(void *job);
    dlc_status (*oob_all_gather)(void *job, const void *mine, size_t bytes, void *all);
    atomic_int cancelled;
    atomic_uint_fast64_t deadline; /* of all calls; 0: none */
    dlc_status failed;             /* the first error */
};

/* ---- Services for the transports ----------------------------------------- */

static dlc_status check(void *context) {
    dlc_comm *comm = context;
    if (atomic_load_explicit(&comm->cancelled, memory_order_relaxed))
        return dlc_fail(DLC_ERR_CANCELLED, "the exchange was cancelled");
    uint64_t deadline = atomic_load_explicit(&comm->deadline, memory_order_relaxed);
    if (deadline && dlc_now_ns() > deadline)
        return dlc_fail(DLC_ERR_TIMEOUT, "nothing arrived in time");
    return comm->check(comm->job);
}

static dlc_status oob_all_gather(void *context, const void *mine, size_t bytes,
                                 void *all) {
    dlc_comm *comm = context;
    return comm->oob_all_gather(comm->job, mine, bytes, all);
}

/* ---- Opening and closing ------------------------------------------------- */

static dlc_status join_oob(const dlc_comm *comm, int32_t level, const int32_t *members,
                           dlc_team_args *team) {
    team->oob_all_gather = dlc_oob_all_gather;
    team->check = dlc_oob_check;
    return dlc_oob_add_group(comm->oob, level, members, team->ranks, &team->job);
}

static dlc_status open_level(dlc_comm *comm, const dlc_comm_args *args, int32_t level,
                             int32_t *members, dlc_rank_info *rank_info) {
    const dlc_comm_level *how = &args->level[level];
    int32_t count = dlc_levels_team(&comm->levels, level, comm->rank, members);
    const dlc_rank_info *info = args->rank_info;
    if (count < 2)
        return DLC_OK;
    if (!how->feature)
        return dlc_fail(DLC_ERR_INTERNAL, "a team of %d ranks has no transport", count);
    for (int32_t i = 0; i < count; i++)
        rank_info[i] = info[members[i]];
    dlc_team_args team = {.feature = how->feature,
                          .settings = how->settings,
                          .rank = comm->levels.level[level].position[comm->rank],
                          .ranks = count,
                          .rank_info = rank_info,
                          .device_ops = args->device_ops,
                          .device = comm->device,
                          .any_order = args->any_order,
                          .job = comm,
                          .oob_all_gather = oob_all_gather,
                          .check = check};
    DLC_TRY(join_oob(comm, level, members, &team));
    return dlc_team_open(&team, &comm->team[level]);
}

static dlc_status make_levels(dlc_comm *comm, const dlc_comm_args *args) {
    dlc_domain_level within[DLC_COMM_LEVELS];
    for (int32_t i = 0; i < args->levels && i < DLC_COMM_LEVELS; i++)
        within[i] = args->level[i].within;
    return dlc_levels_make(args->rank_info, args->ranks, within, args->levels,
                           &comm->levels);
}

static dlc_status open_levels(dlc_comm *comm, const dlc_comm_args *args,
                              int32_t *failed) {
    dlc_device_args device = args->device;
    size_t ranks = (size_t)comm->ranks;

    device.threads = 1; /* the calling thread */
    device.cpus = NULL;
    DLC_TRY(make_levels(comm, args));
    DLC_TRY(args->device_ops->open(&device, &comm->device));
    DLC_TRY(
        dlc_oob_open(comm->rank, comm->ranks, comm, oob_all_gather, check, &comm->oob));
    int32_t *members = dlc_alloc(ranks, sizeof *members);
    dlc_rank_info *rank_info = dlc_alloc(ranks, sizeof *rank_info);
    dlc_status status = members && rank_info ? DLC_OK : DLC_ERR_NOMEM;
    for (int32_t level = 0; status == DLC_OK && level < args->levels; level++) {
        /* If one rank fails, all do. */
        status = dlc_oob_finish(comm->oob,
                                open_level(comm, args, level, members, rank_info));
        if (status != DLC_OK)
            *failed = level;
    }
    dlc_free(rank_info);
    dlc_free(members);
    return status;
}

/* Whether a level can connect the ranks that it is for. */
static int has_transport(const dlc_comm_args *args) {
    for (int32_t i = 0; i < args->levels && i < DLC_COMM_LEVELS; i++)
        if (args->level[i].feature)
            return 1;
    return 0;
}

dlc_status dlc_comm_open(const dlc_comm_args *args, dlc_comm **comm) {
    int32_t failed;
    return dlc_comm_try_open(args, comm, &failed);
}

dlc_status dlc_comm_try_open(const dlc_comm_args *args, dlc_comm **comm,
                             int32_t *failed) {
    *failed = -1;
    if (args->ranks < 1 || args->rank < 0 || args->rank >= args->ranks)
        return dlc_fail(DLC_ERR_INTERNAL, "there is no rank %d among %d", args->rank,
                        args->ranks);
    if (args->ranks > 1 && !has_transport(args))
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
    dlc_status status = args->ranks > 1 ? open_levels(made, args, failed) : DLC_OK;
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
    dlc_outer_close(comm->outer);
    for (int32_t level = DLC_COMM_LEVELS; level-- > 0;)
        dlc_team_close(comm->team[level]);
    dlc_oob_close(comm->oob);
    if (comm->device)
        comm->device_ops->close(comm->device);
    dlc_levels_free(&comm->levels);
    dlc_free(comm);
}

dlc_status dlc_comm_register_buffer(dlc_comm *comm, const dlc_memory *memory) {
    for (int32_t level = 0; level < comm->levels.levels; level++) {
        dlc_team *team = comm->team[level];
        DLC_TRY(dlc_oob_finish(comm->oob,
                               team ? dlc_team_register_buffer(team, memory) : DLC_OK));
    }
    return DLC_OK;
}

void dlc_comm_describe(dlc_comm *comm, char *text, size_t bytes) {
    size_t length = 0;

    text[0] = '\0';
    for (int32_t level = 0; level < comm->levels.levels; level++) {
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

void dlc_comm_set_deadline(dlc_comm *comm, uint64_t ns) {
    atomic_store(&comm->deadline, ns);
}

dlc_team *dlc_comm_team(const dlc_comm *comm, int32_t level, int32_t *members) {
    if (comm->team[level])
        (void)dlc_levels_team(&comm->levels, level, comm->rank, members);
    return comm->team[level];
}

int32_t dlc_comm_rank(const dlc_comm *comm) {
    return comm->rank;
}

int32_t dlc_comm_ranks(const dlc_comm *comm) {
    return comm->ranks;
}

/* ---- Collectives over the levels ----------------------------------------- */

/* A part of a buffer. */
typedef struct part {
    size_t begin, count;
} part;

/* The part of a rank after a level, which is a slice if its team scatters. */
static part shrink(const dlc_comm *comm, int32_t level, part whole) {
    const dlc_level *its = &comm->levels.level[level];
    int32_t at = its->position[comm->rank], size = its->size[comm->rank];
    size_t begin = dlc_slice(whole.count, at, size);
    return (part){whole.begin + begin, dlc_slice(whole.count, at + 1, size) - begin};
}

/* The part that a rank works on at a level. */
static part part_at(const dlc_comm *comm, int32_t level, size_t count) {
    part its = {0, count};
    for (int32_t i = 0; i < level; i++)
        if (comm->levels.level[i].even)
            its = shrink(comm, i, its);
    return its;
}

static int32_t last_level(const dlc_comm *comm) {
    return comm->levels.levels - 1;
}

/* This rank's team and part at a level; NULL: it has nothing to do there. */
static dlc_team *work_at(const dlc_comm *comm, int32_t level, size_t count, part *its) {
    dlc_team *team = comm->team[level];
    *its = team ? part_at(comm, level, count) : (part){0, 0};
    return its->count > 0 ? team : NULL;
}

/* Reduces on the levels below `top`, which may be behind the last one. */
static dlc_status go_up(dlc_comm *comm, float *buffer, size_t count, int32_t top) {
    for (int32_t i = 0; i < top; i++) {
        part its;
        dlc_team *team = work_at(comm, i, count, &its);
        if (team)
            DLC_TRY((i == last_level(comm) || comm->levels.level[i].even
                         ? dlc_team_reduce_scatter
                         : dlc_team_all_reduce)(team, buffer + its.begin, its.count));
    }
    return DLC_OK;
}

/* Spreads the sums again, from the levels below `top`. */
static dlc_status go_down(dlc_comm *comm, float *buffer, size_t count, int32_t top) {
    for (int32_t i = top; i-- > 0;) {
        part its;
        dlc_team *team = work_at(comm, i, count, &its);
        if (!team)
            continue;
        if (i == last_level(comm) || comm->levels.level[i].even)
            DLC_TRY(dlc_team_all_gather(team, buffer + its.begin, its.count));
        else
            DLC_TRY(dlc_team_broadcast(team, 0, buffer + its.begin,
                                       its.count * sizeof *buffer));
    }
    return DLC_OK;
}

/* Elements of a part, and parts of a buffer, that go through the levels one after the
 * other, so that all levels are busy at once. */
enum { PART = 256 << 10, PARTS = 16 };

static part nth_part(size_t count, int32_t i, int32_t parts) {
    size_t begin = dlc_slice(count, i, parts);
    return (part){begin, dlc_slice(count, i + 1, parts) - begin};
}

/* Reduces the parts: up the lower levels, by the outer thread on the last one, and down
 * again, a few parts later. */
static dlc_status reduce_parts(dlc_comm *comm, float *buffer, size_t count,
                               int32_t parts) {
    int32_t last = last_level(comm);
    for (int32_t up = 0, down = 0; down < parts; down++) {
        for (; up < parts && up < down + DLC_OUTER_PARTS; up++) {
            part whole = nth_part(count, up, parts), its;
            float *from = buffer + whole.begin;
            DLC_TRY(go_up(comm, from, whole.count, last));
            dlc_team *team = work_at(comm, last, whole.count, &its);
            dlc_outer_start(comm->outer, team, from + its.begin, its.count);
        }
        part whole = nth_part(count, down, parts);
        DLC_TRY(dlc_outer_wait(comm->outer));
        DLC_TRY(go_down(comm, buffer + whole.begin, whole.count, last));
    }
    return DLC_OK;
}

/* Memory of devices with queues is the transports' to synchronize: one level at a time.
 */
static int has_parts(const dlc_comm *comm, size_t count) {
    return last_level(comm) > 0 && count / PART > 1 &&
           !DLC_CAN(comm->device_ops, queues);
}

static dlc_status all_reduce(dlc_comm *comm, float *buffer, size_t count) {
    int32_t last = last_level(comm);
    if (has_parts(comm, count)) {
        size_t parts = count / PART < PARTS ? count / PART : PARTS;
        if (!comm->outer)
            DLC_TRY(dlc_outer_open(&comm->cancelled, &comm->outer));
        dlc_status status = reduce_parts(comm, buffer, count, (int32_t)parts);
        return status == DLC_OK ? DLC_OK : dlc_outer_cancel(comm->outer, status);
    }
    part its;
    DLC_TRY(go_up(comm, buffer, count, last));
    dlc_team *team = work_at(comm, last, count, &its);
    if (team)
        DLC_TRY(dlc_team_all_reduce(team, buffer + its.begin, its.count));
    return go_down(comm, buffer, count, last);
}

static dlc_status reduce_scatter(dlc_comm *comm, float *buffer, size_t count) {
    if (!dlc_comm_has_shards(comm))
        return all_reduce(comm, buffer, count);
    return go_up(comm, buffer, count, comm->levels.levels);
}

static dlc_status all_gather(dlc_comm *comm, float *buffer, size_t count) {
    if (!dlc_comm_has_shards(comm))
        return DLC_OK; /* reduce_scatter has already reduced everything everywhere */
    return go_down(comm, buffer, count, comm->levels.levels);
}

/* This rank's team at a level, if it leads its domain of the level below. */
static dlc_team *leading_team(const dlc_comm *comm, int32_t level) {
    return comm->levels.level[level].leads[comm->rank] ? comm->team[level] : NULL;
}

/* Where the root's data is in this rank's team at a level: the position of the root, or
 * of the one that leads its domain. -1: not in this team's domain. */
static int32_t find_root(const dlc_comm *comm, int32_t level, int32_t root) {
    const dlc_levels *l = &comm->levels;
    int32_t at = root;
    for (int32_t i = 0; i < level; i++) /* to the first of its team, level by level */
        at = l->level[i].team[at];
    return l->level[level].team[at] == l->level[level].team[comm->rank]
               ? l->level[level].position[at]
               : -1;
}

/* Broadcasts in the root's innermost domain, between the domains of each level that it
 * is in, and then inside the others. */
static dlc_status broadcast(dlc_comm *comm, int32_t root, void *buffer, size_t bytes) {
    for (int32_t i = 0; i < comm->levels.levels; i++) {
        dlc_team *team = leading_team(comm, i);
        int32_t at = team ? find_root(comm, i, root) : -1;
        if (at >= 0)
            DLC_TRY(dlc_team_broadcast(team, at, buffer, bytes));
    }
    for (int32_t i = last_level(comm); i-- > 0;) {
        dlc_team *team = leading_team(comm, i);
        if (team && find_root(comm, i, root) < 0)
            DLC_TRY(dlc_team_broadcast(team, 0, buffer, bytes));
    }
    return DLC_OK;
}

static dlc_status barrier(dlc_comm *comm) {
    int32_t levels = comm->levels.levels;
    for (int32_t i = 0; i < levels; i++)
        if (leading_team(comm, i))
            DLC_TRY(dlc_team_barrier(leading_team(comm, i)));
    for (int32_t i = levels - 1; i-- > 0;)
        if (leading_team(comm, i))
            DLC_TRY(dlc_team_barrier(leading_team(comm, i)));
    return DLC_OK;
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
    const dlc_team *team = comm->team[0];
    return team && comm->levels.levels == 1 && team->reduces &&
           DLC_CAN(team->ops, fused_update) && DLC_CAN(comm->device_ops, update_to);
}

dlc_status dlc_comm_fused_update(dlc_comm *comm, float *gradients, float *weights,
                                 size_t count, const dlc_update_range *ranges,
                                 int32_t range_count) {
    const dlc_team *team = comm->team[0];
    int go = 0;
    DLC_TRY(begin(comm, count, &go));
    return go ? end(comm, team->ops->fused_update(team->endpoint, gradients, weights,
                                                  count, ranges, range_count))
              : DLC_OK;
}

/* ---- Stream-ordered collectives
 * -------------------------------------------------------- */

int dlc_comm_can_queue(const dlc_comm *comm) {
    const dlc_team *team = comm->team[0];
    return team && comm->levels.levels == 1 && team->reduces && team->supports_queues;
}

int dlc_comm_can_capture(const dlc_comm *comm) {
    return dlc_comm_can_queue(comm) &&
           (comm->team[0]->feature->caps & DLC_TRANSPORT_CAPTURABLE) != 0;
}

typedef dlc_status queue_call(dlc_endpoint *endpoint, dlc_queue *queue, float *buffer,
                              size_t count);

static dlc_status submit(dlc_comm *comm, queue_call *call, dlc_queue *queue,
                         float *buffer, size_t count) {
    int go = 0;
    DLC_TRY(begin(comm, count, &go));
    return go ? end(comm, call(comm->team[0]->endpoint, queue, buffer, count)) : DLC_OK;
}

dlc_status dlc_comm_queue_all_reduce(dlc_comm *comm, dlc_queue *queue, float *buffer,
                                     size_t count) {
    return submit(comm, comm->team[0]->ops->queues->all_reduce, queue, buffer, count);
}

dlc_status dlc_comm_queue_reduce_scatter(dlc_comm *comm, dlc_queue *queue,
                                         float *buffer, size_t count) {
    return submit(comm, comm->team[0]->ops->queues->reduce_scatter, queue, buffer,
                  count);
}

dlc_status dlc_comm_queue_all_gather(dlc_comm *comm, dlc_queue *queue, float *buffer,
                                     size_t count) {
    return submit(comm, comm->team[0]->ops->queues->all_gather, queue, buffer, count);
}

/* The transport is polled after an error, too: that is how it abandons waiting work. */
dlc_status dlc_comm_poll(dlc_comm *comm) {
    const dlc_team *team = comm->team[0];
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
    return comm->ranks > 1 && dlc_levels_has_shards(&comm->levels);
}

void dlc_comm_shard(const dlc_comm *comm, size_t count, size_t *begin, size_t *end) {
    part its = {0, count};
    if (dlc_comm_has_shards(comm))
        its = shrink(comm, last_level(comm), part_at(comm, last_level(comm), count));
    *begin = its.begin;
    *end = its.begin + its.count;
}
