/* Updates the sharded parameters of a session. */
#include "session/sharded.h"

dlc_status dlc_sharded_open(dlc_session *session) {
    return dlc_slots_open(&session->solver, session->device_ops, session->device,
                          dlc_net_sharded_arenas(session->net)->count,
                          session->sharded.slot);
}

/* One bucket: these gradients are complete at the end of backward. */
static dlc_status open_exchange(dlc_session *session, const dlc_arenas *arenas) {
    const size_t begin[] = {0, arenas->count};
    dlc_exchange_args args = {.comm = session->sharded.comm,
                              .device_ops = session->device_ops,
                              .device = session->device,
                              .queue = session->queue,
                              .gradients = arenas->gradients,
                              .weights = arenas->weights,
                              .begin = begin,
                              .buckets = 1};
    return dlc_exchanger_open(&args, &session->sharded.exchanger);
}

dlc_status dlc_sharded_start(dlc_session *session) {
    const dlc_arenas *arenas = dlc_net_sharded_arenas(session->net);
    dlc_update_target target = dlc_session_update_target(session, arenas);
    target.peers = &session->model_norms.sharded;
    target.loss_scale = session->loss_scale.base;
    if (!arenas->count)
        return DLC_OK;
    if (session->sharded.comm)
        DLC_TRY(open_exchange(session, arenas));
    dlc_consistency_args args = dlc_session_model_args(
        session, arenas, session->sharded.slot, &session->sharded.replicas);
    args.parameters = "rows";
    if (session->sharded.exchanger)
        args.exchange = dlc_exchanger_table(session->sharded.exchanger);
    /* Steps by the norm of all gradients are made once that is known. */
    session->sharded.update.is_late = session->needs.allows_skew &&
                                      dlc_session_needs_all_gradients(session);
    return dlc_local_update_open(&target, session->consistency_ops, &args,
                                 session->solver.accumulation_steps *
                                     session->micro_batches,
                                 &session->sharded.update);
}

dlc_status dlc_sharded_ready(dlc_session *session, int32_t index) {
    return dlc_local_update_ready(&session->sharded.update, session->iteration, index);
}

dlc_status dlc_sharded_finish(dlc_session *session) {
    DLC_TRY(dlc_local_update_finish(&session->sharded.update, session->iteration));
    return dlc_ema_update(&session->sharded.ema, 0, SIZE_MAX);
}

void dlc_sharded_close(dlc_session *session) {
    dlc_p2p_cancel(session->sharded.replicas.p2p);
    dlc_local_update_close(&session->sharded.update);
    dlc_replicas_close(&session->sharded.replicas);
    dlc_exchanger_close(session->sharded.exchanger);
    dlc_slots_close(session->device_ops, session->device, session->sharded.slot);
}
