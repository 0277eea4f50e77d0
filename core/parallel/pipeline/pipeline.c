/* Opens and closes the pipeline of a session, and says what its nets and feeds are to
 * be. */
#include "parallel/pipeline/pipeline.h"

#include "checkpoint/shards.h"
#include "plugin/device_objects.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

/* ---- Nets and feeds ---------------------------------------------------------- */

/* Reports the current activity to the watchdog, and makes progress on messages, which
 * only move when they are polled. */
static dlc_status report_activity(void *context, const char *phase, const char *layer) {
    dlc_pipeline *pipeline = context;
    const dlc_session *session = pipeline->session;
    char name[64];
    (void)snprintf(name, sizeof name, "%.40s (micro-batch %d)", layer,
                   (int)pipeline->current);
    dlc_job_activity(session->job, phase, name, 0);
    if (pipeline->status == DLC_OK && pipeline->engine)
        pipeline->status = dlc_progress_engine_poll(pipeline->engine);
    return strcmp(phase, DLC_SETUP) == 0 ? dlc_job_check(session->job) : DLC_OK;
}

void dlc_pipeline_shape_net(dlc_pipeline *pipeline, dlc_net_args *args) {
    const dlc_stages *stages = &pipeline->stages;
    int trains = args->phase == DLC_PHASE_TRAIN;
    const dlc_boundary_tensors *boundary = trains ? &pipeline->train : &pipeline->test;
    args->first = stages->first[stages->stage];
    args->end = stages->first[stages->stage + 1];
    args->boundary_in = boundary->in;
    args->boundary_out = boundary->out;
    args->boundaries_in = boundary->ins;
    args->boundaries_out = boundary->outs;
    args->shared[DLC_PARAMS_WHOLE] = dlc_mesh_stage_ranks(&stages->mesh,
                                                          stages->stage) > 1;
    args->step_at = NULL; /* each micro-batch has its own */
    args->on_activity = report_activity;
    args->activity_context = pipeline;
    args->batch = boundary->rows;
    if (trains)
        args->micro_batch_buffers = dlc_work_order_max_in_flight(&pipeline->order);
}

int dlc_pipeline_reads_batch(const dlc_pipeline *pipeline, dlc_phase phase) {
    const dlc_graph *graph = pipeline->session->setup->graph;
    int reads = 0;
    for (int32_t i = 0; i < graph->fields; i++)
        reads |= dlc_stages_read(&pipeline->stages, graph, phase, i);
    return reads;
}

void dlc_pipeline_shape_feed(const dlc_pipeline *pipeline, dlc_feed_args *args) {
    dlc_phase phase = args->test ? DLC_PHASE_TEST : DLC_PHASE_TRAIN;
    const dlc_session *session = pipeline->session;
    int64_t begin, count,
        samples = args->test ? session->stage_samples.test
                             : session->stage_samples.train;
    dlc_mesh_samples(&session->mesh, session->rank, samples, &begin, &count);
    args->offset = begin;
    args->stride = samples;
    args->count = (int32_t)(args->test ? count : count * pipeline->micro_batches);
    if (!args->test)
        args->run = count;
    for (int32_t i = 0; i < session->setup->graph->fields; i++)
        if (!dlc_stages_read(&pipeline->stages, session->setup->graph, phase, i))
            args->fields.unread |= 1u << i;
}

/* Its messages to other stages must move on while layers wait. */
void dlc_pipeline_shape_group(const dlc_pipeline *pipeline,
                              dlc_session_layer_group *group) {
    const dlc_session *session = pipeline->session;
    dlc_mesh_group stage = dlc_mesh_stage_group(&session->mesh, session->rank);
    group->table.rank = session->rank - stage.first;
    group->table.ranks = stage.ranks;
    group->first = stage.first;
    group->engine = pipeline->engine;
}

/* ---- Opening ----------------------------------------------------------------- */

/* Replicas that may be in different iterations agree by the ranks of a column, which
 * pass each other's samples on; without columns they wait for each other anyway. */
static dlc_status connect_column(dlc_pipeline *pipeline, const dlc_comm_args *how) {
    const dlc_session *session = pipeline->session;
    dlc_mesh_group column = dlc_mesh_column(&session->mesh, session->rank);
    if (dlc_session_allows(session, DLC_ALLOW_COLLECTIVE) || column.ranks == 0)
        return DLC_OK;
    DLC_TRY(dlc_process_group_open(session->job, column, &pipeline->column));
    const dlc_comm_args args = dlc_process_group_args(&pipeline->column, how);
    DLC_TRY(dlc_comm_open(&args, &pipeline->column_comm));
    return dlc_process_group_finish(&pipeline->column);
}

dlc_status dlc_pipeline_connect(dlc_pipeline *pipeline) {
    dlc_session *session = pipeline->session;
    const dlc_comm_args *how = &session->connection.how;
    dlc_comm *comm = NULL;
    DLC_TRY(dlc_progress_engine_connect(how, 0, &pipeline->engine));
    session->model_norms.all = pipeline->engine;
    DLC_TRY(dlc_process_group_open(session->job,
                                   dlc_mesh_stage_group(&session->mesh, session->rank),
                                   &pipeline->group));
    const dlc_comm_args of_stage = dlc_process_group_args(&pipeline->group, how);
    DLC_TRY(dlc_comm_open(&of_stage, &comm));
    pipeline->world = session->connection.comm;
    session->connection.comm = comm;
    session->set[DLC_PARAMS_WHOLE].replicas = (dlc_replicas){
        .ranks = dlc_mesh_stage_group(&session->mesh, session->rank),
        .how = of_stage,
        .oob = pipeline->group.oob};
    DLC_TRY(dlc_process_group_finish(&pipeline->group));
    return connect_column(pipeline, how);
}

