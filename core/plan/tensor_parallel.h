/* Chooses which layers are data-parallel (every rank has the layer and computes its own
 * samples; gradients are all-reduced) and which are tensor-parallel (every rank
 * computes its channels of the output for the samples of all ranks; activations are
 * gathered). Called at the start of training (`parallel = auto`) and by `dlcore plan`.
 */
#ifndef DLC_PLAN_TENSOR_PARALLEL_H
#define DLC_PLAN_TENSOR_PARALLEL_H

#include "plan/exchange.h"

/* The choice for one layer. For light layers only `tensor` is set: whether they are
 * split with their neighbors. Seconds are those of the layer alone, without overlap:
 * computing, communicating, updating. */
typedef struct dlc_plan_layer_choice {
    int tensor;
    double data_bytes, tensor_bytes; /* that a rank sends in a step */
    double data_seconds, tensor_seconds;
} dlc_plan_layer_choice;

typedef struct dlc_plan_tensor_parallel {
    int32_t split;      /* number of tensor-parallel layers */
    dlc_plan_step data; /* the step with data parallelism only */
    dlc_plan_step mix;  /* the step as chosen; equals `data` if no layer is split */
    double memory_data, memory_mix; /* bytes per rank */
} dlc_plan_tensor_parallel;

/* Chooses for each layer so that the step, including overlap, is shortest; splits
 * nothing if that gains little. `samples` are per rank. `choice` and `extra` have one
 * element per layer; `extra` is what dlc_plan_step_of takes for the choice, and may be
 * NULL. Assumes that each layer reads the one before it. */
dlc_status dlc_plan_choose_tensor_parallel(
    const dlc_plan_layer *layer, size_t layers, const dlc_plan_cluster *cluster,
    const dlc_plan_exchange *exchange, double samples, dlc_plan_layer_choice *choice,
    dlc_plan_extra *extra, dlc_plan_tensor_parallel *result);

/* Computes the cost of a given choice (choice[i].tensor) and fills in the other fields.
 */
dlc_status dlc_plan_cost_tensor_parallel(const dlc_plan_layer *layer, size_t layers,
                                         const dlc_plan_cluster *cluster,
                                         const dlc_plan_exchange *exchange,
                                         double samples, dlc_plan_layer_choice *choice,
                                         dlc_plan_extra *extra,
                                         dlc_plan_tensor_parallel *result);

/* Bytes of a layer's gradients for each byte of activations that ranks exchange if they
 * divide it, with `samples` over all of them; 0: it cannot be divided. Above 1 dividing
 * it sends less. */
double dlc_plan_tensor_gain(const dlc_plan_layer *layer, double samples);

#endif
