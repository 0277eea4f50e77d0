/* Runs the trials of all levels, and agrees with the other ranks on what they found. */
#include "comm/probe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/team.h"
#include "plugin/answers.h"
#include "plugin/device_objects.h"

enum { ATTEMPTS = 5 };
#define PATIENCE_NS UINT64_C(10000000000) /* for what is tried on a level */

/* What the ranks send each other: first how their memory is mapped. */
typedef struct offer {
    uint64_t is_shared;
    dlc_ipc_handle handle;
} offer;

typedef struct probing {
    const dlc_probe_args *args;
    dlc_comm *comm;
    int32_t rank, ranks;
    dlc_memory *memory;
    uint64_t *scratch; /* owned */
    int32_t *members;  /* owned; of a team */
    offer *offers;     /* owned; one per rank */
    int32_t *wrote;    /* owned; per rank: it wrote into the next one's memory */
    dlc_probe_finding *findings; /* owned; per rank */
    dlc_probe_trial trial[DLC_COMM_LEVELS];
    int is_broken[DLC_COMM_LEVELS]; /* its messages failed */
} probing;

/* ---- A channel over a team ----------------------------------------------------- */

static dlc_status team_send(void *team_, int32_t peer, dlc_tag tag, const void *buffer,
                            size_t bytes, dlc_request **request) {
    const dlc_team *team = team_;
    return team->ops->send(team->endpoint, peer, tag, buffer, bytes, request);
}

static dlc_status team_recv(void *team_, int32_t peer, dlc_tag tag, void *buffer,
                            size_t bytes, dlc_request **request) {
    const dlc_team *team = team_;
    return team->ops->recv(team->endpoint, peer, tag, buffer, bytes, request);
}

static dlc_status team_wait_any(void *team_, dlc_request *const *requests,
                                int32_t count, double seconds, int32_t *which) {
    const dlc_team *team = team_;
    (void)seconds; /* the communicator has a deadline */
    for (int32_t i = 0; i < count; i++) {
        if (!requests[i])
            continue;
        *which = i;
        return DLC_ASK(team->ops, "wait", team->ops->wait(team->endpoint, requests[i]));
    }
    return DLC_OK;
}

static dlc_status team_check(void *team_) {
    const dlc_team *team = team_;
    return team->args.check(team->args.job);
}

static dlc_p2p_channel team_channel(dlc_team *team) {
    return (dlc_p2p_channel){.size = sizeof(dlc_p2p_channel),
                             .context = team,
                             .rank = team->args.rank,
                             .ranks = team->args.ranks,
                             .send = team_send,
                             .recv = team_recv,
                             .wait_any = team_wait_any,
                             .check = team_check};
}

/* ---- Memory -------------------------------------------------------------------- */

static int shares_memory(const dlc_device_ops *ops) {
    return DLC_CAN(ops, ipc_import) && ops->ipc_export;
}

/* Memory that others can map, or, if there is no such memory, any. */
static dlc_status allocate_probe(probing *p, offer *mine) {
    const dlc_device_ops *ops = p->args->how->device_ops;
    const size_t bytes = (size_t)DLC_PROBE_PARTS * DLC_PROBE_BYTES;
    mine->handle.size = sizeof mine->handle;
    mine->is_shared = shares_memory(ops) &&
                      dlc_device_alloc(ops, p->args->device, bytes, DLC_MEM_SHARED,
                                       p->memory) == DLC_OK;
    if (!mine->is_shared)
        return dlc_device_alloc(ops, p->args->device, bytes, 0, p->memory);
    mine->is_shared = ops->ipc_export(p->args->device, p->memory, &mine->handle) ==
                      DLC_OK;
    return DLC_OK;
}

/* Ranks of one machine may have to take turns on its cores, so the time of their
 * messages says little. */
static int is_near(const probing *p, int32_t other) {
    const dlc_rank_info *info = p->args->how->rank_info;
    return info[other].node == info[p->rank].node;
}

/* Whether the transport of a team maps the memory of its ranks, as far as one can see.
 */
static int maps_memory(const probing *p, const dlc_team *team, int32_t next) {
    return DLC_CAN(team->ops, register_buffer) && p->offers[p->rank].is_shared &&
           p->offers[next].is_shared && is_near(p, next);
}

