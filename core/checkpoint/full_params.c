/* Reads and writes complete parameters, by way of dlc_shards if no rank has them all.
 */
#include "checkpoint/full_params.h"

#include <stdio.h>

#include "base/memory.h"
#include "session/full_state.h"

dlc_shards *dlc_full_param_shards(const dlc_session *session, const dlc_net *net) {
    return net == session->net ? session->shards : NULL;
}

int32_t dlc_full_param_count(const dlc_session *session, const dlc_net *net) {
    const dlc_shards *shards = dlc_full_param_shards(session, net);
    return shards ? dlc_shards_count(shards) : dlc_net_params(net);
}

dlc_full_param dlc_full_param_at(const dlc_session *session, const dlc_net *net,
                                 int32_t i) {
    const dlc_shards *shards = dlc_full_param_shards(session, net);
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

/* Rank 0 tells the others which state it takes next; -1: none. */
static dlc_status share_state(dlc_session *session, int32_t *state) {
    return dlc_full_state_is_sharded(session)
               ? dlc_job_broadcast(session->job, 0, state, sizeof *state)
               : DLC_OK;
}

/* The arena of a parameter's values (slot -1) or of a slot, on rank 0. */
static dlc_status find_arena(dlc_session *session, dlc_net *net, int32_t param,
                             int32_t slot, float **arena) {
    *arena = slot < 0 ? dlc_net_param_arena(net, param) : NULL;
    if (slot < 0)
        return DLC_OK;
    DLC_TRY(share_state(session, &slot));
    *arena = dlc_full_state_arena(session, param, slot);
    return dlc_full_state_take(session, slot);
}

/* The other ranks: take the states that rank 0 takes. */
static dlc_status serve_states(dlc_session *session) {
    for (int32_t state = 0; dlc_full_state_is_sharded(session);) {
        DLC_TRY(share_state(session, &state));
        if (state < 0)
            break;
        DLC_TRY(dlc_full_state_take(session, state));
    }
    return DLC_OK;
}

size_t dlc_full_params_room(const dlc_session *session, const dlc_net *net) {
    const dlc_shards *shards = dlc_full_param_shards(session, net);
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
    DLC_TRY(find_arena(session, net, param, slot, &arena));
    *data = plain;
    *count = (size_t)dlc_shape_count(&dlc_net_param_at(net, param)->shape);
    return dlc_net_param_export(net, param, arena, plain);
}

dlc_status dlc_full_param_import(dlc_session *session, dlc_net *net, int32_t i,
                                 int32_t slot, const float *plain) {
    int32_t param = dlc_net_params(net) - 1 - i;
    float *arena = NULL;
    if (dlc_full_param_shards(session, net))
        return dlc_shards_put(session->shards, i, slot, plain);
    DLC_TRY(find_arena(session, net, param, slot, &arena));
    return dlc_net_param_import(net, param, plain, arena);
}

dlc_status dlc_full_params_end(dlc_session *session, const dlc_net *net,
                               dlc_status status) {
    dlc_shards *shards = dlc_full_param_shards(session, net);
    int32_t none = -1;
    if (net != session->net || (!shards && !dlc_full_state_is_sharded(session)))
        return status;
    char *cause = status == DLC_OK ? NULL : dlc_strdup(dlc_detail());
    dlc_status ended = DLC_OK;
    if (session->rank != 0)
        ended = shards ? dlc_shards_serve(shards) : serve_states(session);
    else
        ended = shards ? dlc_shards_end(shards) : share_state(session, &none);
    if (ended == DLC_OK)
        ended = dlc_full_state_end(session);
    if (cause)
        (void)dlc_fail(status, "%s", cause);
    dlc_free(cause);
    return status == DLC_OK ? ended : status;
}

dlc_status dlc_broadcast_status(dlc_session *session, dlc_status status) {
    struct {
        dlc_status status;
        char detail[512];
    } notice = {.status = status};
    if (session->rank != 0) /* this rank's own failure ends the job */
        DLC_TRY(status);
    if (session->rank == 0 && status != DLC_OK)
        snprintf(notice.detail, sizeof notice.detail, "%s", dlc_detail());
    DLC_TRY(dlc_job_broadcast(session->job, 0, &notice, sizeof notice));
    return notice.status == DLC_OK ? DLC_OK
                                   : dlc_fail(notice.status, "%s", notice.detail);
}
