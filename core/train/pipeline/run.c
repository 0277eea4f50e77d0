/* Passes of a pipeline: see pipeline.h. */
#include <stdio.h>

#include "base/clock.h"
#include "train/pipeline/pipeline.h"

/* ---- Waiting ----------------------------------------------------------------- */

static void say_wait(const dlc_pipeline *pipeline) {
    const dlc_turns *turns = &pipeline->turns;
    char what[64];
    if (dlc_turns_under_way(turns) > 0)
        (void)snprintf(what, sizeof what, "gradients of sub-batch %d",
                       (int)turns->backward);
    else
        (void)snprintf(what, sizeof what, "inputs of sub-batch %d",
                       (int)turns->forward);
    dlc_job_doing(pipeline->session->job, "wait for", what, 0);
}

/* ---- Forward ----------------------------------------------------------------- */

static dlc_status show_batch(const dlc_pipeline *pipeline, dlc_net *net,
                             const dlc_pipeline_batch *batch, int32_t k) {
    int64_t before = k * pipeline->sub_batch;
    if (!batch->data)
        return DLC_OK;
    return dlc_net_set_input(net, batch->data + before * pipeline->sample,
                             batch->labels + before);
}

/* Where the batch was copied to the lane, it is still there in backward. */
static int reads_in_place(const dlc_pipeline *pipeline) {
    return (pipeline->session->setup->device->caps & DLC_DEVICE_HOST) != 0;
}

static void enter(dlc_pipeline *pipeline, const dlc_pipeline_batch *batch, int32_t k) {
    dlc_session *session = pipeline->session;
    dlc_net_pass pass = {.lane = k % dlc_turns_most(&pipeline->turns),
                         .iteration = batch->iteration,
                         .sample = session->share_offset +
                                   (int64_t)k * pipeline->sub_batch};
    pipeline->at = k;
    dlc_wires_point(pipeline->wires, k, &pass);
    dlc_net_enter(session->net, &pass);
}

static dlc_status add_loss(const dlc_pipeline *pipeline,
                           const dlc_pipeline_batch *batch) {
    const dlc_net *net = pipeline->session->net;
    for (int32_t i = 0; i < dlc_net_metrics(net); i++) {
        dlc_metric metric;
        DLC_TRY(dlc_net_metric(net, i, &metric));
        if (metric.is_loss && metric.count > 0)
            *batch->loss += batch->loss_share * metric.weight * metric.sum /
                            metric.count;
    }
    return DLC_OK;
}

static dlc_status forward(dlc_pipeline *pipeline, const dlc_pipeline_batch *batch) {
    dlc_session *session = pipeline->session;
    int32_t k = pipeline->turns.forward;
    enter(pipeline, batch, k);
    DLC_TRY(show_batch(pipeline, session->net, batch, k));
    DLC_TRY(dlc_net_forward(session->net, batch->iteration,
                            session->share_offset + (int64_t)k * pipeline->sub_batch));
    DLC_TRY(dlc_net_sync(session->net));
    DLC_TRY(add_loss(pipeline, batch));
    DLC_TRY(pipeline->status);
    return dlc_wires_send(pipeline->wires, k);
}

/* ---- Backward ---------------------------------------------------------------- */

typedef struct filled {
    dlc_pipeline *pipeline;
    const dlc_pipeline_batch *batch;
} filled;

/* The gradients of a sub-batch are there up to `elements`: they are added to those
 * before it while they are warm, and of the last one all can go on. */
static dlc_status add_gradients(void *context, size_t elements) {
    const filled *what = context;
    dlc_pipeline *pipeline = what->pipeline;
    const dlc_session *session = pipeline->session;
    float *sum = dlc_net_arenas(session->net)->gradients;
    const float *own = pipeline->sum.base;
    size_t from = pipeline->added;
    pipeline->added = elements > from ? elements : from;
    if (pipeline->at > 0 && elements > from)
        DLC_TRY(session->device_ops->add(session->device, session->queue,
                                         elements - from, own + from, sum + from));
    int is_last = pipeline->at == pipeline->turns.sub_batches - 1;
    return is_last ? what->batch->ready(what->batch->context, elements) : DLC_OK;
}