/* What cannot be mapped is not tried: transports that need it cannot be opened then,
 * and others have further ways. */
static void map_next(probing *p, dlc_probe_trial *t, const dlc_team *team,
                     dlc_memory *mapped) {
    mapped->size = sizeof *mapped;
    if (!maps_memory(p, team, t->next))
        return;
    if (t->ops->ipc_import(t->device, &p->offers[t->next].handle, mapped) == DLC_OK)
        t->next_base = mapped->base;
    else
        dlc_debug("probe: rank %d cannot map the memory of rank %d: %s", t->rank,
                  t->next, dlc_detail());
}

/* ---- Trials -------------------------------------------------------------------- */

static void prepare_trial(probing *p, int32_t level, const dlc_team *team) {
    dlc_probe_trial *t = &p->trial[level];
    const dlc_transport_path *path = &p->args->path[level];
    int32_t at = team->args.rank, ranks = team->args.ranks;
    double messages = 2.0 * (ranks - 1) / ranks *
                      fmin(path->prediction.bandwidth,
                           path->prediction.small_bandwidth);
    t->next_position = (at + 1) % ranks;
    t->previous_position = (at + ranks - 1) % ranks;
    t->next = p->members[t->next_position];
    t->previous = p->members[t->previous_position];
    for (int32_t i = 0; i < ranks; i++)
        t->is_timed |= !is_near(p, p->members[i]);
    t->latency = path->prediction.latency;
    t->bandwidth[DLC_PROBE_READ] = t->bandwidth[DLC_PROBE_WRITE] = path->link_bandwidth;
    t->bandwidth[DLC_PROBE_FORWARD] = is_near(p, t->previous) ? 0 : messages;
    t->bandwidth[DLC_PROBE_BACKWARD] = is_near(p, t->next) ? 0 : messages;
}

/* Messages that fail are a finding, unless the job is ending. */
static dlc_status try_messages(probing *p, int32_t level) {
    dlc_probe_trial *t = &p->trial[level];
    for (int way = DLC_PROBE_FORWARD; way <= DLC_PROBE_BACKWARD; way++) {
        dlc_status status = p->is_broken[level] ? DLC_OK
                                                : dlc_probe_try(t, (dlc_probe_way)way);
        if (status == DLC_OK)
            continue;
        char why[96];
        (void)snprintf(why, sizeof why, "%s", dlc_detail());
        p->is_broken[level] = 1;
        DLC_TRY(p->args->how->check(p->args->how->job));
        dlc_probe_unusable(t, (dlc_probe_way)way, t->previous, t->rank, why);
    }
    return DLC_OK;
}

static dlc_status try_team(probing *p, int32_t level, dlc_team *team, int32_t *wrote) {
    dlc_probe_trial *t = &p->trial[level];
    dlc_memory mapped = {.size = 0};
    dlc_p2p_channel channel = team_channel(team);
    prepare_trial(p, level, team);
    t->p2p = &channel;
    map_next(p, t, team, &mapped);
    dlc_status status = dlc_probe_try(t, DLC_PROBE_READ);
    if (status == DLC_OK)
        status = dlc_probe_try(t, DLC_PROBE_WRITE);
    *wrote = t->next_base != NULL;
    if (status == DLC_OK)
        status = try_messages(p, level);
    dlc_device_free(t->ops, t->device, &mapped);
    t->next_base = NULL;
    t->p2p = NULL;
    return status;
}

/* The all-gather also separates writing from comparing, and the levels. */
static dlc_status try_level(probing *p, int32_t level) {
    dlc_probe_trial *t = &p->trial[level];
    dlc_team *team = dlc_comm_team(p->comm, level, p->members);
    int32_t wrote = 0;
    dlc_comm_set_deadline(p->comm, dlc_now_ns() + PATIENCE_NS);
    if (team)
        DLC_TRY(try_team(p, level, team, &wrote));
    dlc_comm_set_deadline(p->comm, 0);
    DLC_TRY(dlc_comm_oob_all_gather(p->comm, &wrote, sizeof wrote, p->wrote));
    if (team && p->wrote[t->previous])
        DLC_TRY(dlc_probe_check_written(t));
    if (team)
        dlc_probe_judge(t);
    return DLC_OK;
}

