/* Reads and writes complete parameters, by way of dlc_shards if no rank has them all,
 * and the running averages of every rank. */
#include "checkpoint/full_params.h"

#include <stdio.h>

#include "base/memory.h"
#include "checkpoint/shards.h"
#include "session/averages.h"
#include "session/full_state.h"

/* NULL if every rank has all parameters of `net`. */
static dlc_shards *shards_of_net(const dlc_session *session, const dlc_net *net) {
    return net == session->net ? session->shards : NULL;
}

int32_t dlc_full_param_count(const dlc_session *session, const dlc_net *net) {
    const dlc_shards *shards = shards_of_net(session, net);
    return shards ? dlc_shards_count(shards) : dlc_net_params(net);
}

dlc_full_param dlc_full_param_at(const dlc_session *session, const dlc_net *net,
                                 int32_t i) {
    const dlc_shards *shards = shards_of_net(session, net);
    if (shards) {
        const dlc_shard *shard = dlc_shards_at(shards, i);
        return (dlc_full_param){shard->name, &shard->shape, shard->is_buffer};
    }
    /* The arena has the last layers first; files have the first layers first. */
    const dlc_net_param *param = dlc_net_param_at(net, dlc_net_params(net) - 1 - i);
    return (dlc_full_param){param->name, &param->shape, param->is_buffer};
}

dlc_status dlc_full_params_index(const dlc_session *session, const dlc_net *net,
                                 dlc_names *names) {
    for (int32_t i = 0; i < dlc_full_param_count(session, net); i++)
        DLC_TRY(
            dlc_names_add(names, dlc_full_param_at(session, net, i).name, (size_t)i));
    return DLC_OK;
}

static dlc_status visit_state(const dlc_session *session, int32_t slot,
                              dlc_status (*visit)(void *context,
                                                  const dlc_full_tensor *tensor),
                              void *context) {
    const char *state = slot < 0 ? "" : dlc_solver_state_name(&session->solver, slot);
    for (int32_t i = 0; i < dlc_full_param_count(session, session->net); i++) {
        dlc_full_param param = dlc_full_param_at(session, session->net, i);
        if (slot >= 0 && param.is_buffer)
            continue;
        char *name = dlc_format("%s%s%s", state, slot < 0 ? "" : "/", param.name);
        if (!name)
            return DLC_ERR_NOMEM;
        const dlc_full_tensor tensor = {name, param.shape, i, slot};
        dlc_status status = visit(context, &tensor);
        dlc_free(name);
        DLC_TRY(status);
    }
    return DLC_OK;
}

dlc_status dlc_full_tensors_visit(const dlc_session *session,
                                  dlc_status (*visit)(void *context,
                                                      const dlc_full_tensor *tensor),
                                  void *context) {
    for (int32_t slot = -1; slot < dlc_solver_states(&session->solver); slot++)
        if (slot < 0 || dlc_solver_saves(&session->solver, slot))
            DLC_TRY(visit_state(session, slot, visit, context));
    return DLC_OK;
}

/* Rank 0 tells the others which state it takes next; -1: none. */
static dlc_status share_full_state(dlc_session *session, int32_t *state) {
    return dlc_full_state_is_sharded(session)
               ? dlc_job_broadcast(session->job, 0, state, sizeof *state)
               : DLC_OK;
}

/* The arena of a parameter's values (slot -1) or of a slot, on rank 0. */
static dlc_status find_param_arena(dlc_session *session, dlc_net *net, int32_t param,
                                   int32_t slot, float **arena) {
    *arena = slot < 0 ? dlc_net_param_arena(net, param) : NULL;
    if (slot < 0)
        return DLC_OK;
    DLC_TRY(share_full_state(session, &slot));
    *arena = dlc_full_state_arena(session, param, slot);
    return dlc_full_state_take(session, slot);
}

/* The other ranks: take the states that rank 0 takes. */
static dlc_status serve_states(dlc_session *session) {
    for (int32_t state = 0; dlc_full_state_is_sharded(session);) {
        DLC_TRY(share_full_state(session, &state));
        if (state < 0)
            break;
        DLC_TRY(dlc_full_state_take(session, state));
    }
    return DLC_OK;
}

