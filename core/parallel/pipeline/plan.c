/* Plans a pipeline: which ranks have which layers, and how a batch is divided into
 * micro-batches. */
#include <inttypes.h>
#include <math.h>

#include "base/log.h"
#include "base/memory.h"
#include "parallel/pipeline/pipeline.h"
#include "plan/layers.h"
#include "plan/stages.h"
#include "session/cluster_costs.h"
#include "setup/stage_cut.h"

/* The most micro-batches that are tried, for each stage; and how much less work a
 * larger number of them must have: what is counted is no more accurate. */
enum { MOST_PER_STAGE = 8 };
static const double MARGIN = 0.05;

/* ---- Checks ---------------------------------------------------------------------- */

static dlc_status check_job(const dlc_session *session) {
    const dlc_setup *setup = session->setup;
    const char *where = dlc_settings_where(setup->parallel_settings, "pipeline");
    if (setup->servers > 0)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "%s: every rank of a stage passes samples on, and a parameter server has "
            "none; remove [consistency] servers, or remove stages",
            where);
    for (int32_t r = 0; r < setup->batch_split.proportions; r++)
        if (setup->batch_split.proportion[r] <= 0)
            return dlc_fail(DLC_ERR_CONFIG,
                            "%s: [parallel] batch_split gives rank %d no samples, so "
                            "it would have no part in its stage; give it some, or use "
                            "fewer ranks",
                            where, (int)r);
    return DLC_OK;
}

/* ---- Batch ----------------------------------------------------------------------- */

/* The most ranks that a stage has. */
static int64_t most_ranks(const dlc_mesh *mesh) {
    return (int64_t)dlc_mesh_data(mesh) * mesh->tensor;
}

/* A test has batches of as many samples as its first stage's ranks have together. */
static int64_t test_samples(const dlc_session *session) {
    int64_t most = most_ranks(&session->mesh);
    int64_t samples = session->setup->test.batch *
                      dlc_mesh_stage_ranks(&session->mesh, 0);
    return samples > most ? samples : most;
}

/* What each rank has of a batch; each stage has all of it. */
static void note_split(const dlc_pipeline *pipeline) {
    const dlc_session *session = pipeline->session;
    dlc_batch_split *split = &session->setup->batch_split;
    int64_t first, size, each = session->stage_samples.train;
    int64_t last = (pipeline->micro_batches - 1) * each;
    split->batch = session->global_batch * session->mesh.pipeline;
    for (int32_t r = 0; r < session->ranks; r++) {
        dlc_mesh_samples(&session->mesh, r, each, &first, &size);
        int64_t left = session->global_batch - last - first;
        split->count[r] = size * (pipeline->micro_batches - 1) + (left < 0      ? 0
                                                                  : left < size ? left
                                                                                : size);
    }
}

/* The samples of a batch, of all ranks of a stage. */
static int64_t batch_samples(const dlc_session *session) {
    const dlc_setup *setup = session->setup;
    return setup->strong ? setup->train.batch
                         : setup->train.batch * dlc_mesh_stage_ranks(&session->mesh, 0);
}

static dlc_status divide_batch(dlc_pipeline *pipeline, int64_t count) {
    dlc_session *session = pipeline->session;
    const dlc_setup *setup = session->setup;
    const dlc_mesh *mesh = &session->mesh;
    int64_t batch = batch_samples(session), most = most_ranks(mesh);
    int64_t each = dlc_plan_micro_batch(batch, count, most);
    if (each == 0)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s: the %" PRId64
                        " samples of a batch cannot be divided into %" PRId64
                        " micro-batches with a sample for each of the %" PRId64
                        " ranks of a stage; set a smaller number, or a larger batch",
                        dlc_settings_where(setup->parallel_settings, "micro_batches"),
                        batch, count, most);
    session->global_batch = batch;
    session->stage_samples.train = each;
    session->stage_samples.test = test_samples(session);
    dlc_mesh_samples(mesh, session->rank, each, &pipeline->first_sample,
                     &pipeline->micro_batch_size);
    pipeline->micro_batches = session->micro_batches =
        (int32_t)((batch + each - 1) / each); /* none is empty */
    pipeline->order.micro_batches = pipeline->micro_batches;
    note_split(pipeline);
    session->local_offset = pipeline->first_sample;
    session->local_batch = setup->batch_split.count[session->rank];
    return DLC_OK;
}

/* ---- Layers ------------------------------------------------------------------ */

static dlc_status make_outline(const dlc_session *session, dlc_phase phase,
                               const dlc_data_setup *data, int64_t batch,
                               dlc_net **outline) {
    dlc_net_args args = {.graph = session->setup->graph,
                         .phase = phase,
                         .device_feature = session->setup->device,
                         .device_ops = session->device_ops,
                         .device = session->device,
                         .threads = dlc_job_threads(session->job),
                         .precision = DLC_F32,
                         .batch = batch,
                         .seed = session->setup->seed,
                         .outline = 1};
    DLC_TRY(dlc_setup_sample_fields(session->setup, data, phase, &args.fields));
    return dlc_net_build(&args, outline);
}

