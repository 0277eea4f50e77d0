/* Opens and closes the teams of a communicator. */
#include "comm/comm_internal.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/memory.h"

/* ---- Services for the transports ----------------------------------------- */

dlc_status dlc_comm_check(void *context) {
    dlc_comm *comm = context;
    if (atomic_load_explicit(&comm->cancelled, memory_order_relaxed))
        return dlc_fail(DLC_ERR_CANCELLED, "the exchange was cancelled");
    uint64_t deadline = atomic_load_explicit(&comm->deadline, memory_order_relaxed);
    if (deadline && dlc_now_ns() > deadline)
        return dlc_fail(DLC_ERR_TIMEOUT, "nothing arrived in time");
    return comm->check(comm->job);
}

static dlc_status comm_all_gather(void *context, const void *mine, size_t bytes,
                                  void *all) {
    dlc_comm *comm = context;
    return comm->oob_all_gather(comm->job, mine, bytes, all);
}

/* ---- Opening and closing ------------------------------------------------- */

static dlc_status open_level(dlc_comm *comm, const dlc_comm_args *args, int32_t level,
                             int32_t *members, dlc_rank_info *rank_info) {
    const dlc_comm_level *how = &args->level[level];
    int32_t count = dlc_levels_team(&comm->levels, level, comm->rank, members);
    const dlc_rank_info *info = args->rank_info;
    void *job = NULL;
    if (count < 2)
        return DLC_OK;
    if (!how->feature)
        return dlc_fail(DLC_ERR_INTERNAL, "a team of %d ranks has no transport", count);
    for (int32_t i = 0; i < count; i++)
        rank_info[i] = info[members[i]];
    DLC_TRY(dlc_oob_add_group(comm->oob, level, members, count, &job));
    for (int32_t i = 0; i < count; i++)
        members[i] = dlc_comm_job_rank(args, members[i]);
    dlc_team_args team = {.feature = how->feature,
                          .settings = how->settings,
                          .rank = comm->levels.level[level].position[comm->rank],
                          .ranks = count,
                          .rank_info = rank_info,
                          .device_ops = args->device_ops,
                          .device = comm->device,
                          .any_order = args->any_order,
                          .job = job,
                          .oob_all_gather = dlc_oob_all_gather,
                          .check = dlc_oob_check,
                          .job_rank = members,
                          .on_progress = args->on_progress,
                          .on_wait = args->on_wait,
                          .progress_context = args->progress_context};
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
    DLC_TRY(dlc_oob_open(comm->rank, comm->ranks, comm, comm_all_gather, dlc_comm_check,
                         &comm->oob));
    int32_t *members = dlc_alloc(ranks, sizeof *members);
    dlc_rank_info *rank_info = dlc_alloc(ranks, sizeof *rank_info);
    dlc_status status = members && rank_info ? DLC_OK : DLC_ERR_NOMEM;
    for (int32_t level = 0; status == DLC_OK && level < args->levels; level++) {
        status = open_level(comm, args, level, members, rank_info);
        if (status != DLC_OK && args->on_failure && !dlc_oob_has_failed(comm->oob))
            args->on_failure(args->progress_context, status);
        /* If one rank fails, all do. */
        status = dlc_oob_finish(comm->oob, status);
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
                                   length ? "; " : "", team->how.feature->name, used);
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
