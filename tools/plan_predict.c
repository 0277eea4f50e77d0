/* See plan_predict.h. */
#include "plan_predict.h"

#include <math.h>

#include "base/memory.h"

/* Splitting must pay by so much to be called better, for predictions are no better. */
static const double margin = 0.02;

static const dlc_plan_exchange best_exchange = {.way = DLC_PLAN_DIRECT,
                                                .overlap = DLC_PLAN_OVERLAP_BEST};

void plan_layers_speed(dlc_plan_layer *layer, size_t layers, double speed) {
    for (size_t i = 0; i < layers; i++) {
        layer[i].forward.fixed /= speed;
        layer[i].forward.each /= speed;
        layer[i].backward.fixed /= speed;
        layer[i].backward.each /= speed;
    }
}

dlc_plan_cluster plan_part(const dlc_plan_cluster *cluster, int32_t ranks) {
    dlc_plan_cluster part = *cluster;
    if (ranks < cluster->each)
        part.each = ranks;
    part.nodes = ranks / part.each > 0 ? ranks / part.each : 1;
    return part;
}

/* ---- Pipelines ------------------------------------------------------------------- */

typedef struct problem {
    const dlc_plan_layer *layer;
    size_t layers;
    const dlc_plan_cluster *cluster;
    double samples; /* of a rank */
} problem;

/* The ranks of one stage: neighbours work on different stages. */
static dlc_plan_cluster replicas(const dlc_plan_cluster *cluster, int32_t stages) {
    dlc_plan_cluster part = *cluster;
    if (stages <= cluster->each && cluster->each % stages == 0) {
        part.each = cluster->each / stages;
        return part;
    }
    part.nodes = dlc_plan_ranks(cluster) / stages;
    part.each = 1;
    return part;
}

/* What is exchanged when all sub-batches have come back, of the slowest stage. */
static double finish(const problem *p, const dlc_plan_stage *stage, int32_t stages) {
    dlc_plan_cluster part = replicas(p->cluster, stages);
    double slowest = 0;
    for (int32_t s = 0; s < stages; s++) {
        double bytes = stage[s].parameter_bytes;
        double seconds = dlc_plan_all_reduce(&part, DLC_PLAN_DIRECT, bytes);
        if (p->cluster->update > 0)
            seconds += bytes / p->cluster->update;
        slowest = fmax(slowest, seconds);
    }
    return slowest;
}

static dlc_status try_pipeline(const problem *p, int32_t stages, int32_t sub_batches,
                               dlc_plan_stage *stage, dlc_plan_pipeline *pipeline,
                               plan_mix *mix) {
    const dlc_plan_cluster *c = p->cluster;
    const dlc_plan_link *link = stages <= c->each ? &c->inside : &c->between;
    double samples = p->samples * stages / sub_batches;
    DLC_TRY(dlc_plan_stages_cut(p->layer, p->layers, link, samples, stages, stage));
    DLC_TRY(dlc_plan_pipeline_run(p->layer, samples, sub_batches, c->copies, stages,
                                  stage, pipeline));
    for (int32_t s = 0; s < stages; s++)
        stage[s].memory_bytes += c->other_bytes;
    pipeline->memory_bytes += c->other_bytes;
    double seconds = pipeline->seconds + finish(p, stage, stages) + c->rest;
    *mix = (plan_mix){.kind = PLAN_STAGES,
                      .seconds = seconds,
                      .images_per_s = p->samples * dlc_plan_ranks(c) / seconds,
                      .memory = pipeline->memory_bytes,
                      .stages = stages,
                      .sub_batches = sub_batches,
                      .bubble = pipeline->bubble};
    return DLC_OK;
}

static int is_possible(const problem *p, int32_t stages) {
    int32_t ranks = dlc_plan_ranks(p->cluster), each = p->cluster->each;
    int fits = each % stages == 0 || (stages % each == 0 && ranks % stages == 0);
    return fits && ranks % stages == 0 && (size_t)stages <= p->layers;
}

/* The fastest pipeline; mix->stages 0: there is none. */
static dlc_status find_pipeline(const problem *p, dlc_plan_stage *stage,
                                dlc_plan_pipeline *pipeline, plan_mix *mix) {
    int32_t best_stages = 0, best_batches = 0;
    *mix = (plan_mix){.seconds = INFINITY};
    for (int32_t k = 2; k <= PLAN_STAGES_MOST && k <= dlc_plan_ranks(p->cluster); k++)
        for (int32_t m = k; is_possible(p, k) && m <= 8 * k; m *= 2) {
            plan_mix tried;
            if (p->samples * k / m < 1)
                break;
            DLC_TRY(try_pipeline(p, k, m, stage, pipeline, &tried));
            if (tried.seconds < mix->seconds) {
                *mix = tried;
                best_stages = k;
                best_batches = m;
            }
        }
    if (best_stages == 0)
        return DLC_OK;
    return try_pipeline(p, best_stages, best_batches, stage, pipeline, mix);
}

