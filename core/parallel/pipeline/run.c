/* Runs the passes of a pipeline: micro-batches forward and backward in 1F1B order, and
 * tests. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "parallel/pipeline/pipeline.h"
#include "session/loss_shares.h"

/* ---- Waiting ----------------------------------------------------------------- */

static void report_wait(const dlc_pipeline *pipeline) {
    const dlc_work_order *order = &pipeline->order;
    char what[64];
    if (dlc_work_order_in_flight(order) > 0)
        (void)snprintf(what, sizeof what, "gradients of micro-batch %d",
                       (int)order->backward);
    else
        (void)snprintf(what, sizeof what, "inputs of micro-batch %d",
                       (int)order->forward);
    dlc_job_activity(pipeline->session->job, "wait for", what, 0);
}

/* ---- Forward ----------------------------------------------------------------- */

/* The position in the batch of the first of this rank's samples of a micro-batch. */
static int64_t first_sample(const dlc_pipeline *pipeline, int32_t k) {
    return pipeline->first_sample + k * pipeline->session->stage_samples.train;
}

/* How many samples that this rank has of a micro-batch are of the batch. */
static int64_t samples_counted(const dlc_pipeline *pipeline, int32_t k) {
    int64_t left = pipeline->session->global_batch - first_sample(pipeline, k);
    int64_t most = pipeline->micro_batch_size;
    return left < 0 ? 0 : left < most ? left : most;
}

/* The first of them in this rank's batch. */
static int64_t first_row_of_batch(const dlc_pipeline *pipeline, int32_t k) {
    return k * pipeline->micro_batch_size;
}

/* All micro-batches have the same size for the net. A smaller one is filled up with the
 * next samples of the source, whose labels are taken away, so that they count for
 * nothing. */
static const void *labels_of(const dlc_pipeline *pipeline, const void *labels,
                             int32_t k, int32_t field, size_t each) {
    int64_t counted = samples_counted(pipeline, k);
    if (counted == pipeline->micro_batch_size)
        return labels;
    char *own = pipeline->labels[field];
    memcpy(own, labels, (size_t)counted * each);
    memset(own + (size_t)counted * each, 0xff,
           (size_t)(pipeline->micro_batch_size - counted) * each);
    return own;
}

static dlc_status set_batch(const dlc_pipeline *pipeline, dlc_net *net,
                            const dlc_pass *pass, int32_t k) {
    const dlc_net_fields *fields = dlc_net_batch_fields(net);
    const void *value[DLC_NET_FIELDS];
    if (!pass->batch)
        return DLC_OK;
    size_t before = (size_t)first_row_of_batch(pipeline, k);
    for (int32_t i = 0; i < fields->count; i++) {
        size_t each = dlc_net_field_bytes(&fields->field[i]);
        value[i] = (const char *)pass->batch->field[i] + before * each;
        if (fields->field[i].is_label)
            value[i] = labels_of(pipeline, value[i], k, i, each);
    }
    return dlc_net_set_batch(net, value);
}

/* The batch is read in place, so it must be set again for backward; other devices have
 * copied it to the micro-batch's buffers. */
static int reads_in_place(const dlc_pipeline *pipeline) {
    return (pipeline->session->setup->device->caps & DLC_DEVICE_HOST) != 0;
}

static void enter(dlc_pipeline *pipeline, const dlc_pass *pass, int32_t k) {
    dlc_session *session = pipeline->session;
    dlc_net_micro_batch of_net = {
        .buffers = k % dlc_work_order_max_in_flight(&pipeline->order),
        .iteration = pass->iteration,
        .sample = first_sample(pipeline, k)};
    pipeline->current = k;
    dlc_stage_p2p_bind(pipeline->stage_p2p, k, &of_net);
    dlc_net_begin_micro_batch(session->net, &of_net);
}

/* While the ranks of a tensor group wait for each other inside a layer, messages to
 * other stages would not move, and these may be what others wait for. */
static dlc_status finish_sending(const dlc_pipeline *pipeline,
                                 const dlc_stage_p2p *stage_p2p) {
    if (pipeline->session->mesh.tensor == 1)
        return DLC_OK;
    while (dlc_stage_p2p_is_sending(stage_p2p))
        DLC_TRY(dlc_progress_engine_wait_any(pipeline->engine));
    return DLC_OK;
}

