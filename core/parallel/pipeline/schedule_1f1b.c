/* Chooses the next step of a stage: backward if possible, else forward within the
 * bound. */
#include "parallel/pipeline/schedule_1f1b.h"

int32_t dlc_schedule_1f1b_max_in_flight(const dlc_schedule_1f1b *schedule) {
    int32_t most = schedule->stages - schedule->stage;
    return most < schedule->micro_batches ? most : schedule->micro_batches;
}

int32_t dlc_schedule_1f1b_in_flight(const dlc_schedule_1f1b *schedule) {
    return schedule->forward - schedule->backward;
}

dlc_schedule_step dlc_schedule_1f1b_next(const dlc_schedule_1f1b *schedule,
                                         int can_forward, int can_backward) {
    int32_t in_flight = dlc_schedule_1f1b_in_flight(schedule);
    int may_forward = schedule->forward < schedule->micro_batches &&
                      in_flight < dlc_schedule_1f1b_max_in_flight(schedule);
    if (schedule->backward == schedule->micro_batches)
        return DLC_SCHEDULE_DONE;
    if (in_flight > 0 && can_backward && !(schedule->fixed_order && may_forward))
        return DLC_SCHEDULE_BACKWARD;
    return may_forward && can_forward ? DLC_SCHEDULE_FORWARD : DLC_SCHEDULE_WAIT;
}

void dlc_schedule_1f1b_done(dlc_schedule_1f1b *schedule, dlc_schedule_step step) {
    schedule->forward += step == DLC_SCHEDULE_FORWARD;
    schedule->backward += step == DLC_SCHEDULE_BACKWARD;
}

double dlc_schedule_1f1b_bubble(int32_t stages, int32_t micro_batches) {
    return (double)(stages - 1) / (double)(micro_batches + stages - 1);
}
