/* Says what an iteration does next, and runs passes of the whole net. */
#include "session/schedule.h"

#include "session/session.h"

/* ---- The whole net ------------------------------------------------------------- */

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
    const dlc_session *session = context;
    (void)micro_batch;
    DLC_TRY(dlc_net_backward(session->net,
                             dlc_session_share(session, session->local_batch),
                             pass->ready, pass->context));
    return pass->loss ? dlc_session_add_loss(session, session->local_batch, pass->loss)
                      : DLC_OK;
}

static const dlc_schedule_ops whole_net = {
    .next = next_of_net, .forward = forward_net, .backward = backward_net};

/* ---- The schedule -------------------------------------------------------------- */

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

/* Begins the next pass, or ends the iteration after the last. */
static dlc_work begin_pass(dlc_schedule *schedule) {
    if (++schedule->pass == schedule->passes)
        return DLC_WORK_UPDATE;
    schedule->done = 0;
    return schedule->ops ? DLC_WORK_READ : DLC_WORK_REDUCE;
}

/* The next forward or backward of the pass, or its end. */
static dlc_status continue_pass(dlc_schedule *schedule, dlc_work *work) {
    const dlc_schedule_ops *ops = schedule->ops;
    if (schedule->last == DLC_WORK_READ && ops->begin)
        DLC_TRY(ops->begin(schedule->context));
    DLC_TRY(ops->next(schedule->context, schedule->done, work, &schedule->micro_batch));
    schedule->done++;
    if (*work == DLC_WORK_DONE)
        *work = DLC_WORK_REDUCE;
    return DLC_OK;
}

dlc_status dlc_schedule_next(dlc_schedule *schedule, dlc_work *work) {
    dlc_work next = DLC_WORK_DONE;
    if (schedule->last == DLC_WORK_REDUCE)
        next = begin_pass(schedule);
    else if (schedule->last != DLC_WORK_UPDATE)
        DLC_TRY(continue_pass(schedule, &next));
    schedule->last = *work = next;
    return DLC_OK;
}
