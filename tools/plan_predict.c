/* Predicts each number of ranks: data parallelism, tensor parallelism, and the best of
 * the possible pipelines, each also of tensor groups. */
#include "plan_predict.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

static const dlc_plan_exchange best_exchange = {.algorithm = DLC_PLAN_DIRECT,
                                                .overlap = DLC_PLAN_OVERLAP_BEST};

void plan_layers_speed(dlc_plan_layer *layer, size_t layers, double speed) {
    for (size_t i = 0; i < layers; i++) {
        layer[i].forward.fixed /= speed;
        layer[i].forward.per_sample /= speed;
        layer[i].backward.fixed /= speed;
        layer[i].backward.per_sample /= speed;
    }
}

/* Through (samples, few) and (batch, many). */
static dlc_plan_time line(double samples, double few, double batch, double many) {
    double each = fmin(fmax((many - few) / (batch - samples), 0), few / samples);
    return (dlc_plan_time){few - each * samples, each};
}

void plan_layers_fit(dlc_plan_layer *layer, size_t layers, double batch,
                     const dlc_plan_layer *small, double samples) {
    for (size_t i = 0; i < layers; i++) {
        layer[i].forward = line(samples, dlc_plan_seconds(small[i].forward, samples),
                                batch, dlc_plan_seconds(layer[i].forward, batch));
        layer[i].backward = line(samples, dlc_plan_seconds(small[i].backward, samples),
                                 batch, dlc_plan_seconds(layer[i].backward, batch));
    }
}

/* A part of the cluster with so many ranks, filling machine by machine. */
static dlc_plan_cluster plan_part(const dlc_plan_cluster *cluster, int32_t ranks) {
    dlc_plan_cluster part = *cluster;
    int32_t all = ranks > 1 ? ranks : 1, most = cluster->ranks_per_node;
    part.ranks_per_node = most < 1 || most > all ? all : most;
    part.nodes = all / part.ranks_per_node;
    return part;
}

/* ---- Pipelines ------------------------------------------------------------------- */

typedef struct problem {
    const dlc_plan_layer *layer;
    size_t layers;
    const dlc_plan_cluster *cluster;
    double samples; /* of a rank */
} problem;

/* How stages are placed: the ranks of each are neighbours (setup/mesh.h). The ranks of
 * a machine that send to another one share its adapter. */
static dlc_plan_link link_of(const dlc_plan_cluster *c, int32_t ranks,
                             int32_t senders) {
    dlc_plan_link link = ranks <= c->ranks_per_node ? c->inside : c->between;
    if (ranks > c->ranks_per_node)
        link.bandwidth /= senders < c->ranks_per_node ? senders : c->ranks_per_node;
    return link;
}

/* Seconds of the all-reduce and update after the last micro-batch, of the slowest
 * stage. */
static double finish(const problem *p, const dlc_plan_stage *stage, int32_t stages,
                     const int32_t *stage_ranks) {
    double slowest = 0;
    for (int32_t s = 0; s < stages; s++) {
        dlc_plan_cluster part = plan_part(p->cluster, stage_ranks[s]);
        double bytes = stage[s].parameter_bytes;
        double seconds = dlc_plan_all_reduce(&part, DLC_PLAN_DIRECT, bytes);
        if (p->cluster->update_bandwidth > 0)
            seconds += bytes / p->cluster->update_bandwidth;
        slowest = fmax(slowest, seconds);
    }
    return slowest;
}

static dlc_status cut_and_run(const problem *p, const dlc_plan_link *link,
                              int32_t stages, const int32_t *stage_ranks,
                              double samples, int32_t micro_batches,
                              dlc_plan_stage *stage, dlc_plan_pipeline *pipeline) {
    dlc_plan_layer *layer = dlc_alloc(p->layers, sizeof *layer);
    if (!layer)
        return DLC_ERR_NOMEM;
    memcpy(layer, p->layer, p->layers * sizeof *layer);
    if (micro_batches > 1)
        dlc_plan_stages_accumulate(layer, p->layers, p->cluster->accumulate_bandwidth);
    dlc_status status = dlc_plan_stages_cut(layer, p->layers, link, samples, stages,
                                            stage_ranks, stage);
    if (status == DLC_OK)
        status = dlc_plan_pipeline_run(layer, samples, micro_batches,
                                       p->cluster->copies, stages, stage, pipeline);
    dlc_free(layer);
    return status;
}

