/* Opens and closes the pipeline of a session, and says what its nets and feeds are to
 * be. */
#include "parallel/pipeline/pipeline.h"

#include <stdio.h>

#include "base/memory.h"

/* ---- Nets and feeds ---------------------------------------------------------- */

/* Reports the current activity to the watchdog, and makes progress on messages, which
 * only move when they are polled. */
static void report_activity(void *context, const char *phase, const char *layer) {
    dlc_pipeline *pipeline = context;
    const dlc_session *session = pipeline->session;
    char name[64];
    (void)snprintf(name, sizeof name, "%.40s (micro-batch %d)", layer,
                   (int)pipeline->current);
    dlc_job_activity(session->job, phase, name, 0);
    if (pipeline->status == DLC_OK && pipeline->engine)
        pipeline->status = dlc_progress_engine_poll(pipeline->engine);
}

void dlc_pipeline_shape_net(const dlc_session *session, dlc_net_args *args) {
    dlc_pipeline *pipeline = session->pipeline;
    if (!pipeline)
        return;
    const dlc_stages *stages = &pipeline->stages;
    int trains = args->phase == DLC_PHASE_TRAIN;
    const dlc_boundary_tensors *boundary = trains ? &pipeline->train : &pipeline->test;
    args->first = stages->first[stages->stage];
    args->end = stages->first[stages->stage + 1];
    args->boundary_in = boundary->in;
    args->boundary_out = boundary->out;
    args->boundaries_in = boundary->ins;
    args->boundaries_out = boundary->outs;
    args->shared = stages->replicas > 1;
    args->step_at = NULL; /* each micro-batch has its own */
    args->on_activity = report_activity;
    args->activity_context = pipeline;
    if (trains) {
        args->batch = pipeline->micro_batch_size;
        args->micro_batch_buffers = dlc_schedule_1f1b_max_in_flight(
            &pipeline->schedule);
    }
}

int dlc_pipeline_reads_batch(const dlc_session *session, dlc_phase phase) {
    const dlc_pipeline *pipeline = session->pipeline;
    const dlc_graph *graph = session->setup->graph;
    return !pipeline || dlc_stages_read(&pipeline->stages, graph, phase, 0) ||
           dlc_stages_read(&pipeline->stages, graph, phase, 1);
}

void dlc_pipeline_shape_feed(const dlc_session *session, dlc_feed_args *args) {
    const dlc_pipeline *pipeline = session->pipeline;
    if (!pipeline)
        return;
    dlc_phase phase = args->test ? DLC_PHASE_TEST : DLC_PHASE_TRAIN;
    args->rank = pipeline->stages.replica;
    args->ranks = pipeline->stages.replicas;
    args->labels_only = !dlc_stages_read(&pipeline->stages, session->setup->graph,
                                         phase, 0);
}

/* ---- Opening ----------------------------------------------------------------- */

dlc_status dlc_pipeline_connect(dlc_session *session) {
    dlc_pipeline *pipeline = session->pipeline;
    if (!pipeline)
        return DLC_OK;
    const dlc_stages *stages = &pipeline->stages;
    const dlc_comm_args *how = &session->connection.how;
    dlc_comm *comm = NULL;
    DLC_TRY(dlc_progress_engine_connect(how, 0, &pipeline->engine));
    DLC_TRY(dlc_process_group_open(session->job, stages->stage * stages->replicas,
                                   stages->replicas, &pipeline->group));
    DLC_TRY(dlc_process_group_connect(&pipeline->group, how, &comm));
    pipeline->world = session->connection.comm;
    session->connection.comm = comm;
    return dlc_process_group_finish(&pipeline->group);
}

static dlc_status take(const dlc_session *session, size_t count, dlc_memory *memory) {
    *memory = (dlc_memory){.size = sizeof *memory};
    return session->device_ops->alloc(session->device, count * sizeof(float), 0,
                                      memory);
}

enum { TEST_SLOTS = 2 };

static int32_t train_slots(const dlc_pipeline *pipeline) {
    return dlc_schedule_1f1b_max_in_flight(&pipeline->schedule) + 1;
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
static dlc_status gather_memory(dlc_session *session) {
    dlc_pipeline *pipeline = session->pipeline;
    size_t replicas = (size_t)pipeline->stages.replicas;
    uint64_t mine = dlc_net_memory_plan(session->net).activations +
                    dlc_stage_p2p_memory(pipeline->stage_p2p);
    pipeline->memory = dlc_alloc((size_t)session->ranks, sizeof mine);
    if (!pipeline->memory)
        return DLC_ERR_NOMEM;
    DLC_TRY(dlc_job_all_gather(session->job, &mine, sizeof mine, pipeline->memory));
    for (size_t s = 0; s < (size_t)pipeline->stages.stages; s++)
        pipeline->memory[s] = pipeline->memory[s * replicas];
    return DLC_OK;
}

dlc_status dlc_pipeline_open(dlc_session *session) {
    dlc_pipeline *pipeline = session->pipeline;
    if (!pipeline)
        return DLC_OK;
    DLC_TRY(dlc_process_group_finish(&pipeline->group));
    DLC_TRY(take(session, DLC_CONTROL_WORDS, &pipeline->control_words));
    if (pipeline->micro_batches > 1)
        DLC_TRY(take(session, dlc_net_arenas(session->net)->count, &pipeline->sum));
    DLC_TRY(open_stage_p2p(pipeline, &pipeline->train, train_slots(pipeline),
                           &pipeline->stage_p2p));
    if (session->test_net)
        DLC_TRY(open_stage_p2p(pipeline, &pipeline->test, TEST_SLOTS,
                               &pipeline->test_stage_p2p));
    return gather_memory(session);
}

void dlc_pipeline_add_memory(const dlc_session *session, dlc_session_memory *memory) {
    const dlc_pipeline *pipeline = session->pipeline;
    if (!pipeline)
        return;
    memory->activations += dlc_stage_p2p_bytes(&pipeline->train, train_slots(pipeline));
    if (session->test_net)
        memory->activations += dlc_stage_p2p_bytes(&pipeline->test, TEST_SLOTS);
    if (pipeline->micro_batches > 1)
        memory->gradients += memory->gradients;
}

void dlc_pipeline_disconnect(dlc_session *session) {
    dlc_pipeline *pipeline = session->pipeline;
    if (!pipeline)
        return;
    dlc_progress_engine_close(pipeline->engine);
    if (pipeline->world) {
        dlc_comm_close(session->connection.comm);
        session->connection.comm = pipeline->world;
    }
    dlc_process_group_close(&pipeline->group);
    dlc_stage_p2p_close(pipeline->test_stage_p2p);
    dlc_stage_p2p_close(pipeline->stage_p2p);
    if (pipeline->control_words.base)
        session->device_ops->free(session->device, &pipeline->control_words);
    if (pipeline->sum.base)
        session->device_ops->free(session->device, &pipeline->sum);
}

void dlc_pipeline_free(dlc_session *session) {
    dlc_pipeline *pipeline = session->pipeline;
    if (!pipeline)
        return;
    dlc_boundary_tensors_free(&pipeline->test);
    dlc_boundary_tensors_free(&pipeline->train);
    dlc_stages_free(&pipeline->stages);
    dlc_free(pipeline->memory);
    dlc_free(pipeline->work);
    dlc_free(pipeline);
    session->pipeline = NULL;
}
