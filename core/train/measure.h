/* What the planner is told of the ranks of a job before it trains: how they are joined,
 * as measured, and how fast they compute, as guessed from the speed of their memory.
 */
#ifndef DLC_TRAIN_MEASURE_H
#define DLC_TRAIN_MEASURE_H

#include "comm/pace.h"
#include "plan/exchange.h"
#include "plan/layers.h"

struct dlc_session;

typedef struct dlc_measured {
    dlc_plan_cluster cluster;
    dlc_pace pace;
    dlc_plan_speed speed;
} dlc_measured;

/* When ranks are joined, all together; all get the same numbers, those of the slowest.
 */
dlc_status dlc_measure(const struct dlc_session *session, dlc_measured *measured);

#endif