/* Prices the boundary tensors of `batch` samples, which the outline has, by the
 * measured link; free if there are no peers. */
static dlc_status price_boundaries(const dlc_pipeline *pipeline, const dlc_net *outline,
                                   int64_t batch, double *boundary_cost) {
    const dlc_session *session = pipeline->session;
    const dlc_setup *setup = session->setup;
    dlc_cluster_costs measured;
    dlc_shape sample;
    if (session->is_plan)
        return DLC_OK;
    DLC_TRY(dlc_cluster_costs_measure(session, &measured));
    DLC_TRY(dlc_setup_sample_shape(&setup->train, &sample));
    int32_t layers = setup->graph->layers;
    dlc_plan_layer *layer = dlc_alloc((size_t)layers, sizeof *layer);
    if (!layer)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_plan_layers_read(setup->graph, outline, batch, &sample, 0,
                                             layer);
    if (status == DLC_OK)
        dlc_plan_stages_price(layer, layers, dlc_plan_slowest(&measured.cluster),
                              (double)batch, measured.memory, boundary_cost);
    dlc_free(layer);
    return status;
}

/* `priced`: the samples whose messages count; 0: messages are free. */
static dlc_status cut_by_work(const dlc_pipeline *pipeline, const dlc_net *outline,
                              int64_t priced, const double *work,
                              const char *may_begin) {
    const dlc_setup *setup = pipeline->session->setup;
    int32_t layers = setup->graph->layers;
    double *boundary_cost = dlc_alloc((size_t)layers, sizeof *boundary_cost);
    dlc_status status = boundary_cost ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK && priced > 0)
        status = price_boundaries(pipeline, outline, priced, boundary_cost);
    if (status == DLC_OK)
        status = dlc_plan_stages_balance(
            work, may_begin, boundary_cost, layers, pipeline->stages.mesh.pipeline,
            pipeline->stages.mesh.stage_ranks, pipeline->stages.first);
    dlc_free(boundary_cost);
    if (DLC_STATUS_CLASS(status) != DLC_STATUS_CLASS(DLC_ERR_CONFIG))
        return status;
    return dlc_fail(status, "%s: %s",
                    dlc_settings_where(setup->parallel_settings, "pipeline"),
                    dlc_detail());
}

/* Sums the work of each stage's layers. */
static void sum_work(dlc_pipeline *pipeline, const double *work) {
    const dlc_stages *stages = &pipeline->stages;
    for (int32_t s = 0; s < stages->mesh.pipeline; s++) {
        pipeline->work[s] = 0;
        for (int32_t i = stages->first[s]; i < stages->first[s + 1]; i++)
            pipeline->work[s] += work[i];
    }
}

/* Cuts as [parallel] pipeline says, or by the work of a micro-batch on rank 0. With
 * `prices` messages count as this job's links are measured, and all ranks use the cut
 * of rank 0. */
static dlc_status cut_net(dlc_pipeline *pipeline, const dlc_stage_cut *cut,
                          int prices) {
    const dlc_session *session = pipeline->session;
    dlc_stages *stages = &pipeline->stages;
    size_t edges = (size_t)stages->mesh.pipeline + 1;
    double *work = NULL;
    char *may_begin = NULL;
    dlc_net *outline = NULL;
    int64_t first, samples;
    dlc_mesh_samples(&session->mesh, 0, session->stage_samples.train, &first, &samples);
    DLC_TRY(make_outline(session, DLC_PHASE_TRAIN, &session->setup->train, samples,
                         &outline));
    dlc_status status = dlc_plan_layers_weigh(
        session->setup->graph, outline, pipeline->micro_batches, &work, &may_begin);
    for (size_t s = 0; cut->first && s < edges; s++)
        stages->first[s] = cut->first[s];
    if (status == DLC_OK && !cut->first)
        status = cut_by_work(pipeline, outline, prices ? samples : 0, work, may_begin);
    if (status == DLC_OK && prices)
        status = dlc_job_broadcast(session->job, 0, stages->first,
                                   edges * sizeof *stages->first);
    if (status == DLC_OK)
        sum_work(pipeline, work);
    dlc_free(work);
    dlc_free(may_begin);
    dlc_net_free(outline);
    return status;
}

