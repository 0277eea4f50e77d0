/* What `dlcore plan` predicts: scaling over 1, 2, 4 ... ranks, and the best mix for
 * each. Arithmetic alone. */
#ifndef DLC_TOOLS_PLAN_PREDICT_H
#define DLC_TOOLS_PLAN_PREDICT_H

#include "plan/split.h"
#include "plan/stages.h"

typedef enum plan_kind {
    PLAN_DATA,   /* every rank has all of the net */
    PLAN_SPLIT,  /* some layers are split over the ranks */
    PLAN_STAGES, /* stages, each of several ranks that share its samples */
} plan_kind;

/* One way of sharing out the work. */
typedef struct plan_mix {
    plan_kind kind;
    double seconds;      /* of a step */
    double images_per_s; /* all ranks */
    double memory;       /* bytes of the rank that needs most */
    int32_t split;       /* layers */
    int32_t stages, sub_batches;
    double bubble;
} plan_mix;

typedef struct plan_scaling {
    double samples; /* of a rank */
    dlc_plan_step step;
    double images_per_s, efficiency; /* of data parallelism */
    double memory;
    plan_mix best;
} plan_scaling;

typedef struct plan_row {
    int32_t ranks, nodes, each;
    plan_scaling weak, strong; /* strong.samples 0: fewer samples than ranks */
} plan_row;

enum { PLAN_ROWS_MOST = 32, PLAN_STAGES_MOST = 16 };

typedef struct plan_prediction {
    plan_row row[PLAN_ROWS_MOST];
    size_t rows;
    /* Of the last row, weak. Own, one element a layer. */
    dlc_plan_choice *choice;
    dlc_plan_split split;
    dlc_plan_stage stage[PLAN_STAGES_MOST];
    dlc_plan_pipeline pipeline;
    plan_mix pipelined; /* the best of them; stages 0: none is possible */
    size_t layers;
} plan_prediction;

/* `batch`: of a rank (weak), or of all together (strong). Free with
 * plan_prediction_free. */
dlc_status plan_predict(const dlc_plan_layer *layer, size_t layers,
                        const dlc_plan_cluster *cluster, double batch,
                        plan_prediction *prediction);
void plan_prediction_free(plan_prediction *prediction);

/* Makes layers `speed` times as fast. */
void plan_layers_speed(dlc_plan_layer *layer, size_t layers, double speed);

/* So many ranks of the cluster, machine by machine. */
dlc_plan_cluster plan_part(const dlc_plan_cluster *cluster, int32_t ranks);

#endif
