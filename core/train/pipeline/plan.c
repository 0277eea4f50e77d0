/* What a pipeline is to be: who has which layers, and how a batch is cut. See
 * pipeline.h. */
#include <inttypes.h>

#include "base/log.h"
#include "base/memory.h"
#include "train/measure.h"
#include "train/pipeline/pipeline.h"
#include "train/pipeline/stage_cut.h"

/* ---- May it be? -------------------------------------------------------------- */

static dlc_status check_ranks(const dlc_session *session, int32_t stages) {
    if (session->ranks % stages == 0)
        return DLC_OK;
    return dlc_fail(
        DLC_ERR_CONFIG,
        "%s: %d ranks cannot be shared out among %d stages; take a multiple "
        "of %d ranks, or other stages",
        dlc_settings_where(session->setup->parallel_settings, "stages"), (int)session->ranks,
        (int)stages, (int)stages);
}

static int has_split_layers(const dlc_graph *graph) {
    for (int32_t i = 0; i < graph->layers; i++)
        if (graph->layer[i].parallel != DLC_PARALLEL_DATA)
            return 1;
    return 0;
}

static dlc_status check_job(const dlc_session *session) {
    const dlc_setup *setup = session->setup;
    const char *where = dlc_settings_where(setup->parallel_settings, "stages");
    if (session->asynchronous)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "%s: solver '%s' lets ranks go ahead of each other, which stages "
            "cannot; take another solver, or leave stages out",
            where, setup->solver->name);
    if (!session->needs.shards)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s: solver '%s', as it is set, needs all gradients on one "
                        "rank, and no stage has all; leave out what needs them "
                        "(clip_gradients), or leave stages out",
                        where, setup->solver->name);
    if (setup->shares.measured || setup->shares.proportions)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s: [parallel] batch_split other than equal cannot be had along with "
                        "stages; leave one of them out",
                        where);
    if (has_split_layers(setup->graph))
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s: layers with parallel = tensor or auto cannot be had along "
                        "with stages; take parallel = data, or leave stages out",
                        where);
    if (dlc_settings_is(setup->train_settings, "precision", "fp16"))
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s: half precision scales all gradients alike, and no stage "
                        "has all; take [train] precision = bf16, or leave stages out",
                        where);
    return DLC_OK;
}

/* ---- Shares ------------------------------------------------------------------ */

/* Twice as many as there are stages, or what comes near it and divides `share`. */
static int64_t choose_sub_batches(int64_t share, int64_t stages) {
    for (int64_t m = 2 * stages; m <= 4 * stages && m <= share; m++)
        if (share % m == 0)
            return m;
    int64_t m = 2 * stages < share ? 2 * stages : share;
    while (share % m != 0)
        m--;
    return m;
}

/* A replica's stretch of the batch is that of a rank in a job without stages. */
static dlc_status share_batch(dlc_session *session) {
    const dlc_setup *setup = session->setup;
    dlc_pipeline *pipeline = session->pipeline;
    int64_t replicas = pipeline->stages.replicas, r = pipeline->stages.replica;
    int64_t batch = setup->strong ? setup->train.batch : setup->train.batch * replicas;
    int64_t common = batch / replicas;
    if (batch % replicas != 0)
        common = 1; /* shares differ by one */
    session->global_batch = batch;
    session->share_offset = batch * r / replicas;
    session->share = batch * (r + 1) / replicas - session->share_offset;
    int64_t wanted = dlc_settings_get_int(setup->parallel_settings, "micro_batches");
    if (session->share == 0 || (wanted > 0 && common % wanted != 0))
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s: a share of %" PRId64 " samples cannot be cut into %" PRId64
                        " sub-batches of one size; take a number that divides it",
                        dlc_settings_where(setup->parallel_settings, "micro_batches"), session->share,
                        wanted > 0 ? wanted : 1);
    int64_t count = wanted > 0 ? wanted
                               : choose_sub_batches(common, pipeline->stages.stages);
    dlc_shape sample;
    DLC_TRY(dlc_setup_sample_shape(&setup->train, &sample));
    pipeline->sample = dlc_shape_count(&sample);
    pipeline->sub_batches = (int32_t)count;
    pipeline->sub_batch = session->share / count;
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
    DLC_TRY(dlc_setup_sample_shape(data, &args.sample));
    return dlc_net_build(&args, outline);
}