static dlc_status backward(dlc_pipeline *pipeline, const dlc_pipeline_batch *batch) {
    dlc_net *net = pipeline->session->net;
    int32_t k = pipeline->turns.backward;
    filled what = {pipeline, batch};
    pipeline->added = 0;
    DLC_TRY(dlc_wires_add_gradients(pipeline->wires, k));
    dlc_net_write_gradients(net, k > 0 ? pipeline->sum.base : NULL);
    enter(pipeline, batch, k);
    if (reads_in_place(pipeline))
        DLC_TRY(show_batch(pipeline, net, batch, k));
    DLC_TRY(dlc_net_backward(net, (float)batch->share, add_gradients, &what));
    DLC_TRY(dlc_net_sync(net));
    DLC_TRY(pipeline->status);
    DLC_TRY(dlc_wires_give_back(pipeline->wires, k));
    int32_t next = k + dlc_turns_most(&pipeline->turns) + 1; /* its slot is free now */
    return next < pipeline->turns.sub_batches ? dlc_wires_expect(pipeline->wires, next)
                                              : DLC_OK;
}

/* ---- A pass ------------------------------------------------------------------ */

static dlc_turn next_turn(const dlc_pipeline *pipeline) {
    const dlc_turns *turns = &pipeline->turns;
    const dlc_wires *wires = pipeline->wires;
    int can_forward = turns->forward < turns->sub_batches &&
                      dlc_wires_has_inputs(wires, turns->forward) &&
                      dlc_wires_is_free(wires, turns->forward);
    int can_backward = turns->backward < turns->forward &&
                       dlc_wires_has_gradients(wires, turns->backward);
    return dlc_turns_next(turns, can_forward, can_backward);
}

static dlc_status take_turn(dlc_pipeline *pipeline, const dlc_pipeline_batch *batch,
                            dlc_turn turn) {
    uint64_t began = dlc_now_ns();
    DLC_TRY(turn == DLC_TURN_FORWARD ? forward(pipeline, batch)
                                     : backward(pipeline, batch));
    pipeline->times.busy += dlc_since(began);
    dlc_turns_done(&pipeline->turns, turn);
    return DLC_OK;
}

static dlc_status expect_first(dlc_pipeline *pipeline) {
    const dlc_turns *turns = &pipeline->turns;
    for (int32_t k = 0; k <= dlc_turns_most(turns) && k < turns->sub_batches; k++)
        DLC_TRY(dlc_wires_expect(pipeline->wires, k));
    return DLC_OK;
}

dlc_status dlc_pipeline_pass(dlc_pipeline *pipeline, const dlc_pipeline_batch *batch) {
    if (pipeline->passes++ == DLC_PIPELINE_WARM_UP)
        pipeline->times = (dlc_pipeline_times){0};
    uint64_t began = dlc_now_ns();
    uint64_t sent = dlc_wires_sent(pipeline->wires);
    pipeline->turns.forward = pipeline->turns.backward = 0;
    DLC_TRY(expect_first(pipeline));
    for (;;) {
        DLC_TRY(dlc_job_check(pipeline->session->job));
        DLC_TRY(dlc_wires_poll(pipeline->wires));
        dlc_turn turn = next_turn(pipeline);
        if (turn == DLC_TURN_OVER)
            break;
        if (turn != DLC_TURN_NONE) {
            DLC_TRY(take_turn(pipeline, batch, turn));
            continue;
        }
        say_wait(pipeline);
        DLC_TRY(dlc_wires_wait(pipeline->wires));
    }
    pipeline->times.all += dlc_since(began);
    pipeline->times.sent += (double)(dlc_wires_sent(pipeline->wires) - sent);
    return DLC_OK;
}

dlc_status dlc_pipeline_agree(dlc_pipeline *pipeline, float words[DLC_ARENA_TAIL]) {
    const dlc_session *session = pipeline->session;
    const size_t bytes = DLC_ARENA_TAIL * sizeof *words;
    float *at = pipeline->words.base;
    dlc_job_doing(session->job, "agreeing with all", NULL, 0);
    /* Gradients on their way to the stage before go on meanwhile. */
    DLC_TRY(dlc_wires_drain(pipeline->wires));
    DLC_TRY(session->device_ops->copy(session->device, NULL, at, words, bytes));
    DLC_TRY(dlc_comm_all_reduce(pipeline->all, at, DLC_ARENA_TAIL));
    return session->device_ops->copy(session->device, NULL, words, at, bytes);
}

