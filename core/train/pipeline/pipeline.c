/* A pipeline in the session: opened, closed, and what nets and feeds are to be. See
 * pipeline.h. */
#include "train/pipeline/pipeline.h"

#include <stdio.h>

#include "base/memory.h"

/* ---- Nets and feeds ---------------------------------------------------------- */

/* Tells what is at work; and as messages move only when somebody looks, looks. */
static void watch(void *context, const char *phase, const char *layer) {
    dlc_pipeline *pipeline = context;
    const dlc_session *session = pipeline->session;
    char name[64];
    (void)snprintf(name, sizeof name, "%.40s (sub-batch %d)", layer, (int)pipeline->at);
    dlc_job_doing(session->job, phase, name, 0);
    if (pipeline->status == DLC_OK && pipeline->wires)
        pipeline->status = dlc_wires_poll(pipeline->wires);
    if (pipeline->status == DLC_OK && pipeline->test_wires)
        pipeline->status = dlc_wires_poll(pipeline->test_wires);
}

void dlc_pipeline_shape_net(const dlc_session *session, dlc_net_args *args) {
    dlc_pipeline *pipeline = session->pipeline;
    if (!pipeline)
        return;
    const dlc_stages *stages = &pipeline->stages;
    int trains = args->phase == DLC_PHASE_TRAIN;
    const dlc_crossings *crossings = trains ? &pipeline->train : &pipeline->test;
    args->first = stages->first[stages->stage];
    args->end = stages->first[stages->stage + 1];
    args->port_in = crossings->in;
    args->port_out = crossings->out;
    args->ports_in = crossings->ins;
    args->ports_out = crossings->outs;
    args->shared = stages->replicas > 1;
    args->step_at = NULL; /* every sub-batch has its own */
    args->watch = watch;
    args->watch_context = pipeline;
    if (trains) {
        args->batch = pipeline->sub_batch;
        args->lanes = dlc_turns_most(&pipeline->turns);
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
    DLC_TRY(dlc_mailbox_open(how, &pipeline->mail));
    DLC_TRY(dlc_circle_open(session->job, stages->stage * stages->replicas,
                            stages->replicas, &pipeline->circle));
    DLC_TRY(dlc_circle_connect(&pipeline->circle, how, &comm));
    pipeline->all = session->connection.comm;
    session->connection.comm = comm;
    return dlc_circle_settle(&pipeline->circle);
}

const dlc_mail *dlc_pipeline_mail(const dlc_session *session) {
    return dlc_mailbox_table(session->pipeline->mail);
}

static dlc_status take(const dlc_session *session, size_t count, dlc_memory *memory) {
    *memory = (dlc_memory){.size = sizeof *memory};
    return session->device_ops->alloc(session->device, count * sizeof(float), 0,
                                      memory);
}

enum { TEST_SLOTS = 2 };

static int32_t train_slots(const dlc_pipeline *pipeline) {
    return dlc_turns_most(&pipeline->turns) + 1;
}

static dlc_status open_wires(const dlc_pipeline *pipeline,
                             const dlc_crossings *crossings, int32_t slots,
                             dlc_wires **wires) {
    dlc_wires_args args = {.mail = dlc_mailbox_table(pipeline->mail),
                           .device_ops = pipeline->session->device_ops,
                           .device = pipeline->session->device,
                           .crossings = crossings,
                           .slots = slots};
    return dlc_wires_open(&args, wires);
}

/* What sub-batches take that are under way, in training; of all stages. */
static dlc_status gather_memory(dlc_session *session) {
    dlc_pipeline *pipeline = session->pipeline;
    size_t replicas = (size_t)pipeline->stages.replicas;
    uint64_t mine = dlc_net_memory_plan(session->net).activations +
                    dlc_wires_memory(pipeline->wires);
    pipeline->memory = dlc_alloc((size_t)session->ranks, sizeof mine);
    if (!pipeline->memory)
        return DLC_ERR_NOMEM;
    DLC_TRY(dlc_job_allgather(session->job, &mine, sizeof mine, pipeline->memory));
    for (size_t s = 0; s < (size_t)pipeline->stages.stages; s++)
        pipeline->memory[s] = pipeline->memory[s * replicas];
    return DLC_OK;
}

dlc_status dlc_pipeline_open(dlc_session *session) {
    dlc_pipeline *pipeline = session->pipeline;
    if (!pipeline)
        return DLC_OK;
    DLC_TRY(dlc_circle_settle(&pipeline->circle));
    DLC_TRY(take(session, DLC_ARENA_TAIL, &pipeline->words));
    if (pipeline->sub_batches > 1)
        DLC_TRY(take(session, dlc_net_arenas(session->net)->count, &pipeline->sum));
    DLC_TRY(open_wires(pipeline, &pipeline->train, train_slots(pipeline),
                       &pipeline->wires));
    if (session->test_net)
        DLC_TRY(
            open_wires(pipeline, &pipeline->test, TEST_SLOTS, &pipeline->test_wires));
    return gather_memory(session);
}

void dlc_pipeline_add_memory(const dlc_session *session, dlc_session_memory *memory) {
    const dlc_pipeline *pipeline = session->pipeline;
    if (!pipeline)
        return;
    memory->activations += dlc_wires_bytes(&pipeline->train, train_slots(pipeline));
    if (session->test_net)
        memory->activations += dlc_wires_bytes(&pipeline->test, TEST_SLOTS);
    if (pipeline->sub_batches > 1)
        memory->gradients += memory->gradients;
}

void dlc_pipeline_leave(dlc_session *session) {
    dlc_pipeline *pipeline = session->pipeline;
    if (!pipeline)
        return;
    dlc_mailbox_close(pipeline->mail);
    if (pipeline->all) {
        dlc_comm_close(session->connection.comm);
        session->connection.comm = pipeline->all;
    }
    dlc_circle_close(&pipeline->circle);
    dlc_wires_close(pipeline->test_wires);
    dlc_wires_close(pipeline->wires);
    if (pipeline->words.base)
        session->device_ops->free(session->device, &pipeline->words);
    if (pipeline->sum.base)
        session->device_ops->free(session->device, &pipeline->sum);
}

void dlc_pipeline_free(dlc_session *session) {
    dlc_pipeline *pipeline = session->pipeline;
    if (!pipeline)
        return;
    dlc_crossings_free(&pipeline->test);
    dlc_crossings_free(&pipeline->train);
    dlc_stages_free(&pipeline->stages);
    dlc_free(pipeline->memory);
    dlc_free(pipeline->work);
    dlc_free(pipeline);
    session->pipeline = NULL;
}
