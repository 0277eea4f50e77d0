/* Says what an iteration does next. */
#include "session/schedule.h"

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