dlc_status dlc_pipeline_forward(dlc_pipeline *pipeline, const dlc_pass *pass,
                                int32_t k) {
    dlc_session *session = pipeline->session;
    uint64_t began = dlc_now_ns();
    enter(pipeline, pass, k);
    DLC_TRY(set_batch(pipeline, session->net, pass, k));
    DLC_TRY(dlc_net_forward(session->net, pass->iteration, first_sample(pipeline, k)));
    DLC_TRY(dlc_net_sync(session->net));
    DLC_TRY(dlc_session_add_loss(session, pass->iteration,
                                 first_row_of_batch(pipeline, k),
                                 samples_counted(pipeline, k), pass->loss));
    DLC_TRY(pipeline->status);
    DLC_TRY(dlc_stage_p2p_send(pipeline->stage_p2p, k));
    DLC_TRY(finish_sending(pipeline, pipeline->stage_p2p));
    pipeline->times.busy += dlc_since(began);
    dlc_work_order_done(&pipeline->order, DLC_WORK_FORWARD);
    return DLC_OK;
}

/* ---- Backward ---------------------------------------------------------------- */

/* The next micro-batch that gets the slot of `k`, which is free now. */
static dlc_status reuse_slot(dlc_pipeline *pipeline, int32_t k) {
    int32_t next = k + dlc_work_order_max_in_flight(&pipeline->order) + 1;
    return next < pipeline->order.micro_batches
               ? dlc_stage_p2p_post_receives(pipeline->stage_p2p, next)
               : DLC_OK;
}

dlc_status dlc_pipeline_backward(dlc_pipeline *pipeline, const dlc_pass *pass,
                                 int32_t k) {
    dlc_session *session = pipeline->session;
    dlc_net *net = session->net;
    uint64_t began = dlc_now_ns();
    DLC_TRY(dlc_stage_p2p_add_gradients(pipeline->stage_p2p, k));
    enter(pipeline, pass, k);
    if (reads_in_place(pipeline))
        DLC_TRY(set_batch(pipeline, net, pass, k));
    dlc_loss_shares_set(session, pass->iteration, first_row_of_batch(pipeline, k),
                        samples_counted(pipeline, k));
    DLC_TRY(dlc_net_backward(net, 1, pass->ready, pass->context));
    DLC_TRY(dlc_net_sync(net));
    DLC_TRY(pipeline->status);
    DLC_TRY(dlc_stage_p2p_return_gradients(pipeline->stage_p2p, k));
    DLC_TRY(reuse_slot(pipeline, k));
    DLC_TRY(finish_sending(pipeline, pipeline->stage_p2p));
    pipeline->times.busy += dlc_since(began);
    dlc_work_order_done(&pipeline->order, DLC_WORK_BACKWARD);
    return DLC_OK;
}

/* ---- Passes ---------------------------------------------------------------------- */

static dlc_work next_work(const dlc_pipeline *pipeline) {
    const dlc_work_order *order = &pipeline->order;
    const dlc_stage_p2p *stage_p2p = pipeline->stage_p2p;
    int can_forward = order->forward < order->micro_batches &&
                      dlc_stage_p2p_has_inputs(stage_p2p, order->forward) &&
                      dlc_stage_p2p_outputs_sent(stage_p2p, order->forward);
    int can_backward = order->backward < order->forward &&
                       dlc_stage_p2p_has_gradients(stage_p2p, order->backward);
    return dlc_work_order_next(order, can_forward, can_backward);
}

static dlc_status post_first_receives(dlc_pipeline *pipeline) {
    const dlc_work_order *order = &pipeline->order;
    for (int32_t k = 0;
         k <= dlc_work_order_max_in_flight(order) && k < order->micro_batches; k++)
        DLC_TRY(dlc_stage_p2p_post_receives(pipeline->stage_p2p, k));
    return DLC_OK;
}

