/* Chooses where to cut a net into pipeline stages, and simulates the pipeline. Called
 * at the start of training with stages, and by `dlcore plan`. */
#ifndef DLC_PLAN_STAGES_H
#define DLC_PLAN_STAGES_H

#include "plan/cost.h"

typedef struct dlc_plan_stage {
    size_t first, end;        /* layers [first, end) */
    int32_t ranks;            /* that split its samples */
    double forward, backward; /* seconds per micro-batch */
    double send;       /* seconds to send its boundary tensors to the next stage */
    double send_bytes; /* of these, per micro-batch, that a rank sends */
    double parameter_bytes;
    double memory_bytes; /* weights, copies, activations of micro-batches in flight */
    double busy;         /* seconds of the step in which it computes */
} dlc_plan_stage;

typedef struct dlc_plan_pipeline {
    double slowest; /* seconds per micro-batch of the slowest stage, forward and
                       backward */
    double seconds; /* of a step: all micro-batches through all stages and back */
    double bubble;  /* the fraction of the step in which stages are idle, on average */
    double memory_bytes; /* of the stage that needs most */
} dlc_plan_pipeline;

/* The samples of each of `count` micro-batches; the last one may have fewer. 0: not
 * each micro-batch has a sample for each of `ranks`, as many as a stage has at most. */
static inline int64_t dlc_plan_micro_batch(int64_t samples, int64_t count,
                                           int64_t ranks) {
    int64_t each = (samples + count - 1) / count;
    return count <= samples && each >= ranks ? each : 0;
}

/* The work of a pass through a pipeline, in time: all stages with the first
 * micro-batch, and the slowest one with the others. `work`: of each stage and
 * micro-batch, which its ranks split; NULL: it has one. */
double dlc_plan_stages_work(const double *work, const int32_t *stage_ranks,
                            int32_t stages, int64_t micro_batches);

/* Makes layers those of one of several micro-batches: backward also adds the gradients
 * to those of the other micro-batches, so many bytes per second; 0: in no time. */
void dlc_plan_stages_accumulate(dlc_plan_layer *layer, size_t layers, double bandwidth);

/* Cuts the layers into `stages` (1 to `layers`) so that the slowest stage, including
 * its sends, is as fast as possible; of equal cuts the earliest. `samples` are per
 * micro-batch, which the ranks of a stage split: `stage_ranks` says how many, NULL:
 * one. `link` connects neighboring stages. Fills in first, end, ranks, forward,
 * backward, send and parameter_bytes of `stages` elements of `stage`. */
dlc_status dlc_plan_stages_cut(const dlc_plan_layer *layer, size_t layers,
                               const dlc_plan_link *link, double samples,
                               int32_t stages, const int32_t *stage_ranks,
                               dlc_plan_stage *stage);

/* The same by work instead of seconds, where only some layers may begin a stage, as
 * dlc_plan_layers_weigh says. `boundary_cost[i]`: of a message, in units of work, if
 * the net is cut before layer i and stages have one rank; NULL: free. Of equal cuts the
 * earliest. `first` has room for stages + 1. DLC_ERR_CONFIG if there are fewer places
 * to cut. */
dlc_status dlc_plan_stages_balance(const double *work, const char *may_begin,
                                   const double *boundary_cost, int32_t layers,
                                   int32_t stages, const int32_t *stage_ranks,
                                   int32_t *first);

/* Computes `boundary_cost` for a link; the first number is left unchanged. */
void dlc_plan_stages_price(const dlc_plan_layer *layer, int32_t layers,
                           const dlc_plan_link *link, double samples,
                           double work_per_second, double *boundary_cost);

/* Fills in the same for given cuts: first and end are set by the caller. */
dlc_status dlc_plan_stages_measure(const dlc_plan_layer *layer, size_t layers,
                                   const dlc_plan_link *link, double samples,
                                   int32_t stages, const int32_t *stage_ranks,
                                   dlc_plan_stage *stage);

/* Simulates `micro_batches` with the 1F1B schedule, in which stage s of k has at most k
 * - s micro-batches in flight. Fills in memory_bytes and busy. `copies` as in
 * dlc_plan_cluster. */
dlc_status dlc_plan_pipeline_run(const dlc_plan_layer *layer, double samples,
                                 int32_t micro_batches, double copies, int32_t stages,
                                 dlc_plan_stage *stage, dlc_plan_pipeline *pipeline);

#endif
