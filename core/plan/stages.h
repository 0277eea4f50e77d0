/* Where to cut a net into stages that work one behind the other, and what the pipeline
 * then does. */
#ifndef DLC_PLAN_STAGES_H
#define DLC_PLAN_STAGES_H

#include "plan/cost.h"

typedef struct dlc_plan_stage {
    size_t first, end;        /* layers [first, end) */
    double forward, backward; /* seconds of one sub-batch */
    double send;              /* seconds of what crosses behind it, one way */
    double send_bytes;        /* of a sub-batch */
    double parameter_bytes;
    double memory_bytes; /* weights, copies, activations of what is under way in it */
    double busy;         /* seconds of the step that it works */
} dlc_plan_stage;

typedef struct dlc_plan_pipeline {
    double slowest; /* seconds of a sub-batch in the slowest stage, both ways */
    double seconds; /* of a step: all sub-batches through all stages and back */
    double bubble;  /* the share of the step in which stages stand still, on average */
    double memory_bytes; /* of the stage that needs most */
} dlc_plan_pipeline;

/* Cuts the layers into `stages` (1 to as many as there are layers) so that the slowest
 * stage, with what crosses behind it, is as fast as can be; of equals the earlier cut.
 * `samples`: of one sub-batch. `link` joins neighbours. `stage` gets `stages` elements:
 * first, end, forward, backward, send, parameter_bytes. */
dlc_status dlc_plan_stages_cut(const dlc_plan_layer *layer, size_t layers,
                               const dlc_plan_link *link, double samples,
                               int32_t stages, dlc_plan_stage *stage);

/* The same for stages whose first layers are given (first and end are set). */
dlc_status dlc_plan_stages_measure(const dlc_plan_layer *layer, size_t layers,
                                   const dlc_plan_link *link, double samples,
                                   int32_t stages, dlc_plan_stage *stage);

/* Runs `sub_batches` through the stages by one-forward-one-backward: stage s of k keeps
 * k - s sub-batches at most under way. Fills in memory_bytes and busy. `copies` as in
 * dlc_plan_cluster. */
dlc_status dlc_plan_pipeline_run(const dlc_plan_layer *layer, double samples,
                                 int32_t sub_batches, double copies, int32_t stages,
                                 dlc_plan_stage *stage, dlc_plan_pipeline *pipeline);

#endif
