/* Averages the weights of a session, and lends the averages to tests. */
#include "session/ema.h"

static dlc_ema make(const dlc_session *session, const dlc_param_set *set) {
    const dlc_arenas *arenas = set->arenas;
    return (dlc_ema){.ops = session->device_ops,
                     .device = session->device,
                     .queue = session->queue,
                     .decay = session->solver.ema,
                     .count = arenas->count - arenas->control_words,
                     .shards = dlc_exchanger_table(set->exchanger),
                     .weights = arenas->weights,
                     .average = set->slot[session->solver.slots].base,
                     .gradients = arenas->gradients};
}

void dlc_session_ema_open(dlc_session *session) {
    if (session->solver.ema <= 0)
        return;
    DLC_EACH_PARAM_SET(session, set)
    set->ema = make(session, set);
}

dlc_status dlc_session_ema_begin(const dlc_session *session) {
    DLC_EACH_PARAM_SET(session, set)
    DLC_TRY(dlc_ema_begin(&set->ema));
    return DLC_OK;
}

static int is_tested(const dlc_session *session) {
    return session->solver.ema > 0 &&
           dlc_settings_get_bool(session->setup->train_settings, "test_ema");
}

/* A peer may still be reading weights that it has not gathered yet. */
dlc_status dlc_session_ema_test_begin(const dlc_session *session) {
    if (!is_tested(session))
        return DLC_OK;
    DLC_TRY(dlc_job_barrier(session->job));
    DLC_EACH_PARAM_SET(session, set) {
        DLC_TRY(dlc_ema_put(&set->ema));
        DLC_TRY(dlc_exchanger_all_gather(set->exchanger, set->ema.weights));
    }
    return DLC_OK;
}

dlc_status dlc_session_ema_test_end(const dlc_session *session) {
    if (!is_tested(session))
        return DLC_OK;
    DLC_TRY(dlc_job_barrier(session->job));
    DLC_EACH_PARAM_SET(session, set)
    DLC_TRY(dlc_ema_put_back(&set->ema));
    return DLC_OK;
}