/* The trained parameters of a stage. */
static dlc_status count_parameters(const dlc_graph *graph, const dlc_net *outline,
                                   int32_t first, int32_t end, int64_t *count) {
    *count = 0;
    for (int32_t i = 0; i < dlc_net_rows(outline); i++) {
        dlc_net_row row;
        DLC_TRY(dlc_net_row_at(outline, i, &row));
        for (int32_t layer = first; layer < end; layer++)
            if (graph->layer[layer].name == row.name)
                *count += row.frozen ? 0 : row.parameters;
    }
    return DLC_OK;
}

static dlc_status check_stage_layers(const dlc_pipeline *pipeline,
                                     const dlc_net *outline) {
    const dlc_session *session = pipeline->session;
    const dlc_graph *graph = session->setup->graph;
    const dlc_stages *stages = &pipeline->stages;
    double whole = 0;
    for (int32_t s = 0; s < stages->mesh.pipeline; s++)
        whole += pipeline->work[s];
    for (int32_t s = 0; s < stages->mesh.pipeline; s++) {
        int32_t first = stages->first[s], end = stages->first[s + 1];
        int64_t parameters = 0;
        DLC_TRY(count_parameters(graph, outline, first, end, &parameters));
        if (session->rank == 0)
            dlc_info("stage %d, from rank %d on: layers %s to %s, %" PRId64
                     " parameters, about %.0f %% of the work",
                     (int)s + 1, (int)dlc_mesh_stage_first(&stages->mesh, s),
                     graph->layer[first].name, graph->layer[end - 1].name, parameters,
                     100 * pipeline->work[s] / whole);
    }
    return DLC_OK;
}

/* Batch statistics are computed over micro-batches. */
static void warn_of_statistics(const dlc_pipeline *pipeline, const dlc_net *outline) {
    const dlc_session *session = pipeline->session;
    for (int32_t i = 0; session->rank == 0 && i < dlc_net_params(outline); i++) {
        const dlc_net_param *param = dlc_net_param_at(outline, i);
        if (!param->is_buffer || param->is_frozen || pipeline->micro_batches == 1)
            continue;
        dlc_warn("%s and the like are statistics of a batch: they are computed over "
                 "micro-batches of %" PRId64 " samples, not of %" PRId64
                 " as without stages",
                 param->name, pipeline->micro_batch_size, session->local_batch);
        return;
    }
}

/* ---- The number of micro-batches --------------------------------------------- */

/* The work of a batch in so many micro-batches. It depends on the net and the mesh
 * alone, so that all ranks find the same, and a job that resumes elsewhere does. */
static dlc_status weigh_batch(dlc_pipeline *pipeline, const dlc_stage_cut *cut,
                              int64_t count, double *work) {
    const dlc_mesh *mesh = &pipeline->session->mesh;
    DLC_TRY(divide_batch(pipeline, count));
    DLC_TRY(cut_net(pipeline, cut, 0));
    *work = dlc_plan_stages_work(pipeline->work, mesh->stage_ranks, mesh->pipeline,
                                 pipeline->micro_batches);
    return DLC_OK;
}

/* Divides the batch into the fewest micro-batches that have about the least work. */
static dlc_status choose_count(dlc_pipeline *pipeline, const dlc_stage_cut *cut) {
    const dlc_session *session = pipeline->session;
    int64_t batch = batch_samples(session), most = most_ranks(&session->mesh);
    int64_t most_count = (int64_t)MOST_PER_STAGE * session->mesh.pipeline;
    int64_t best = 1, next = 0, each = 0;
    double work = INFINITY, next_work = INFINITY;
    for (int64_t count = 1; count <= most_count; count++) {
        int64_t last = each;
        double its;
        each = dlc_plan_micro_batch(batch, count, most);
        if (count > 1 && (each == 0 || each == last))
            continue;
        DLC_TRY(weigh_batch(pipeline, cut, count, &its));
        int is_better = its < (1 - MARGIN) * work;
        if (is_better || its < next_work) {
            next = is_better ? best : count;
            next_work = is_better ? work : its;
        }
        best = is_better ? count : best;
        work = is_better ? its : work;
    }
    if (session->rank == 0 && next > 0)
        dlc_info("micro_batches = %" PRId64
                 ", the fewest of about the least work; next "
                 "best: %" PRId64 ", %+.1f %%",
                 best, next, 100 * (next_work / work - 1));
    return divide_batch(pipeline, best);
}

/* Decides where the stages begin. */
static dlc_status cut_stages(dlc_pipeline *pipeline, const dlc_stage_cut *cut,
                             const dlc_net *outline) {
    DLC_TRY(cut_net(pipeline, cut, 1));
    DLC_TRY(check_stage_layers(pipeline, outline));
    warn_of_statistics(pipeline, outline);
    return DLC_OK;
}

