/* What the planner of tensor parallelism works with; shared by plan.c (which layers)
 * and plan_schedule.c (how they get their samples). */
#ifndef DLC_PARALLEL_TENSOR_PLANNING_H
#define DLC_PARALLEL_TENSOR_PLANNING_H

#include "parallel/tensor/tensor_parallel.h"
#include "plan/layers.h"
#include "plan/tensor_parallel.h"
#include "session/cluster_costs.h"

typedef struct planning {
    dlc_session *session;
    dlc_tensor_parallel *tensor;
    dlc_shape sample;
    int64_t batch;   /* of a rank, approximately */
    int is_implied;  /* every layer may be split, for the bytes it would send */
    int is_measured; /* the interconnect, by the ranks, which are connected */
    /* The layers of the training net, in order. */
    size_t layers;
    dlc_plan_layer *all;           /* own; one for each layer of the graph */
    dlc_plan_layer *layer;         /* own */
    int32_t *node;                 /* own; their numbers in the graph */
    dlc_plan_layer_choice *choice; /* own */
    dlc_cluster_costs measured;
} planning;

/* Collective. Takes session, tensor and what is to be done from *p. On error there is
 * nothing to close. */
dlc_status dlc_tensor_parallel_planning_open(planning *p);
void dlc_tensor_parallel_planning_close(planning *p);

/* Builds an outline of the net that is split like this; NULL: not split. */
dlc_status dlc_tensor_parallel_outline(const planning *p,
                                       const dlc_net_tensor_parallel *split,
                                       dlc_net **net);

/* plan.c: decides which layers with `parallel = auto` are split; chosen[i] is for layer
 * i of the graph. */
dlc_status dlc_tensor_parallel_choose_layers(planning *p, char *chosen);
/* Splits the layers whose activations are fewer bytes than their gradients, or the one
 * that comes nearest to it. The same on all ranks, without measuring. */
void dlc_tensor_parallel_choose_by_bytes(const planning *p);
/* Collective; plan_schedule.c: chooses the tensor_schedule once it is known which
 * layers are split. `first`: the first layer of the group. */
dlc_status dlc_tensor_parallel_plan_schedule(planning *p, int32_t first,
                                             dlc_tensor_schedule *schedule);

#endif
