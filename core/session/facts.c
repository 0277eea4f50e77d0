/* What others ask a session: what the job allows, and what its samples weigh. */
#include "session/loss_shares.h"
#include "session/session.h"

dlc_axis *dlc_axis_in_use(const dlc_session *session, dlc_axis *axis) {
    dlc_axis *end = session->axis + session->axes;
    while (axis < end && !axis->in_use)
        axis++;
    return axis < end ? axis : NULL;
}

int dlc_session_allows(const dlc_session *session, unsigned what) {
    DLC_EACH_AXIS(session, axis, rules_out & what)
    return 0;
    return 1;
}

dlc_queue *dlc_session_async_queue(const dlc_session *session) {
    return dlc_session_allows(session, DLC_ALLOW_QUEUE) ? session->queue : NULL;
}

double dlc_session_waited(const dlc_session *session) {
    double seconds = 0;
    DLC_EACH_AXIS(session, axis, waited)
    seconds += axis->ops->waited(axis);
    return seconds;
}

int dlc_session_may_shard(const dlc_session *session) {
    return dlc_session_allows(session, DLC_ALLOW_SHARDS);
}

/* Gradients that may overflow must be checked as a whole. */
int dlc_session_needs_all_gradients(const dlc_session *session) {
    return session->loss_scale.base || dlc_solver_needs_whole_tensors(&session->solver);
}

int dlc_session_may_fuse(const dlc_session *session) {
    return dlc_session_may_shard(session) && !dlc_session_needs_all_gradients(session);
}

int dlc_session_may_defer(const dlc_session *session) {
    return session->needs.deferred_update &&
           dlc_session_allows(session, DLC_ALLOW_OVERLAP) &&
           !dlc_session_needs_all_gradients(session);
}

dlc_update_target dlc_session_update_target(const dlc_session *session,
                                            const dlc_arenas *arenas) {
    return (dlc_update_target){.solver = &session->solver,
                               .device_ops = session->device_ops,
                               .device = session->device,
                               .queue = session->queue,
                               .segment = arenas->segment,
                               .segments = arenas->segments,
                               .count = arenas->count - arenas->control_words};
}

int64_t dlc_session_samples(const dlc_session *session) {
    return session->global_batch * session->accumulation_steps;
}

dlc_status dlc_session_add_loss(const dlc_session *session, int64_t batch,
                                int64_t first, int64_t samples, double *loss) {
    for (int32_t i = 0, l = 0; i < dlc_net_metrics(session->net); i++) {
        dlc_metric metric;
        DLC_TRY(dlc_net_metric(session->net, i, &metric));
        double share = metric.is_loss
                           ? dlc_loss_share(session, l++, batch, first, samples)
                           : 0;
        if (metric.is_loss && metric.count > 0)
            *loss += share * metric.weight * metric.sum / metric.count;
    }
    return DLC_OK;
}

int dlc_session_part(const dlc_session *session, dlc_rank_part *part) {
    int is_part = 0;
    part->ranks = session->ranks;
    part->samples = session->local_batch;
    DLC_EACH_AXIS(session, axis, part) {
        axis->ops->part(axis, part);
        is_part = 1;
    }
    return is_part;
}