/* ---- Agreement ----------------------------------------------------------------- */

static int is_worse(const dlc_probe_finding *a, const dlc_probe_finding *b) {
    if (a->from < 0 || b->from < 0)
        return a->from >= 0 && b->from < 0;
    return b->slowdown > 0 && (!(a->slowdown > 0) || a->slowdown > b->slowdown);
}

static dlc_status agree_on_worst(probing *p, int32_t level, dlc_probe_finding *worst) {
    DLC_TRY(dlc_comm_oob_all_gather(p->comm, &p->trial[level].finding, sizeof *worst,
                                    p->findings));
    *worst = p->findings[0];
    for (int32_t r = 1; r < p->ranks; r++)
        if (is_worse(&p->findings[r], worst))
            *worst = p->findings[r];
    return DLC_OK;
}

/* *again: a level looks slow and none is broken. */
static dlc_status try_all_levels(probing *p, uint64_t salt, dlc_probe_finding *finding,
                                 int *again) {
    int32_t levels = p->args->how->levels;
    int slow = 0, unusable = 0;
    for (int32_t i = 0; i < levels; i++) {
        p->trial[i].salt = salt;
        DLC_TRY(try_level(p, i));
    }
    for (int32_t i = 0; i < levels; i++) {
        DLC_TRY(agree_on_worst(p, i, &finding[i]));
        slow |= finding[i].slowdown > 0;
        unusable |= finding[i].from >= 0 && !(finding[i].slowdown > 0);
    }
    *again = slow && !unusable;
    return DLC_OK;
}

static dlc_status run_probe(probing *p, dlc_probe_finding *finding) {
    offer mine = {.is_shared = 0};
    DLC_TRY(allocate_probe(p, &mine));
    for (int32_t i = 0; i < DLC_COMM_LEVELS; i++)
        p->trial[i] = (dlc_probe_trial){.ops = p->args->how->device_ops,
                                        .device = p->args->device,
                                        .rank = p->rank,
                                        .base = p->memory->base,
                                        .scratch = p->scratch,
                                        .finding = {.from = -1, .to = -1}};
    DLC_TRY(dlc_probe_prepare(&p->trial[0]));
    DLC_TRY(dlc_comm_oob_all_gather(p->comm, &mine, sizeof mine, p->offers));
    dlc_status status = DLC_OK;
    int again = 1;
    for (uint64_t i = 1; status == DLC_OK && again && i <= ATTEMPTS; i++)
        status = try_all_levels(p, i, finding, &again);
    return status;
}

dlc_status dlc_probe_run(dlc_probe *probe, const dlc_probe_args *args, dlc_comm *comm,
                         dlc_probe_finding finding[DLC_COMM_LEVELS]) {
    size_t ranks = (size_t)dlc_comm_ranks(comm);
    probing p = {.args = args,
                 .comm = comm,
                 .rank = dlc_comm_rank(comm),
                 .ranks = dlc_comm_ranks(comm),
                 .memory = &probe->memory,
                 .scratch = dlc_alloc(DLC_PROBE_BYTES, 1),
                 .members = dlc_alloc(ranks, sizeof *p.members),
                 .offers = dlc_alloc(ranks, sizeof *p.offers),
                 .wrote = dlc_alloc(ranks, sizeof *p.wrote),
                 .findings = dlc_alloc(ranks, sizeof *p.findings)};
    int complete = p.scratch && p.members && p.offers && p.wrote && p.findings;
    dlc_status status = complete ? run_probe(&p, finding) : DLC_ERR_NOMEM;
    dlc_free(p.findings);
    dlc_free(p.wrote);
    dlc_free(p.offers);
    dlc_free(p.members);
    dlc_free(p.scratch);
    return status;
}

void dlc_probe_close(dlc_probe *probe, const dlc_probe_args *args) {
    dlc_device_free(args->how->device_ops, args->device, &probe->memory);
    *probe = (dlc_probe){.memory = {.size = 0}};
}
