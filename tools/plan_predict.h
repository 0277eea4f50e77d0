/* Predicts for `dlcore plan`: scaling over 1, 2, 4 ... ranks, and the best parallelism
 * for each. Pure arithmetic. */
#ifndef DLC_TOOLS_PLAN_PREDICT_H
#define DLC_TOOLS_PLAN_PREDICT_H

#include "plan/stages.h"
#include "plan/tensor_parallel.h"
#include "setup/mesh.h"

typedef enum plan_kind {
    PLAN_DATA,   /* every rank has the whole net */
    PLAN_TENSOR, /* some layers are tensor-parallel */
    PLAN_STAGES, /* pipeline stages, each with several ranks, which may be tensor groups
                  */
} plan_kind;

/* One combination of parallelisms. */
typedef struct plan_mix {
    plan_kind kind;
    double seconds;      /* of a step */
    double images_per_s; /* of all ranks */
    double memory;       /* bytes of the rank that needs most */
    int32_t split;       /* number of tensor-parallel layers */
    int32_t tensor;      /* ranks that divide them; 0: there are none */
    int32_t stages, micro_batches;
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
    int32_t ranks, nodes, ranks_per_node;
    plan_scaling weak, strong; /* strong.samples is 0 if there are fewer than ranks */
} plan_row;

enum { PLAN_MAX_ROWS = 32, PLAN_MAX_STAGES = 16 };

typedef struct plan_prediction {
    plan_row row[PLAN_MAX_ROWS];
    size_t rows;
    /* Of the last row, with weak scaling. */
    dlc_plan_layer_choice *choice; /* owned; one per layer */
    dlc_plan_tensor_parallel split;
    dlc_plan_stage stage[PLAN_MAX_STAGES];
    dlc_plan_pipeline pipeline;
    plan_mix pipelined; /* the best pipeline; stages 0: none is possible */
    /* The mesh that was asked for, of so many ranks; 0: none was. */
    int32_t asked_ranks;
    plan_mix asked;
    dlc_plan_stage asked_stage[PLAN_MAX_STAGES];
    size_t layers;
} plan_prediction;

/* A mesh that is asked for, and what training makes of a batch in it. */
typedef struct plan_mesh {
    dlc_mesh mesh;         /* ranks 0: none is */
    int32_t micro_batches; /* 1 without stages */
} plan_mesh;

/* `batch` is per rank with weak scaling, and of all ranks with strong scaling; of a
 * mesh that is asked for, per rank of its first stage. Release with
 * plan_prediction_free. */
dlc_status plan_predict(const dlc_plan_layer *layer, size_t layers,
                        const dlc_plan_cluster *cluster, double batch,
                        const plan_mesh *asked, plan_prediction *prediction);
void plan_prediction_free(plan_prediction *prediction);

/* Gives `layer`, measured with `batch` samples, the times of `small`, measured with
 * fewer, too: a straight line through both, as far as neither its fixed part nor that
 * of a sample is below 0; else the times of `small` hold. */
void plan_layers_fit(dlc_plan_layer *layer, size_t layers, double batch,
                     const dlc_plan_layer *small, double samples);

/* Makes layers `speed` times as fast. */
void plan_layers_speed(dlc_plan_layer *layer, size_t layers, double speed);

#endif
