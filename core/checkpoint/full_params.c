/* Reads and writes complete parameters, by way of dlc_shards if no rank has them all.
 */
#include "checkpoint/full_params.h"

#include <stdio.h>

#include "base/memory.h"

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

/* The arena of a parameter's values (slot -1) or of a slot, if every rank has all. */
static float *arena_of(const dlc_session *session, dlc_net *net, int32_t param,
                       int32_t slot) {
    return slot < 0 ? dlc_net_param_arena(net, param) : session->slot[slot].base;
}

dlc_status dlc_full_param_export(dlc_session *session, int32_t i, int32_t slot,
                                 float *plain) {
    dlc_net *net = session->net;
    int32_t param = dlc_net_params(net) - 1 - i;
    if (session->shards)
        return dlc_shards_get(session->shards, i, slot, plain);
    return dlc_net_param_export(net, param, arena_of(session, net, param, slot), plain);
}

dlc_status dlc_full_param_import(dlc_session *session, dlc_net *net, int32_t i,
                                 int32_t slot, const float *plain) {
    int32_t param = dlc_net_params(net) - 1 - i;
    if (dlc_full_param_shards(session, net))
        return dlc_shards_put(session->shards, i, slot, plain);
    return dlc_net_param_import(net, param, plain, arena_of(session, net, param, slot));
}

dlc_status dlc_full_params_end(dlc_session *session, const dlc_net *net,
                               dlc_status status) {
    dlc_shards *shards = dlc_full_param_shards(session, net);
    if (!shards)
        return status;
    if (session->rank != 0)
        return dlc_shards_serve(shards);
    char *cause = status == DLC_OK ? NULL : dlc_strdup(dlc_detail());
    dlc_status ended = dlc_shards_end(shards);
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