/* Of what crosses, by the link as measured; all free where there are no peers. */
static dlc_status price_crossings(const dlc_session *session, const dlc_net *outline,
                                  double *crossing) {
    const dlc_setup *setup = session->setup;
    dlc_measured measured;
    dlc_shape sample;
    if (session->is_plan)
        return DLC_OK;
    DLC_TRY(dlc_measure(session, &measured));
    DLC_TRY(dlc_setup_sample_shape(&setup->train, &sample));
    return dlc_stage_cut_price(setup->graph, outline, session->pipeline->sub_batch,
                               &sample, dlc_plan_slowest(&measured.cluster),
                               measured.speed.bytes, crossing);
}

static dlc_status cut_by_work(const dlc_session *session, const dlc_net *outline,
                              const double *work, const char *may_begin, int32_t stages,
                              int32_t *first) {
    const dlc_setup *setup = session->setup;
    int32_t layers = setup->graph->layers;
    double *crossing = dlc_alloc((size_t)layers, sizeof *crossing);
    dlc_status status = crossing ? price_crossings(session, outline, crossing)
                                 : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = dlc_stage_cut_balance(work, may_begin, crossing, layers, stages,
                                       first);
    dlc_free(crossing);
    if (DLC_STATUS_CLASS(status) != DLC_STATUS_CLASS(DLC_ERR_CONFIG))
        return status;
    return dlc_fail(status, "%s: %s", dlc_settings_where(setup->parallel_settings, "stages"),
                    dlc_detail());
}

/* Of each stage, what it has of one number a layer. */
static dlc_status sum_work(dlc_pipeline *pipeline, const double *work) {
    const dlc_stages *stages = &pipeline->stages;
    pipeline->work = dlc_alloc((size_t)stages->stages, sizeof *pipeline->work);
    if (!pipeline->work)
        return DLC_ERR_NOMEM;
    for (int32_t s = 0; s < stages->stages; s++)
        for (int32_t i = stages->first[s]; i < stages->first[s + 1]; i++)
            pipeline->work[s] += work[i];
    return DLC_OK;
}

/* As [train] says, or by work; rank 0's cut is everybody's. */
static dlc_status cut_net(dlc_session *session, const dlc_stage_cut *cut,
                          const dlc_net *outline) {
    const dlc_graph *graph = session->setup->graph;
    dlc_stages *stages = &session->pipeline->stages;
    size_t edges = (size_t)stages->stages + 1;
    double *work = NULL;
    char *may_begin = NULL;
    stages->first = dlc_alloc(edges, sizeof *stages->first);
    if (!stages->first)
        return DLC_ERR_NOMEM;
    DLC_TRY(dlc_stage_cut_weigh(graph, outline, &work, &may_begin));
    dlc_status status = DLC_OK;
    for (size_t s = 0; cut->first && s < edges; s++)
        stages->first[s] = cut->first[s];
    if (!cut->first)
        status = cut_by_work(session, outline, work, may_begin, stages->stages,
                             stages->first);
    if (status == DLC_OK)
        status = dlc_job_broadcast(session->job, 0, stages->first,
                                   edges * sizeof *stages->first);
    if (status == DLC_OK)
        status = sum_work(session->pipeline, work);
    dlc_free(work);
    dlc_free(may_begin);
    return status;
}

/* Trained numbers of a stage. */
static dlc_status count_parameters(const dlc_graph *graph, const dlc_net *outline,
                                   int32_t first, int32_t end, int64_t *count) {
    *count = 0;
    for (int32_t i = 0; i < dlc_net_rows(outline); i++) {
        dlc_net_row row;
        DLC_TRY(dlc_net_row_at(outline, i, &row));
        for (int32_t layer = first; layer < end; layer++)
            if (graph->layer[layer].name == row.name)
                *count += row.parameters;
    }
    return DLC_OK;
}

static dlc_status check_stages(const dlc_session *session, const dlc_net *outline) {
    const dlc_graph *graph = session->setup->graph;
    const dlc_pipeline *pipeline = session->pipeline;
    const dlc_stages *stages = &pipeline->stages;
    double whole = 0;
    for (int32_t s = 0; s < stages->stages; s++)
        whole += pipeline->work[s];
    for (int32_t s = 0; s < stages->stages; s++) {
        int32_t first = stages->first[s], end = stages->first[s + 1];
        int64_t parameters = 0;
        DLC_TRY(count_parameters(graph, outline, first, end, &parameters));
        if (parameters == 0)
            return dlc_fail(DLC_ERR_CONFIG,
                            "%s: the stage that begins with layer '%s' has nothing to "
                            "train; begin it, or the one after it, elsewhere",
                            dlc_settings_where(session->setup->parallel_settings, "stages"),
                            graph->layer[first].name);
        if (session->rank == 0)
            dlc_info("stage %d, from rank %d on: layers %s to %s, %" PRId64
                     " parameters, about %.0f %% of the work",
                     (int)s + 1, (int)(s * stages->replicas), graph->layer[first].name,
                     graph->layer[end - 1].name, parameters,
                     100 * pipeline->work[s] / whole);
    }
    return DLC_OK;
}