/* `cut` NULL: the stages are known. */
static dlc_status plan_train(dlc_pipeline *pipeline, const dlc_stage_cut *cut) {
    const dlc_session *session = pipeline->session;
    const dlc_setup *setup = session->setup;
    dlc_net *outline = NULL;
    DLC_TRY(make_outline(session, DLC_PHASE_TRAIN, &setup->train,
                         pipeline->micro_batch_size, &outline));
    dlc_status status = cut ? cut_stages(pipeline, cut, outline) : DLC_OK;
    dlc_boundary_tensors_free(&pipeline->train);
    if (status == DLC_OK)
        status = dlc_boundary_tensors_find(
            &pipeline->stages, setup->graph, outline, DLC_PHASE_TRAIN,
            session->stage_samples.train, &pipeline->train);
    dlc_net_free(outline);
    return status;
}

static dlc_status plan_test(dlc_pipeline *pipeline) {
    const dlc_session *session = pipeline->session;
    const dlc_setup *setup = session->setup;
    dlc_net *outline = NULL;
    if (!setup->test.source)
        return DLC_OK;
    int64_t begin, count, samples = session->stage_samples.test;
    dlc_mesh_samples(&session->mesh, session->rank, samples, &begin, &count);
    DLC_TRY(make_outline(session, DLC_PHASE_TEST, &setup->test, count, &outline));
    dlc_boundary_tensors_free(&pipeline->test);
    dlc_status status = dlc_boundary_tensors_find(&pipeline->stages, setup->graph,
                                                  outline, DLC_PHASE_TEST, samples,
                                                  &pipeline->test);
    dlc_net_free(outline);
    return status;
}

/* Stages send results as soon as they are computed, so no iteration is submitted before
 * the one before it is done. */
static dlc_status plan_stages(dlc_session *session, const dlc_stage_cut *cut) {
    DLC_TRY(check_job(session));
    dlc_pipeline *pipeline = dlc_alloc(1, sizeof *pipeline);
    if (!pipeline)
        return DLC_ERR_NOMEM;
    session->pipeline = pipeline; /* freed when the session is closed */
    session->rules_out |= DLC_ALLOW_QUEUE | DLC_ALLOW_OVERLAP | DLC_ALLOW_REBALANCE;
    pipeline->session = session;
    pipeline->stages = (dlc_stages){
        .mesh = session->mesh,
        .rank = session->rank,
        .stage = dlc_mesh_place_of(&session->mesh, session->rank).stage};
    pipeline->order = (dlc_work_order){.stage = pipeline->stages.stage,
                                       .stages = session->mesh.pipeline};
    int64_t count = dlc_settings_get_int(session->setup->parallel_settings,
                                         "micro_batches");
    size_t stages = (size_t)session->mesh.pipeline;
    pipeline->stages.first = dlc_alloc(stages + 1, sizeof *pipeline->stages.first);
    pipeline->work = dlc_alloc(stages, sizeof *pipeline->work);
    if (!pipeline->stages.first || !pipeline->work)
        return DLC_ERR_NOMEM;
    DLC_TRY(count ? divide_batch(pipeline, count) : choose_count(pipeline, cut));
    DLC_TRY(plan_train(pipeline, cut));
    return plan_test(pipeline);
}

dlc_status dlc_pipeline_divide(dlc_pipeline *pipeline) {
    dlc_session *session = pipeline->session;
    const int64_t *count = session->setup->batch_split.count;
    if (!pipeline->proportion)
        pipeline->proportion = dlc_alloc((size_t)session->ranks,
                                         sizeof *pipeline->proportion);
    if (!pipeline->proportion)
        return DLC_ERR_NOMEM;
    for (int32_t r = 0; r < session->ranks; r++)
        pipeline->proportion[r] = (double)count[r];
    session->mesh.proportion = pipeline->proportion;
    pipeline->stages.mesh = session->mesh;
    DLC_TRY(divide_batch(pipeline, pipeline->micro_batches));
    DLC_TRY(plan_train(pipeline, NULL));
    return plan_test(pipeline);
}

int dlc_pipeline_needs_connection(const dlc_session *session) {
    dlc_stage_cut cut = {0};
    if (session->mesh.pipeline == 1 ||
        /* dlc_pipeline_plan reports it */
        dlc_stage_cut_parse(session->setup, &cut) != DLC_OK)
        return 0;
    int is_open = cut.first == NULL;
    dlc_stage_cut_free(&cut);
    return is_open;
}

dlc_status dlc_pipeline_plan(dlc_session *session) {
    const dlc_setup *setup = session->setup;
    dlc_stage_cut cut = {0};
    if (session->ranks == 1 && setup->mesh_sizes.pipeline != 1)
        dlc_info("one rank has the whole net: [parallel] pipeline is ignored");
    if (session->mesh.pipeline == 1)
        return DLC_OK;
    DLC_TRY(dlc_stage_cut_parse(setup, &cut));
    dlc_status status = plan_stages(session, &cut);
    dlc_stage_cut_free(&cut);
    return status;
}
