/* Chooses the next step of a stage: backward if possible, else forward within the
 * bound. */
#include "plan/work_order.h"

int32_t dlc_work_order_max_in_flight(const dlc_work_order *order) {
    int32_t most = order->stages - order->stage;
    return most < order->micro_batches ? most : order->micro_batches;
}

int32_t dlc_work_order_in_flight(const dlc_work_order *order) {
    return order->forward - order->backward;
}

dlc_work dlc_work_order_next(const dlc_work_order *order, int can_forward,
                             int can_backward) {
    int32_t in_flight = dlc_work_order_in_flight(order);
    int may_forward = order->forward < order->micro_batches &&
                      in_flight < dlc_work_order_max_in_flight(order);
    if (order->backward == order->micro_batches)
        return DLC_WORK_DONE;
    if (in_flight > 0 && can_backward && !(order->fixed_order && may_forward))
        return DLC_WORK_BACKWARD;
    return may_forward && can_forward ? DLC_WORK_FORWARD : DLC_WORK_WAIT;
}

void dlc_work_order_done(dlc_work_order *order, dlc_work work) {
    order->forward += work == DLC_WORK_FORWARD;
    order->backward += work == DLC_WORK_BACKWARD;
}

double dlc_work_order_bubble(int32_t stages, int32_t micro_batches) {
    return (double)(stages - 1) / (double)(micro_batches + stages - 1);
}