/* Stages of so many ranks, which split `samples` of each micro-batch. */
static dlc_status try_stages(const problem *p, int32_t stages,
                             const int32_t *stage_ranks, double samples,
                             int32_t micro_batches, dlc_plan_stage *stage,
                             dlc_plan_pipeline *pipeline, plan_mix *mix) {
    const dlc_plan_cluster *c = p->cluster;
    int32_t ranks = 0, most = 0;
    for (int32_t s = 0; s < stages; s++) {
        ranks += stage_ranks[s];
        most = stage_ranks[s] > most ? stage_ranks[s] : most;
    }
    const dlc_plan_link link = link_of(c, ranks, most);
    DLC_TRY(cut_and_run(p, &link, stages, stage_ranks, samples, micro_batches, stage,
                        pipeline));
    for (int32_t s = 0; s < stages; s++)
        stage[s].memory_bytes += c->other_bytes;
    pipeline->memory_bytes += c->other_bytes;
    double seconds = pipeline->seconds + finish(p, stage, stages, stage_ranks) +
                     c->rest;
    *mix = (plan_mix){.kind = PLAN_STAGES,
                      .seconds = seconds,
                      .images_per_s = samples * micro_batches / seconds,
                      .memory = pipeline->memory_bytes,
                      .stages = stages,
                      .micro_batches = micro_batches,
                      .bubble = pipeline->bubble};
    return DLC_OK;
}

/* Equal stages. */
static dlc_status try_pipeline(const problem *p, int32_t stages, int32_t micro_batches,
                               dlc_plan_stage *stage, dlc_plan_pipeline *pipeline,
                               plan_mix *mix) {
    int32_t ranks = dlc_plan_ranks(p->cluster), of_each[PLAN_MAX_STAGES];
    for (int32_t s = 0; s < stages; s++)
        of_each[s] = ranks / stages;
    return try_stages(p, stages, of_each, p->samples * ranks / micro_batches,
                      micro_batches, stage, pipeline, mix);
}

/* Can each stage have tensor groups of so many ranks? */
static int is_possible(const problem *p, int32_t stages, int32_t tensor) {
    int32_t ranks = dlc_plan_ranks(p->cluster), each = p->cluster->ranks_per_node;
    int32_t of_stage = ranks / stages;
    return ranks % (stages * tensor) == 0 && (size_t)stages <= p->layers &&
           (each % of_stage == 0 || of_stage % each == 0);
}