dlc_status dlc_pipeline_begin_pass(dlc_pipeline *pipeline) {
    if (pipeline->passes++ == DLC_PIPELINE_WARM_UP)
        pipeline->times = (dlc_pipeline_times){0};
    pipeline->began = dlc_now_ns();
    pipeline->sent = dlc_stage_p2p_sent(pipeline->stage_p2p);
    pipeline->order.forward = pipeline->order.backward = 0;
    return post_first_receives(pipeline);
}

static void end_pass(dlc_pipeline *pipeline) {
    uint64_t sent = dlc_stage_p2p_sent(pipeline->stage_p2p) - pipeline->sent;
    pipeline->times.elapsed += dlc_since(pipeline->began);
    pipeline->times.sent += (double)sent;
}

dlc_status dlc_pipeline_next(dlc_pipeline *pipeline, dlc_work *work,
                             int32_t *micro_batch) {
    int waits = 0; /* reported once: each report counts as progress */
    for (;;) {
        DLC_TRY(dlc_job_check(pipeline->session->job));
        DLC_TRY(dlc_progress_engine_poll(pipeline->engine));
        *work = next_work(pipeline);
        if (*work != DLC_WORK_WAIT)
            break;
        if (!waits++)
            report_wait(pipeline);
        DLC_TRY(dlc_progress_engine_wait_any(pipeline->engine));
    }
    *micro_batch = *work == DLC_WORK_FORWARD ? pipeline->order.forward
                                             : pipeline->order.backward;
    if (*work == DLC_WORK_DONE)
        end_pass(pipeline);
    return DLC_OK;
}

/* ---- Control words ------------------------------------------------------------ */

/* Every rank of a stage has the stage's words. Those of the last stage have the loss;
 * only those count where each stage may agree in another iteration. */
static dlc_status reduce_words(const dlc_pipeline *pipeline, float *at, size_t bytes) {
    const dlc_session *session = pipeline->session;
    const dlc_mesh *mesh = &session->mesh;
    if (pipeline->column_comm)
        return dlc_comm_broadcast(pipeline->column_comm, mesh->pipeline - 1, at, bytes);
    if (!dlc_session_allows(session, DLC_ALLOW_COLLECTIVE))
        return dlc_comm_broadcast(pipeline->world, mesh->ranks - 1, at, bytes);
    if (session->rank != dlc_mesh_stage_group(mesh, session->rank).first)
        DLC_TRY(session->device_ops->fill(session->device, NULL, at, 0, bytes));
    return dlc_comm_all_reduce(pipeline->world, at, DLC_CONTROL_WORDS);
}

dlc_status dlc_pipeline_reduce_control(dlc_pipeline *pipeline,
                                       float words[DLC_CONTROL_WORDS]) {
    const dlc_session *session = pipeline->session;
    const size_t bytes = DLC_CONTROL_WORDS * sizeof *words;
    float *at = pipeline->control_words.base;
    dlc_job_activity(session->job, "reducing control words", NULL, 0);
    /* Gradients in flight to the previous stage go on meanwhile. */
    DLC_TRY(dlc_progress_engine_drain(pipeline->engine));
    uint64_t began = dlc_now_ns();
    DLC_TRY(session->device_ops->copy(session->device, NULL, at, words, bytes));
    DLC_TRY(reduce_words(pipeline, at, bytes));
    pipeline->waited += dlc_since(began);
    return session->device_ops->copy(session->device, NULL, words, at, bytes);
}

double dlc_pipeline_waited(const dlc_pipeline *pipeline) {
    return pipeline->waited + dlc_progress_engine_waited(pipeline->engine);
}

/* ---- Tests ------------------------------------------------------------------- */

static int is_metric_of_test(const dlc_graph_layer *layer) {
    return layer->phases & DLC_PHASE_TEST &&
           layer->feature->caps & (DLC_LAYER_METRIC | DLC_LAYER_LOSS);
}