/* ---- One number of ranks --------------------------------------------------------- */

static plan_mix mix_of_split(const problem *p, const dlc_plan_split *split) {
    return (plan_mix){.kind = split->split ? PLAN_SPLIT : PLAN_DATA,
                      .seconds = split->mix.seconds,
                      .images_per_s = p->samples * dlc_plan_ranks(p->cluster) /
                                      split->mix.seconds,
                      .memory = split->memory_mix,
                      .split = split->split};
}

static dlc_status predict_case(const problem *p, double alone,
                               plan_prediction *prediction, plan_scaling *scaling) {
    double all = p->samples * dlc_plan_ranks(p->cluster);
    DLC_TRY(dlc_plan_split_of(p->layer, p->layers, p->cluster, &best_exchange,
                              p->samples, prediction->choice, NULL,
                              &prediction->split));
    DLC_TRY(find_pipeline(p, prediction->stage, &prediction->pipeline,
                          &prediction->pipelined));
    *scaling = (plan_scaling){.samples = p->samples,
                              .step = prediction->split.data,
                              .images_per_s = all / prediction->split.data.seconds,
                              .memory = prediction->split.memory_data,
                              .best = mix_of_split(p, &prediction->split)};
    scaling->efficiency = scaling->images_per_s / (alone * dlc_plan_ranks(p->cluster));
    if (prediction->pipelined.seconds < scaling->best.seconds * (1 - margin))
        scaling->best = prediction->pipelined;
    return DLC_OK;
}

/* The weak one last: what it leaves in the prediction stays. */
static dlc_status predict_row(const dlc_plan_layer *layer,
                              const dlc_plan_cluster *cluster, double batch,
                              double alone, plan_prediction *prediction) {
    int32_t ranks = dlc_plan_ranks(cluster);
    plan_row *row = &prediction->row[prediction->rows++];
    problem p = {layer, prediction->layers, cluster, batch / ranks};
    *row = (plan_row){.ranks = ranks, .nodes = cluster->nodes, .each = cluster->each};
    if (p.samples >= 1)
        DLC_TRY(predict_case(&p, alone, prediction, &row->strong));
    p.samples = batch;
    return predict_case(&p, alone, prediction, &row->weak);
}

/* Powers of two within a machine, then whole machines; the last is all of them. */
static int32_t next_ranks(const dlc_plan_cluster *cluster, int32_t ranks) {
    int32_t all = dlc_plan_ranks(cluster), next = ranks * 2;
    if (ranks < cluster->each && next > cluster->each)
        next = cluster->each;
    return next < all && ranks <= all / 2 ? next : all;
}

dlc_status plan_predict(const dlc_plan_layer *layer, size_t layers,
                        const dlc_plan_cluster *cluster, double batch,
                        plan_prediction *prediction) {
    plan_prediction made = {.layers = layers};
    dlc_plan_cluster one = plan_part(cluster, 1);
    dlc_plan_step step;
    dlc_status status = DLC_OK;
    DLC_TRY(dlc_plan_step_of(layer, layers, NULL, &one, &best_exchange, batch, &step));
    if (!(step.seconds > 0))
        return dlc_fail(DLC_ERR_CONFIG, "no layer takes any time: there is nothing to "
                                        "plan");
    made.choice = dlc_alloc(layers, sizeof *made.choice);
    if (!made.choice)
        return DLC_ERR_NOMEM;
    int32_t all = dlc_plan_ranks(cluster), ranks = 1;
    for (;; ranks = next_ranks(cluster, ranks)) {
        dlc_plan_cluster part = plan_part(cluster, ranks);
        status = predict_row(layer, &part, batch, batch / step.seconds, &made);
        if (status != DLC_OK || ranks == all || made.rows == PLAN_ROWS_MOST)
            break;
    }
    if (status == DLC_OK)
        *prediction = made;
    else
        plan_prediction_free(&made);
    return status;
}

void plan_prediction_free(plan_prediction *prediction) {
    dlc_free(prediction->choice);
    *prediction = (plan_prediction){.rows = 0};
}
