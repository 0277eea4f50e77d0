/* What others ask a session: what the job allows, what its samples weigh, and to wait
 * for its queue. */
#include "session/session.h"

#include <time.h>

#include "plugin/answers.h"
#include "session/loss_shares.h"
#include "session/param_sets.h"

int dlc_session_allows(const dlc_session *session, unsigned what) {
    return (session->rules_out & what) == 0;
}

dlc_queue *dlc_session_async_queue(const dlc_session *session) {
    return dlc_session_allows(session, DLC_ALLOW_QUEUE) ? session->queue : NULL;
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

dlc_status dlc_session_explain(const dlc_session *session, dlc_status status) {
    return status == DLC_ERR_DEVICE && session->device_ops
               ? dlc_answer_explain(session->device_ops, "a copy, kernel or event",
                                    status)
               : status;
}

/* ---- Waiting for the queue --------------------------------------------------- */

/* Time between polls of a queue that may be waiting for a peer. */
#define POLL_INTERVAL_NS 20000

static void poll_peers(const dlc_session *session) {
    DLC_EACH_PARAM_SET(session, set)
    if (set->exchanger && dlc_exchanger_is_stream_ordered(set->exchanger))
        (void)dlc_comm_poll(set->comm);
    (void)dlc_layer_group_poll(&session->layer_group);
}

/* Transports abandon work that waits for a dead peer only when polled, so they are
 * polled meanwhile. */
void dlc_session_drain(const dlc_session *session) {
    const struct timespec pause = {.tv_nsec = POLL_INTERVAL_NS};
    dlc_event *idle = NULL;
    int done = 0;
    if (!session->queue)
        return;
    const dlc_device_queue_ops *queues = session->device_ops->queues;
    /* The detail sentence of an error is kept. */
    if (queues->event_open(session->device, &idle) != DLC_OK || !idle)
        return;
    dlc_status status = queues->event_record(session->device, session->queue, idle);
    while (status == DLC_OK && !done) {
        poll_peers(session);
        status = queues->event_done(session->device, idle, &done);
        if (status == DLC_OK && !done)
            (void)nanosleep(&pause, NULL);
    }
    queues->event_close(session->device, idle);
}

dlc_status dlc_session_wait(const dlc_session *session, dlc_event *event) {
    const dlc_device_ops *ops = session->device_ops;
    const struct timespec pause = {.tv_nsec = POLL_INTERVAL_NS};
    int done = 0;

    if (!dlc_param_sets_are_stream_ordered(session))
        return ops->queues->event_sync(session->device, event);
    for (;;) {
        DLC_TRY(ops->queues->event_done(session->device, event, &done));
        if (done)
            return DLC_OK;
        DLC_TRY(dlc_param_sets_poll(session));
        DLC_TRY(dlc_layer_group_poll(&session->layer_group));
        (void)nanosleep(&pause, NULL);
    }
}
