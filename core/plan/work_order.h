/* The order of work in a pipeline, 1F1B: forward or backward of which micro-batch a
 * stage runs next. The jobs follow it, and the planner simulates it.
 *
 * One forward, one backward (Narayanan et al. 2019, "PipeDream", 3.2; with a flush at
 * the end of each iteration, Narayanan et al. 2021, "Memory-efficient pipeline-parallel
 * DNN training", 3): a stage runs backward whenever it can, so that a micro-batch's
 * memory is free again soon, and forward only while fewer than stages - stage
 * micro-batches are in flight, which is as many as it takes to keep the last stage
 * busy. So memory is bounded by the number of stages, not of micro-batches, and with
 * equal stages (stages - 1) / (micro_batches + stages - 1) of the time is lost in
 * bubbles.
 *
 * Ranks that work on a micro-batch together, as a tensor group does, or a stage whose
 * layers reduce over its replicas, must take the same steps in the same order. Then the
 * order is fixed: forward while the bound allows, otherwise backward.
 *
 * Micro-batches run forward, and backward, in the order of their numbers, so gradients
 * are accumulated in a fixed order whatever arrives first. */
#ifndef DLC_PLAN_WORK_ORDER_H
#define DLC_PLAN_WORK_ORDER_H

#include <stdint.h>

typedef enum dlc_work {
    DLC_WORK_WAIT, /* nothing is ready */
    DLC_WORK_FORWARD,
    DLC_WORK_BACKWARD,
    DLC_WORK_DONE, /* all micro-batches are done */
} dlc_work;

typedef struct dlc_work_order {
    int32_t stage, stages, micro_batches;
    int fixed_order; /* the order of steps must not depend on what arrives first */
    int32_t forward,
        backward; /* the next micro-batch of each direction; start with 0 */
} dlc_work_order;

/* How many micro-batches may be in flight in this stage. */
int32_t dlc_work_order_max_in_flight(const dlc_work_order *order);
/* How many are in flight now. */
int32_t dlc_work_order_in_flight(const dlc_work_order *order);

/* The next step. `can_forward`, `can_backward`: are the inputs, or the gradients, of
 * the next micro-batch there? */
dlc_work dlc_work_order_next(const dlc_work_order *order, int can_forward,
                             int can_backward);
/* Records that a step was done. */
void dlc_work_order_done(dlc_work_order *order, dlc_work work);

/* The fraction of the time that equal stages are idle. */
double dlc_work_order_bubble(int32_t stages, int32_t micro_batches);

#endif