/* Finds the fastest pipeline; mix->stages is 0 if none is possible. */
static dlc_status find_pipeline(const problem *p, int32_t tensor, dlc_plan_stage *stage,
                                dlc_plan_pipeline *pipeline, plan_mix *mix) {
    int32_t best_stages = 0, best_batches = 0;
    *mix = (plan_mix){.seconds = INFINITY};
    for (int32_t k = 2; k <= PLAN_MAX_STAGES && k <= dlc_plan_ranks(p->cluster); k++)
        for (int32_t m = k; is_possible(p, k, tensor) && m <= 8 * k; m *= 2) {
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

static plan_mix mix_of_split(const problem *p, const dlc_plan_tensor_parallel *split) {
    return (plan_mix){.kind = split->split ? PLAN_TENSOR : PLAN_DATA,
                      .seconds = split->mix.seconds,
                      .images_per_s = p->samples * dlc_plan_ranks(p->cluster) /
                                      split->mix.seconds,
                      .memory = split->memory_mix,
                      .split = split->split,
                      .tensor = split->split ? dlc_plan_ranks(p->cluster) : 0};
}

/* ---- The mesh -------------------------------------------------------------------- */

static void take_faster(const plan_mix *mix, plan_mix *best) {
    if (mix->seconds > 0 && mix->seconds < best->seconds * (1 - DLC_PLAN_MARGIN))
        *best = *mix;
}

/* Makes the layers those of a rank in a tensor group: it has a part of the parameters
 * that are divided, and exchanges activations. */
static void divide_layers(const problem *p, const dlc_plan_extra *extra,
                          dlc_plan_layer *layer) {
    for (size_t i = 0; i < p->layers; i++) {
        layer[i] = p->layer[i];
        layer[i].forward.per_sample += extra[i].forward / p->samples;
        layer[i].backward.per_sample += extra[i].backward / p->samples;
        if (extra[i].is_split)
            layer[i].parameter_bytes = extra[i].parameter_bytes;
    }
}

/* Data parallelism over tensor groups. */
static dlc_status cost_groups(const problem *divided, int32_t split, int32_t tensor,
                              plan_mix *mix) {
    dlc_plan_step step;
    DLC_TRY(dlc_plan_step_of(divided->layer, divided->layers, NULL, divided->cluster,
                             &best_exchange, divided->samples, &step));
    *mix = (plan_mix){.kind = PLAN_TENSOR,
                      .seconds = step.seconds,
                      .images_per_s = divided->samples *
                                      dlc_plan_ranks(divided->cluster) / step.seconds,
                      .memory = dlc_plan_memory(divided->layer, divided->layers, NULL,
                                                divided->cluster, divided->samples),
                      .split = split,
                      .tensor = tensor};
    return DLC_OK;
}

/* That, and pipelines of tensor groups, if one is the best. */
static dlc_status try_divided(const problem *divided, int32_t split, int32_t tensor,
                              plan_mix *best) {
    dlc_plan_stage stage[PLAN_MAX_STAGES];
    dlc_plan_pipeline pipeline;
    plan_mix groups, piped;
    DLC_TRY(cost_groups(divided, split, tensor, &groups));
    take_faster(&groups, best);
    DLC_TRY(find_pipeline(divided, tensor, stage, &pipeline, &piped));
    piped.split = split;
    piped.tensor = tensor;
    if (piped.stages)
        take_faster(&piped, best);
    return DLC_OK;
}

/* Lets tensor groups of `tensor` neighbours divide the layers that send less so: makes
 * `layer` those of a rank, if there are any. */
static dlc_status divide(const problem *p, int32_t tensor, dlc_plan_layer *layer,
                         dlc_plan_tensor_parallel *split) {
    dlc_plan_cluster group = plan_part(p->cluster, tensor);
    dlc_plan_extra *extra = dlc_alloc(p->layers, sizeof *extra);
    dlc_plan_layer_choice *choice = dlc_alloc(p->layers, sizeof *choice);
    dlc_status status = extra && choice ? DLC_OK : DLC_ERR_NOMEM;
    *split = (dlc_plan_tensor_parallel){.split = 0};
    for (size_t i = 0; status == DLC_OK && i < p->layers; i++)
        choice[i].tensor = dlc_plan_tensor_gain(&p->layer[i], p->samples * tensor) > 1;
    if (status == DLC_OK)
        status = dlc_plan_cost_tensor_parallel(p->layer, p->layers, &group,
                                               &best_exchange, p->samples, choice,
                                               extra, split);
    if (status == DLC_OK)
        divide_layers(p, extra, layer);
    dlc_free(choice);
    dlc_free(extra);
    return status;
}

static dlc_status try_groups(const problem *p, int32_t tensor, plan_mix *best) {
    dlc_plan_tensor_parallel split;
    problem divided = *p;
    dlc_plan_layer *layer = dlc_alloc(p->layers, sizeof *layer);
    if (!layer)
        return DLC_ERR_NOMEM;
    divided.layer = layer;
    dlc_status status = divide(p, tensor, layer, &split);
    if (status == DLC_OK && split.split)
        status = try_divided(&divided, split.split, tensor, best);
    dlc_free(layer);
    return status;
}

/* Tensor groups that are smaller than the job, on one machine each. */
static dlc_status try_meshes(const problem *p, plan_mix *best) {
    int32_t each = p->cluster->ranks_per_node, ranks = dlc_plan_ranks(p->cluster);
    for (int32_t t = 2; t <= each && t < ranks; t *= 2)
        if (each % t == 0)
            DLC_TRY(try_groups(p, t, best));
    return DLC_OK;
}

static dlc_status predict_case(const problem *p, double alone,
                               plan_prediction *prediction, plan_scaling *scaling) {
    double all = p->samples * dlc_plan_ranks(p->cluster);
    DLC_TRY(dlc_plan_choose_tensor_parallel(
        p->layer, p->layers, p->cluster, &best_exchange, p->samples, prediction->choice,
        NULL, &prediction->split));
    DLC_TRY(find_pipeline(p, 1, prediction->stage, &prediction->pipeline,
                          &prediction->pipelined));
    *scaling = (plan_scaling){.samples = p->samples,
                              .step = prediction->split.data,
                              .images_per_s = all / prediction->split.data.seconds,
                              .memory = prediction->split.memory_data,
                              .best = mix_of_split(p, &prediction->split)};
    scaling->efficiency = scaling->images_per_s / (alone * dlc_plan_ranks(p->cluster));
    if (prediction->pipelined.stages)
        take_faster(&prediction->pipelined, &scaling->best);
    return try_meshes(p, &scaling->best);
}

/* Predicts weak scaling last, because the prediction keeps its details. */
static dlc_status predict_row(const dlc_plan_layer *layer,
                              const dlc_plan_cluster *cluster, double batch,
                              double alone, plan_prediction *prediction) {
    int32_t ranks = dlc_plan_ranks(cluster);
    plan_row *row = &prediction->row[prediction->rows++];
    problem p = {layer, prediction->layers, cluster, batch / ranks};
    *row = (plan_row){.ranks = ranks,
                      .nodes = cluster->nodes,
                      .ranks_per_node = cluster->ranks_per_node};
    if (p.samples >= 1)
        DLC_TRY(predict_case(&p, alone, prediction, &row->strong));
    p.samples = batch;
    return predict_case(&p, alone, prediction, &row->weak);
}

/* `p->layer` are those of a rank of its tensor group. */
static dlc_status cost_asked(const problem *p, const plan_mesh *asked,
                             const dlc_plan_tensor_parallel *split,
                             plan_prediction *prediction) {
    const dlc_mesh *mesh = &asked->mesh;
    int32_t ranks[PLAN_MAX_STAGES] = {0};
    for (int32_t s = 0; s < mesh->pipeline; s++)
        ranks[s] = dlc_mesh_stage_ranks(mesh, s);
    if (mesh->pipeline == 1 && ranks[0] == mesh->tensor && split->split) {
        prediction->asked = mix_of_split(p, split);
        return DLC_OK;
    }
    if (mesh->pipeline == 1)
        return cost_groups(p, split->split, split->split ? mesh->tensor : 0,
                           &prediction->asked);
    DLC_TRY(try_stages(p, mesh->pipeline, ranks,
                       p->samples * ranks[0] / asked->micro_batches,
                       asked->micro_batches, prediction->asked_stage,
                       &(dlc_plan_pipeline){0}, &prediction->asked));
    prediction->asked.split = split->split;
    prediction->asked.tensor = split->split ? mesh->tensor : 0;
    return DLC_OK;
}

/* On one machine if the target has fewer ranks than are asked for. */
static dlc_status predict_asked(const dlc_plan_layer *layer,
                                const dlc_plan_cluster *cluster, double batch,
                                const plan_mesh *asked, plan_prediction *prediction) {
    dlc_plan_tensor_parallel split = {.split = 0};
    const dlc_mesh *mesh = &asked->mesh;
    if (mesh->pipeline > PLAN_MAX_STAGES)
        return dlc_fail(DLC_ERR_CONFIG, "plan predicts at most %d stages, not %d",
                        (int)PLAN_MAX_STAGES, (int)mesh->pipeline);
    dlc_plan_cluster here = plan_part(cluster, mesh->ranks);
    if (dlc_plan_ranks(cluster) < mesh->ranks) {
        here.nodes = 1;
        here.ranks_per_node = mesh->ranks;
    }
    problem p = {layer, prediction->layers, &here, batch};
    dlc_plan_layer *divided = dlc_alloc(p.layers, sizeof *divided);
    dlc_status status = divided ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK && mesh->tensor > 1)
        status = divide(&p, mesh->tensor, divided, &split);
    if (split.split)
        p.layer = divided;
    if (status == DLC_OK)
        status = cost_asked(&p, asked, &split, prediction);
    prediction->asked_ranks = mesh->ranks;
    dlc_free(divided);
    return status;
}

/* The next number of ranks: powers of two within a machine, then whole machines, then
 * all. */
static int32_t next_ranks(const dlc_plan_cluster *cluster, int32_t ranks) {
    int32_t all = dlc_plan_ranks(cluster), next = ranks * 2;
    if (ranks < cluster->ranks_per_node && next > cluster->ranks_per_node)
        next = cluster->ranks_per_node;
    return next < all && ranks <= all / 2 ? next : all;
}

dlc_status plan_predict(const dlc_plan_layer *layer, size_t layers,
                        const dlc_plan_cluster *cluster, double batch,
                        const plan_mesh *asked, plan_prediction *prediction) {
    plan_prediction made = {.layers = layers};
    dlc_plan_cluster one = plan_part(cluster, 1);
    dlc_plan_step step;
    dlc_status status = DLC_OK;
    DLC_TRY(dlc_plan_step_of(layer, layers, NULL, &one, &best_exchange, batch, &step));
    if (!(step.seconds > 0))
        return dlc_fail(DLC_ERR_CONFIG, "no layer takes any time, so there is nothing "
                                        "to plan");
    made.choice = dlc_alloc(layers, sizeof *made.choice);
    if (!made.choice)
        return DLC_ERR_NOMEM;
    int32_t all = dlc_plan_ranks(cluster), ranks = 1;
    for (;; ranks = next_ranks(cluster, ranks)) {
        dlc_plan_cluster part = plan_part(cluster, ranks);
        status = predict_row(layer, &part, batch, batch / step.seconds, &made);
        if (status != DLC_OK || ranks == all || made.rows == PLAN_MAX_ROWS)
            break;
    }
    if (status == DLC_OK && asked->mesh.ranks > 1)
        status = predict_asked(layer, cluster, batch, asked, &made);
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