/* ---- Tests ------------------------------------------------------------------- */

static int is_tested(const dlc_graph_layer *layer) {
    return layer->phases & DLC_PHASE_TEST &&
           layer->feature->caps & (DLC_LAYER_METRIC | DLC_LAYER_LOSS);
}

void dlc_pipeline_list_metrics(const dlc_session *session, dlc_evaluation *evaluation) {
    const dlc_graph *graph = session->setup->graph;
    evaluation->metrics = 0;
    for (int32_t i = 0; i < graph->layers && evaluation->metrics < DLC_MAX_METRICS;
         i++) {
        const dlc_graph_layer *layer = &graph->layer[i];
        if (is_tested(layer))
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
            if (metric->name != own.name) /* both are the graph's */
                continue;
            metric->sum += own.sum;
            metric->count += own.count;
        }
    }
    return DLC_OK;
}

/* Batches of this replica's part of the test set, also where the stage reads none. */
static int64_t test_batches(const dlc_pipeline *pipeline) {
    const dlc_data_setup *test = &pipeline->session->setup->test;
    const dlc_stages *stages = &pipeline->stages;
    int64_t begin = test->info.samples * stages->replica / stages->replicas;
    int64_t end = test->info.samples * (stages->replica + 1) / stages->replicas;
    return (end - begin + test->batch - 1) / test->batch;
}

static dlc_status await_turn(dlc_pipeline *pipeline, int32_t k) {
    dlc_wires *wires = pipeline->test_wires;
    DLC_TRY(dlc_job_check(pipeline->session->job));
    DLC_TRY(dlc_wires_poll(wires));
    if (!dlc_wires_has_inputs(wires, k) || !dlc_wires_is_free(wires, k))
        dlc_job_doing(pipeline->session->job, "wait for", "a batch of the test", 0);
    while (!dlc_wires_has_inputs(wires, k) || !dlc_wires_is_free(wires, k))
        DLC_TRY(dlc_wires_wait(wires));
    return DLC_OK;
}

static dlc_status test_batch(dlc_pipeline *pipeline, int32_t k,
                             dlc_evaluation *evaluation) {
    dlc_session *session = pipeline->session;
    dlc_net_pass pass = {.iteration = session->iteration};
    DLC_TRY(await_turn(pipeline, k));
    dlc_wires_point(pipeline->test_wires, k, &pass);
    dlc_net_enter(session->test_net, &pass);
    if (session->test_feed) {
        dlc_batch batch;
        DLC_TRY(dlc_feed_next(session->test_feed, &batch));
        DLC_TRY(dlc_net_set_input(session->test_net, batch.data, batch.labels));
    }
    pipeline->at = k;
    DLC_TRY(dlc_net_forward(session->test_net, session->iteration, 0));
    DLC_TRY(dlc_net_sync(session->test_net));
    DLC_TRY(pipeline->status);
    DLC_TRY(dlc_wires_send(pipeline->test_wires, k));
    return add_metrics(session->test_net, evaluation);
}

dlc_status dlc_pipeline_test(dlc_session *session, dlc_evaluation *evaluation) {
    enum { SLOTS = 2 };
    dlc_pipeline *pipeline = session->pipeline;
    int64_t batches = test_batches(pipeline);
    if (session->test_feed)
        DLC_TRY(dlc_feed_seek(session->test_feed, 0));
    for (int32_t k = 0; k < SLOTS && k < batches; k++)
        DLC_TRY(dlc_wires_expect(pipeline->test_wires, k));
    for (int32_t k = 0; k < batches; k++) {
        DLC_TRY(test_batch(pipeline, k, evaluation));
        if (k + SLOTS < batches)
            DLC_TRY(dlc_wires_expect(pipeline->test_wires, k + SLOTS));
    }
    return dlc_wires_drain(pipeline->test_wires);
}
