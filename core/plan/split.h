/* Which layers to split over the ranks: "data" (every rank has the layer and computes
 * its own samples; gradients are summed) or "model" (every rank makes its share of the
 * outputs, for the samples of all ranks; activations are gathered). */
#ifndef DLC_PLAN_SPLIT_H
#define DLC_PLAN_SPLIT_H

#include "plan/exchange.h"

/* Of one layer; of light layers only `model`: do they go with split ones? Seconds are
 * of the layer by itself, with nothing hidden: computing, exchanging, updating. */
typedef struct dlc_plan_choice {
    int model;
    double data_bytes, model_bytes; /* that a rank sends in a step */
    double data_seconds, model_seconds;
} dlc_plan_choice;

typedef struct dlc_plan_split {
    int32_t split;      /* how many layers are */
    dlc_plan_step data; /* of the step with nothing split */
    dlc_plan_step mix;  /* of the step as chosen; the same where nothing is */
    double memory_data, memory_mix; /* bytes of a rank */
} dlc_plan_split;

/* Chooses for each layer, so that the step, with what backward hides, is shortest; of
 * equals the one with fewer splits. `samples`: of one rank. `choice` and `extra` have
 * one element a layer; `extra` is what dlc_plan_step_of takes for the choice, and may
 * be NULL. The layers are taken as a chain: a layer reads the one before it. */
dlc_status dlc_plan_split_of(const dlc_plan_layer *layer, size_t layers,
                             const dlc_plan_cluster *cluster,
                             const dlc_plan_exchange *exchange, double samples,
                             dlc_plan_choice *choice, dlc_plan_extra *extra,
                             dlc_plan_split *split);

/* What a choice that was made by hand (choice[i].model) costs: fills in the rest. */
dlc_status dlc_plan_split_cost(const dlc_plan_layer *layer, size_t layers,
                               const dlc_plan_cluster *cluster,
                               const dlc_plan_exchange *exchange, double samples,
                               dlc_plan_choice *choice, dlc_plan_extra *extra,
                               dlc_plan_split *split);

#endif
