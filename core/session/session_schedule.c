/* Runs passes of the whole net, unless an axis has a schedule of its own. */
#include "session/session_schedule.h"
#include "session/loss_shares.h"

static dlc_status next_of_net(void *context, int32_t done, dlc_work *work,
                              int32_t *micro_batch) {
    (void)context;
    *micro_batch = 0;
    *work = done == 0   ? DLC_WORK_FORWARD
            : done == 1 ? DLC_WORK_BACKWARD
                        : DLC_WORK_DONE;
    return DLC_OK;
}

static dlc_status forward_net(void *context, const dlc_pass *pass,
                              int32_t micro_batch) {
    const dlc_session *session = context;
    (void)micro_batch;
    return dlc_net_forward(session->net, pass->iteration, session->local_offset);
}

/* The loss is read after backward, in which some layers may still produce it. */
static dlc_status backward_net(void *context, const dlc_pass *pass,
                               int32_t micro_batch) {
    dlc_session *session = context;
    (void)micro_batch;
    dlc_loss_shares_set(session, pass->iteration, 0, session->local_batch);
    DLC_TRY(dlc_net_backward(session->net, 1, pass->ready, pass->context));
    return pass->loss ? dlc_session_add_loss(session, pass->iteration, 0,
                                             session->local_batch, pass->loss)
                      : DLC_OK;
}

static const dlc_schedule_ops whole_net = {
    .next = next_of_net, .forward = forward_net, .backward = backward_net};

dlc_schedule dlc_schedule_of(dlc_session *session) {
    dlc_schedule made = {.ops = &whole_net,
                         .context = session,
                         .passes = (int32_t)session->accumulation_steps,
                         .last = DLC_WORK_REDUCE,
                         .pass = -1};
    DLC_EACH_AXIS(session, axis, schedule) {
        made.ops = axis->ops->schedule;
        made.context = axis->state;
    }
    if (session->local_batch == 0)
        made.ops = NULL;
    return made;
}