size_t dlc_full_params_room(const dlc_session *session, const dlc_net *net) {
    const dlc_shards *shards = shards_of_net(session, net);
    size_t most = 0;
    if (shards)
        return dlc_shards_room(shards);
    for (int32_t i = 0; i < dlc_net_params(net); i++) {
        size_t count = (size_t)dlc_shape_count(&dlc_net_param_at(net, i)->shape);
        most = count > most ? count : most;
    }
    return most;
}

dlc_status dlc_full_param_export(dlc_session *session, int32_t i, int32_t slot,
                                 size_t at, float *plain, size_t room,
                                 const float **data, size_t *count) {
    dlc_net *net = session->net;
    int32_t param = dlc_net_params(net) - 1 - i;
    float *arena = NULL;
    if (session->shards)
        return dlc_shards_get(session->shards, i, slot, at, plain, room, data, count);
    DLC_TRY(find_param_arena(session, net, param, slot, &arena));
    *data = plain;
    *count = (size_t)dlc_shape_count(&dlc_net_param_at(net, param)->shape);
    return dlc_net_param_export(net, param, arena, plain);
}

dlc_status dlc_full_param_import(dlc_session *session, dlc_net *net, int32_t i,
                                 int32_t slot, const float *plain) {
    int32_t param = dlc_net_params(net) - 1 - i;
    float *arena = NULL;
    if (shards_of_net(session, net))
        return dlc_shards_put(session->shards, i, slot, plain);
    DLC_TRY(find_param_arena(session, net, param, slot, &arena));
    return dlc_net_param_import(net, param, plain, arena);
}

dlc_status dlc_full_params_end(dlc_session *session, const dlc_net *net,
                               dlc_status status) {
    dlc_shards *shards = shards_of_net(session, net);
    int32_t none = -1;
    if (net != session->net || (!shards && !dlc_full_state_is_sharded(session)))
        return status;
    char *cause = status == DLC_OK ? NULL : dlc_strdup(dlc_detail());
    dlc_status ended = DLC_OK;
    if (session->rank != 0)
        ended = shards ? dlc_shards_serve(shards) : serve_states(session);
    else
        ended = shards ? dlc_shards_end(shards) : share_full_state(session, &none);
    if (ended == DLC_OK)
        ended = dlc_full_state_end(session);
    if (cause)
        (void)dlc_fail(status, "%s", cause);
    dlc_free(cause);
    return status == DLC_OK ? ended : status;
}

dlc_status dlc_full_params_share(dlc_session *session, dlc_net *net, int with_slots) {
    const dlc_arenas *arenas = dlc_net_arenas(net);
    dlc_comm *comm = session->connection.comm;
    if (session->ranks == 1 || shards_of_net(session, net))
        return DLC_OK; /* every rank has received its shards */
    DLC_TRY(
        dlc_comm_broadcast(comm, 0, arenas->weights, arenas->count * sizeof(float)));
    if (arenas->buffer_count)
        DLC_TRY(dlc_comm_broadcast(comm, 0, arenas->buffers,
                                   arenas->buffer_count * sizeof(float)));
    if (arenas->frozen_count)
        DLC_TRY(dlc_comm_broadcast(comm, 0, arenas->frozen,
                                   arenas->frozen_count * sizeof(float)));
    with_slots = with_slots && !dlc_full_state_is_sharded(session);
    for (int32_t i = 0; with_slots && i < dlc_solver_states(&session->solver); i++)
        if (dlc_solver_saves(&session->solver, i))
            DLC_TRY(dlc_comm_broadcast(comm, 0,
                                       session->set[DLC_PARAMS_WHOLE].slot[i].base,
                                       arenas->count * sizeof(float)));
    return DLC_OK;
}

dlc_status dlc_broadcast_status(dlc_job *job, dlc_status status) {
    const int is_first = dlc_job_rank(job) == 0;
    struct {
        dlc_status status;
        char detail[1024];
    } notice = {.status = status};
    if (!is_first) /* this rank's own failure ends the job */
        DLC_TRY(status);
    if (is_first && status != DLC_OK)
        snprintf(notice.detail, sizeof notice.detail, "%s", dlc_detail());
    DLC_TRY(dlc_job_broadcast(job, 0, &notice, sizeof notice));
    return notice.status == DLC_OK ? DLC_OK
                                   : dlc_fail(notice.status, "%s", notice.detail);
}