enum { TEST_SLOTS = 2 };

static int32_t train_slots(const dlc_pipeline *pipeline) {
    return dlc_work_order_max_in_flight(&pipeline->order) + 1;
}

static dlc_status open_stage_p2p(const dlc_pipeline *pipeline,
                                 const dlc_boundary_tensors *boundary, int32_t slots,
                                 dlc_stage_p2p **stage_p2p) {
    dlc_stage_p2p_args args = {.engine = pipeline->engine,
                               .device_ops = pipeline->session->device_ops,
                               .device = pipeline->session->device,
                               .boundary = boundary,
                               .slots = slots};
    return dlc_stage_p2p_open(&args, stage_p2p);
}

/* Gathers from all stages how much memory their micro-batches in flight need in
 * training. */
static dlc_status gather_memory(dlc_pipeline *pipeline) {
    const dlc_session *session = pipeline->session;
    const dlc_mesh *mesh = &session->mesh;
    uint64_t mine = dlc_net_memory_plan(session->net).activations +
                    dlc_stage_p2p_memory(pipeline->stage_p2p);
    dlc_free(pipeline->memory); /* of an earlier batch split */
    pipeline->memory = dlc_alloc((size_t)session->ranks, sizeof mine);
    if (!pipeline->memory)
        return DLC_ERR_NOMEM;
    DLC_TRY(dlc_job_all_gather(session->job, &mine, sizeof mine, pipeline->memory));
    for (int32_t s = 0; s < mesh->pipeline; s++)
        pipeline->memory[s] = pipeline->memory[dlc_mesh_stage_first(mesh, s)];
    return DLC_OK;
}

static dlc_status take_labels(dlc_pipeline *pipeline) {
    const dlc_net_fields *fields = dlc_net_batch_fields(pipeline->session->net);
    for (int32_t i = 0; i < fields->count; i++) {
        if (!fields->field[i].is_label)
            continue;
        pipeline->labels[i] = dlc_alloc((size_t)pipeline->micro_batch_size,
                                        dlc_net_field_bytes(&fields->field[i]));
        if (!pipeline->labels[i])
            return DLC_ERR_NOMEM;
    }
    return DLC_OK;
}

dlc_status dlc_pipeline_open(dlc_pipeline *pipeline) {
    dlc_session *session = pipeline->session;
    pipeline->order.fixed_order = session->mesh.tensor > 1 ||
                                  dlc_net_collective_layer(session->net) != NULL;
    DLC_TRY(dlc_device_alloc(session->device_ops, session->device,
                             DLC_CONTROL_WORDS * sizeof(float), 0,
                             &pipeline->control_words));
    DLC_TRY(take_labels(pipeline));
    DLC_TRY(open_stage_p2p(pipeline, &pipeline->train, train_slots(pipeline),
                           &pipeline->stage_p2p));
    if (session->test_net)
        DLC_TRY(open_stage_p2p(pipeline, &pipeline->test, TEST_SLOTS,
                               &pipeline->test_stage_p2p));
    DLC_TRY(gather_memory(pipeline));
    return dlc_shards_open(session, pipeline->engine);
}

uint64_t dlc_pipeline_bytes(const dlc_pipeline *pipeline) {
    uint64_t bytes = dlc_stage_p2p_bytes(&pipeline->train, train_slots(pipeline));
    if (pipeline->session->test_net)
        bytes += dlc_stage_p2p_bytes(&pipeline->test, TEST_SLOTS);
    return bytes;
}

void dlc_pipeline_find_part(const dlc_pipeline *pipeline, dlc_rank_part *part) {
    part->is_divided = 1;
    part->ranks = dlc_mesh_stage_ranks(&pipeline->stages.mesh, pipeline->stages.stage);
    part->samples = pipeline->micro_batch_size;
}

/* ---- Closing ----------------------------------------------------------------- */

/* Channels and communicators are closed while what uses them is still open. */
void dlc_pipeline_disconnect(dlc_pipeline *pipeline) {
    dlc_session *session = pipeline->session;
    dlc_shards_close(session);
    dlc_progress_engine_close(pipeline->engine);
    if (pipeline->world) {
        dlc_comm_close(session->connection.comm);
        session->connection.comm = pipeline->world;
    }
    pipeline->engine = NULL;
    pipeline->world = NULL;
    dlc_process_group_close(&pipeline->group);
    dlc_comm_close(pipeline->column_comm);
    pipeline->column_comm = NULL;
    dlc_process_group_close(&pipeline->column);
    dlc_stage_p2p_close(pipeline->test_stage_p2p);
    dlc_stage_p2p_close(pipeline->stage_p2p);
    pipeline->stage_p2p = pipeline->test_stage_p2p = NULL;
    dlc_device_free(session->device_ops, session->device, &pipeline->control_words);
    for (int32_t i = 0; i < DLC_NET_FIELDS; i++) {
        dlc_free(pipeline->labels[i]);
        pipeline->labels[i] = NULL;
    }
}

void dlc_pipeline_close(dlc_pipeline *pipeline) {
    if (!pipeline)
        return;
    dlc_boundary_tensors_free(&pipeline->test);
    dlc_boundary_tensors_free(&pipeline->train);
    dlc_stages_free(&pipeline->stages);
    dlc_free(pipeline->memory);
    dlc_free(pipeline->proportion);
    dlc_free(pipeline->work);
    dlc_free(pipeline);
}
