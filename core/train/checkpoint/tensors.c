/* See tensors.h. */
#include "train/checkpoint/tensors.h"

#include <stdio.h>

#include "base/memory.h"

dlc_pieces *dlc_whole_pieces(const dlc_session *session, const dlc_net *net) {
    return net == session->net ? session->pieces : NULL;
}

int32_t dlc_whole_count(const dlc_session *session, const dlc_net *net) {
    const dlc_pieces *pieces = dlc_whole_pieces(session, net);
    return pieces ? dlc_pieces_count(pieces) : dlc_net_params(net);
}

dlc_whole_param dlc_whole_at(const dlc_session *session, const dlc_net *net,
                             int32_t i) {
    const dlc_pieces *pieces = dlc_whole_pieces(session, net);
    if (pieces) {
        const dlc_piece *piece = dlc_pieces_at(pieces, i);
        return (dlc_whole_param){piece->name, &piece->shape, piece->is_buffer};
    }
    /* First layers first reads better than the arena's order. */
    const dlc_net_param *param = dlc_net_param_at(net, dlc_net_params(net) - 1 - i);
    return (dlc_whole_param){param->name, &param->shape, param->is_buffer};
}

/* Its values (slot -1), or those of a slot, where every rank has all. */
static float *arena_of(const dlc_session *session, dlc_net *net, int32_t param,
                       int32_t slot) {
    return slot < 0 ? dlc_net_param_arena(net, param) : session->slot[slot].base;
}

dlc_status dlc_whole_export(dlc_session *session, int32_t i, int32_t slot,
                            float *plain) {
    dlc_net *net = session->net;
    int32_t param = dlc_net_params(net) - 1 - i;
    if (session->pieces)
        return dlc_pieces_get(session->pieces, i, slot, plain);
    return dlc_net_param_export(net, param, arena_of(session, net, param, slot), plain);
}

dlc_status dlc_whole_import(dlc_session *session, dlc_net *net, int32_t i, int32_t slot,
                            const float *plain) {
    int32_t param = dlc_net_params(net) - 1 - i;
    if (dlc_whole_pieces(session, net))
        return dlc_pieces_put(session->pieces, i, slot, plain);
    return dlc_net_param_import(net, param, plain, arena_of(session, net, param, slot));
}

dlc_status dlc_whole_end(dlc_session *session, const dlc_net *net, dlc_status status) {
    dlc_pieces *pieces = dlc_whole_pieces(session, net);
    if (!pieces)
        return status;
    if (session->rank != 0)
        return dlc_pieces_serve(pieces);
    char *cause = status == DLC_OK ? NULL : dlc_strdup(dlc_detail());
    dlc_status ended = dlc_pieces_end(pieces);
    if (cause)
        (void)dlc_fail(status, "%s", cause);
    dlc_free(cause);
    return status == DLC_OK ? ended : status;
}

int dlc_whole_slot_is_saved(const dlc_session *session, int32_t slot) {
    return (session->needs.slot_saved >> slot & 1) != 0;
}

dlc_status dlc_whole_share_status(dlc_session *session, dlc_status status) {
    struct {
        dlc_status status;
        char detail[512];
    } news = {.status = status};
    if (session->rank != 0) /* its own failure ends the job */
        DLC_TRY(status);
    if (session->rank == 0 && status != DLC_OK)
        snprintf(news.detail, sizeof news.detail, "%s", dlc_detail());
    DLC_TRY(dlc_job_broadcast(session->job, 0, &news, sizeof news));
    return news.status == DLC_OK ? DLC_OK : dlc_fail(news.status, "%s", news.detail);
}