/* Lists the metrics of the whole net, with sums of zero. */
static void list_stage_metrics(const dlc_session *session, dlc_evaluation *evaluation) {
    const dlc_graph *graph = session->setup->graph;
    evaluation->metrics = 0;
    for (int32_t i = 0; i < graph->layers && evaluation->metrics < DLC_MAX_METRICS;
         i++) {
        const dlc_graph_layer *layer = &graph->layer[i];
        if (is_metric_of_test(layer))
            evaluation->metric[evaluation->metrics++] = (dlc_metric){
                .name = layer->name,
                .is_loss = (layer->feature->caps & DLC_LAYER_LOSS) != 0,
                .weight = layer->loss_weight};
    }
}

static dlc_status add_metrics(const dlc_net *net, dlc_evaluation *evaluation) {
    for (int32_t i = 0; i < dlc_net_metrics(net); i++) {
        dlc_metric own;
        DLC_TRY(dlc_net_metric(net, i, &own));
        for (int32_t j = 0; j < evaluation->metrics; j++) {
            dlc_metric *metric = &evaluation->metric[j];
            if (metric->name != own.name) /* both are from the graph */
                continue;
            metric->sum += own.sum;
            metric->count += own.count;
        }
    }
    return DLC_OK;
}

/* The same on all ranks, even if their stages read none of them. */
static int64_t test_batches(const dlc_session *session) {
    int64_t samples = session->stage_samples.test;
    return (session->setup->test.info.samples + samples - 1) / samples;
}

static dlc_status wait_for_slot(dlc_pipeline *pipeline, int32_t k) {
    dlc_stage_p2p *stage_p2p = pipeline->test_stage_p2p;
    DLC_TRY(dlc_job_check(pipeline->session->job));
    DLC_TRY(dlc_progress_engine_poll(pipeline->engine));
    if (!dlc_stage_p2p_has_inputs(stage_p2p, k) ||
        !dlc_stage_p2p_outputs_sent(stage_p2p, k))
        dlc_job_activity(pipeline->session->job, "wait for", "a test batch", 0);
    while (!dlc_stage_p2p_has_inputs(stage_p2p, k) ||
           !dlc_stage_p2p_outputs_sent(stage_p2p, k))
        DLC_TRY(dlc_progress_engine_wait_any(pipeline->engine));
    return DLC_OK;
}

static dlc_status test_micro_batch(dlc_pipeline *pipeline, int32_t k,
                                   dlc_evaluation *evaluation) {
    dlc_session *session = pipeline->session;
    dlc_net_micro_batch of_net = {.iteration = session->iteration};
    DLC_TRY(wait_for_slot(pipeline, k));
    dlc_stage_p2p_bind(pipeline->test_stage_p2p, k, &of_net);
    dlc_net_begin_micro_batch(session->test_net, &of_net);
    if (session->test_feed) {
        dlc_batch batch;
        DLC_TRY(dlc_feed_next(session->test_feed, &batch));
        DLC_TRY(dlc_net_set_batch(session->test_net, batch.field));
    }
    pipeline->current = k;
    DLC_TRY(dlc_net_forward(session->test_net, session->iteration, 0));
    DLC_TRY(dlc_net_sync(session->test_net));
    DLC_TRY(pipeline->status);
    DLC_TRY(dlc_stage_p2p_send(pipeline->test_stage_p2p, k));
    DLC_TRY(finish_sending(pipeline, pipeline->test_stage_p2p));
    return add_metrics(session->test_net, evaluation);
}

dlc_status dlc_pipeline_test(dlc_pipeline *pipeline, dlc_evaluation *evaluation) {
    enum { SLOTS = 2 };
    const dlc_session *session = pipeline->session;
    list_stage_metrics(session, evaluation);
    int64_t batches = test_batches(session);
    if (session->test_feed)
        DLC_TRY(dlc_feed_seek(session->test_feed, 0));
    for (int32_t k = 0; k < SLOTS && k < batches; k++)
        DLC_TRY(dlc_stage_p2p_post_receives(pipeline->test_stage_p2p, k));
    for (int32_t k = 0; k < batches; k++) {
        DLC_TRY(test_micro_batch(pipeline, k, evaluation));
        if (k + SLOTS < batches)
            DLC_TRY(dlc_stage_p2p_post_receives(pipeline->test_stage_p2p, k + SLOTS));
    }
    return dlc_progress_engine_drain(pipeline->engine);
}
