/* What the planner knows when it chooses what to split, and how. See plan.c, way.c. */
#ifndef DLC_TRAIN_SPLIT_PLANNING_H
#define DLC_TRAIN_SPLIT_PLANNING_H

#include "plan/split.h"
#include "train/measure.h"

struct dlc_session;

typedef struct planning {
    struct dlc_session *session;
    dlc_shape sample;
    int64_t batch; /* of a rank, about */
    /* The layers that take part in training, in a row. */
    size_t layers;
    dlc_plan_layer *all;     /* own; one a layer of the graph */
    dlc_plan_layer *layer;   /* own */
    int32_t *node;           /* own; where they stand in the graph */
    dlc_plan_choice *choice; /* own */
    dlc_measured measured;
} planning;

/* Measures; all ranks together. */
dlc_status dlc_split_planning_open(struct dlc_session *session, planning *p);
void dlc_split_planning_close(planning *p);

/* Of a net that is split so; NULL: not at all. */
dlc_status dlc_split_outline(const planning *p, const dlc_net_split *split,
                             dlc_net **net);

/* plan.c: for layers that leave it open, as the planner finds best; chosen[i]: of layer
 * i. */
dlc_status dlc_split_plan(planning *p, char *chosen);
/* way.c: when it is known which layers are split. `first`: of the group; all ranks
 * together. */
dlc_status dlc_split_plan_way(planning *p, int32_t first, dlc_split_way *way);

#endif