/* What is computed over a batch is computed over less of it. */
static void warn_of_statistics(const dlc_session *session, const dlc_net *outline) {
    for (int32_t i = 0; session->rank == 0 && i < dlc_net_params(outline); i++) {
        const dlc_net_param *param = dlc_net_param_at(outline, i);
        if (!param->is_buffer || session->pipeline->sub_batches == 1)
            continue;
        dlc_warn("%s and the like are statistics of a batch: they are taken of "
                 "sub-batches of %" PRId64 " samples, not of %" PRId64
                 " as without stages",
                 param->name, session->pipeline->sub_batch, session->share);
        return;
    }
}

static dlc_status plan_train(dlc_session *session, const dlc_stage_cut *cut) {
    dlc_pipeline *pipeline = session->pipeline;
    const dlc_setup *setup = session->setup;
    dlc_net *outline = NULL;
    DLC_TRY(make_outline(session, DLC_PHASE_TRAIN, &setup->train, pipeline->sub_batch,
                         &outline));
    dlc_status status = cut_net(session, cut, outline);
    if (status == DLC_OK)
        status = check_stages(session, outline);
    if (status == DLC_OK) {
        warn_of_statistics(session, outline);
        status = dlc_crossings_find(&pipeline->stages, setup->graph, outline,
                                    DLC_PHASE_TRAIN, &pipeline->train);
    }
    dlc_net_free(outline);
    return status;
}

static dlc_status plan_test(dlc_session *session) {
    dlc_pipeline *pipeline = session->pipeline;
    const dlc_setup *setup = session->setup;
    dlc_net *outline = NULL;
    if (!setup->test.source)
        return DLC_OK;
    DLC_TRY(make_outline(session, DLC_PHASE_TEST, &setup->test, setup->test.batch,
                         &outline));
    dlc_status status = dlc_crossings_find(&pipeline->stages, setup->graph, outline,
                                           DLC_PHASE_TEST, &pipeline->test);
    dlc_net_free(outline);
    return status;
}

static dlc_status plan(dlc_session *session, const dlc_stage_cut *cut) {
    int32_t count = cut->stages ? cut->stages : session->ranks;
    if (count == 1)
        return DLC_OK;
    if (session->ranks == 1) { /* one who goes on alone, or measures layers */
        dlc_info("one rank has the whole net: [parallel] stages does not count");
        return DLC_OK;
    }
    DLC_TRY(check_ranks(session, count));
    DLC_TRY(check_job(session));
    dlc_pipeline *pipeline = dlc_alloc(1, sizeof *pipeline);
    if (!pipeline)
        return DLC_ERR_NOMEM;
    session->pipeline = pipeline; /* closed with the session */
    pipeline->session = session;
    int32_t replicas = session->ranks / count;
    pipeline->stages = (dlc_stages){.stages = count,
                                    .replicas = replicas,
                                    .stage = session->rank / replicas,
                                    .replica = session->rank % replicas};
    DLC_TRY(share_batch(session));
    pipeline->turns = (dlc_turns){.stage = pipeline->stages.stage,
                                  .stages = count,
                                  .sub_batches = pipeline->sub_batches};
    DLC_TRY(plan_train(session, cut));
    return plan_test(session);
}

int dlc_pipeline_is_open(const dlc_session *session) {
    dlc_stage_cut cut = {0};
    if (session->ranks == 1 || session->is_plan ||
        !dlc_stage_cut_is_wanted(session->setup) ||
        dlc_stage_cut_parse(session->setup, &cut) != DLC_OK) /* said by the plan */
        return 0;
    int is_open = cut.first == NULL;
    dlc_stage_cut_free(&cut);
    return is_open;
}

dlc_status dlc_pipeline_plan(dlc_session *session) {
    dlc_stage_cut cut = {0};
    if (!dlc_stage_cut_is_wanted(session->setup))
        return DLC_OK;
    dlc_status status = dlc_stage_cut_parse(session->setup, &cut);
    if (status == DLC_OK)
        status = plan(session, &cut);
    dlc_stage_cut_free(&cut);
    return status;
}