/* ---- Running averages --------------------------------------------------------- */

/* The number of elements that each rank saves. If no rank has all parameters, only the
 * mean is saved. */
static size_t averages_of_rank(const dlc_session *session) {
    size_t each = 0;
    if (session->ranks == 1 || session->shards || !session->net)
        return 0;
    for (int32_t i = 0; i < dlc_net_params(session->net); i++) {
        const dlc_net_param *param = dlc_net_param_at(session->net, i);
        if (param->is_buffer && !param->is_frozen)
            each += (size_t)dlc_shape_count(&param->shape);
    }
    return each;
}

int32_t dlc_running_averages_ranks(const dlc_session *session) {
    return session->ranks - session->setup->servers;
}

/* Copies this rank's averages between the arena and `plain`. */
static dlc_status move_averages(dlc_session *session, float *plain, int to_arena) {
    dlc_net *net = session->net;
    for (int32_t i = 0; i < dlc_net_params(net); i++) {
        const dlc_net_param *param = dlc_net_param_at(net, i);
        float *arena = dlc_net_param_arena(net, i);
        if (!param->is_buffer || param->is_frozen)
            continue;
        DLC_TRY(to_arena ? dlc_net_param_import(net, i, plain, arena)
                         : dlc_net_param_export(net, i, arena, plain));
        plain += dlc_shape_count(&param->shape);
    }
    return DLC_OK;
}

/* A rank that has seen no samples saves the mean, in case it has some after resuming.
 */
static dlc_status gather_averages(dlc_session *session, dlc_running_averages *running) {
    float *mine = dlc_alloc(running->each, sizeof *mine);
    running->all = dlc_alloc((size_t)session->ranks * running->each,
                             sizeof *running->all);
    dlc_status status = mine && running->all ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = move_averages(session, mine, 0);
    if (status == DLC_OK)
        status = dlc_averages_begin(session, &running->own);
    if (status == DLC_OK && session->local_batch == 0)
        status = move_averages(session, mine, 0);
    if (status == DLC_OK)
        status = dlc_job_all_gather(session->job, mine, running->each * sizeof *mine,
                                    running->all);
    dlc_free(mine);
    return status;
}

dlc_status dlc_running_averages_begin(dlc_session *session,
                                      dlc_running_averages *running) {
    *running = (dlc_running_averages){.each = averages_of_rank(session),
                                      .own = {.size = sizeof running->own}};
    return running->each ? gather_averages(session, running)
                         : dlc_averages_mean(session);
}

dlc_status dlc_running_averages_end(dlc_session *session,
                                    dlc_running_averages *running) {
    dlc_status status = dlc_averages_end(session, &running->own);
    dlc_free(running->all);
    *running = (dlc_running_averages){0};
    return status;
}

/* Does the file hold running averages of this shape? Only rank 0 has a file; elsewhere
 * it is NULL. */
static int has_averages(const dlc_safetensors *file, const dlc_shape *shape) {
    const dlc_safetensor *found = file ? dlc_safetensors_get(
                                             file, DLC_RUNNING_AVERAGES_TENSOR)
                                       : NULL;
    return found && found->dtype == DLC_F32 && dlc_shape_equal(&found->shape, shape);
}

dlc_status dlc_running_averages_restore(dlc_session *session,
                                        const dlc_safetensors *file) {
    int32_t ranks = dlc_running_averages_ranks(session);
    size_t each = averages_of_rank(session), count = (size_t)ranks * each;
    const dlc_shape shape = {.rank = 2, .dims = {ranks, (int64_t)each}};
    void *all = NULL;
    if (!each)
        return DLC_OK;
    int there = has_averages(file, &shape);
    DLC_TRY(dlc_job_broadcast(session->job, 0, &there, sizeof there));
    if (!there)
        return DLC_OK;
    if (file) /* on rank 0 */
        DLC_TRY(dlc_safetensors_read(file, DLC_RUNNING_AVERAGES_TENSOR, DLC_F32, &shape,
                                     &all));
    else
        all = dlc_alloc(count, sizeof(float));
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_broadcast(session->job, 0, all, count * sizeof(float));
    if (status == DLC_OK && session->rank < ranks)
        status = move_averages(session, (float *)all + (size_t)session->rank * each, 1);
    dlc_free(all);
    return status;
}
