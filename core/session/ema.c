/* Averages the weights of a session, and lends the averages to tests. */
#include "session/ema.h"

static dlc_ema make(const dlc_session *session, const dlc_arenas *arenas,
                    const dlc_exchange *shards, const dlc_memory *slot) {
    return (dlc_ema){.ops = session->device_ops,
                     .device = session->device,
                     .queue = session->queue,
                     .decay = session->solver.ema,
                     .count = arenas->count - arenas->control_words,
                     .shards = shards,
                     .weights = arenas->weights,
                     .average = slot[session->solver.slots].base,
                     .gradients = arenas->gradients};
}

void dlc_session_ema_open(dlc_session *session) {
    if (session->solver.ema <= 0)
        return;
    session->ema = make(session, dlc_net_arenas(session->net),
                        dlc_exchanger_table(session->exchanger), session->slot);
    session->sharded.ema = make(session, dlc_net_sharded_arenas(session->net), NULL,
                                session->sharded.slot);
}

dlc_status dlc_session_ema_begin(const dlc_session *session) {
    DLC_TRY(dlc_ema_begin(&session->ema));
    return dlc_ema_begin(&session->sharded.ema);
}

static int is_tested(const dlc_session *session) {
    return session->ema.decay > 0 &&
           dlc_settings_get_bool(session->setup->train_settings, "test_ema");
}

/* A peer may still be reading weights that it has not gathered yet. */
dlc_status dlc_session_ema_test_begin(const dlc_session *session) {
    if (!is_tested(session))
        return DLC_OK;
    DLC_TRY(dlc_job_barrier(session->job));
    DLC_TRY(dlc_ema_put(&session->ema));
    DLC_TRY(dlc_exchanger_all_gather(session->exchanger, session->ema.weights));
    return dlc_ema_put(&session->sharded.ema);
}

dlc_status dlc_session_ema_test_end(const dlc_session *session) {
    if (!is_tested(session))
        return DLC_OK;
    DLC_TRY(dlc_job_barrier(session->job));
    DLC_TRY(dlc_ema_put_back(&session->ema));
    return dlc_ema_put_back(&session->sharded.ema);
}
