/* Runs the iterations of training: passes of the net, handing finished buckets to the
 * consistency model, control words, capture of the iteration as a graph. */
#include "train/iterate.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "plugin/answers.h"
#include "plugin/device_objects.h"
#include "run/run.h"
#include "session/loss_shares.h"
#include "session/param_sets.h"

/* Control words at the end of the gradient arena: reduced over the ranks with the last
 * bucket, so that all ranks act alike in the same iteration at no extra cost. */
enum {
    CONTROL_LOSS = 0, /* this rank's part of the mean loss */
    /* Seconds of this rank, as dlc_slowdown_power. */
    CONTROL_COMPUTED = DLC_CONTROL_WORDS - 2,
    CONTROL_DATA = DLC_CONTROL_WORDS - 1
};

/* Words that are > 0 if a rank was asked to do something: DLC_CONTROL_VOTES. Those
 * after them are written by loss_shares.c. */
static const struct {
    unsigned request;
    int word;
} request_words[DLC_CONTROL_VOTES] = {
    {DLC_JOB_STOP, 1}, {DLC_JOB_CHECKPOINT, 2}, {DLC_JOB_RELOAD, 3}};

static dlc_queue *queue_of(const dlc_iterate *iterate) {
    return dlc_session_async_queue(iterate->session);
}

dlc_upload dlc_iterate_upload(const dlc_session *session) {
    return (dlc_upload){.ops = session->device_ops,
                        .device = session->device,
                        .queue = dlc_session_async_queue(session),
                        .net = session->net,
                        .feed = session->feed,
                        .batch = session->local_batch};
}

/* ---- Gradients ------------------------------------------------------------------- */

/* The last of several passes carries the control words of all. */
static int is_last_pass(const dlc_iterate *iterate) {
    return iterate->number == iterate->session->accumulation_steps - 1;
}

/* A rank without samples runs no passes: a parameter server, or a rank that
 * [parallel] batch_split gives none. */
static int is_server(const dlc_session *session) {
    return session->local_batch == 0;
}

/* Is there no backward of this iteration after the current one? */
static int is_last_backward(const dlc_iterate *iterate) {
    const dlc_session *session = iterate->session;
    return is_server(session)
               ? is_last_pass(iterate)
               : iterate->backwards ==
                     session->accumulation_steps * session->micro_batches - 1;
}

/* Adds a bucket to those of earlier micro-batches; the sum of all is ready. */
static dlc_status bucket_ready(const dlc_iterate *iterate, const dlc_param_set *set,
                               int32_t bucket) {
    const dlc_session *session = iterate->session;
    if (!is_server(session))
        DLC_TRY(dlc_accumulate(&set->accumulator, iterate->backwards,
                               set->bucket_begin[bucket],
                               set->bucket_begin[bucket + 1]));
    if (!is_last_backward(iterate) || set->is_late)
        return DLC_OK;
    return DLC_ASK(
        session->consistency_ops, "ready",
        session->consistency_ops->ready(set->model, session->iteration, bucket));
}

/* Hands over every bucket of a set whose gradients are final, up to `elements`. */
static dlc_status mark_ready(void *context, int32_t which, size_t elements) {
    dlc_iterate *iterate = context;
    const dlc_param_set *set = &iterate->session->set[which];
    int32_t *next = &iterate->bucket[which];
    uint64_t began = dlc_now_ns();
    while (*next < set->buckets && set->bucket_begin[*next + 1] <= elements)
        DLC_TRY(bucket_ready(iterate, set, (*next)++));
    iterate->solver_seconds += dlc_since(began);
    return DLC_OK;
}

/* Rows first: with the last bucket of whole parameters a model may take the norm of
 * both. */
static dlc_status mark_all_ready(dlc_iterate *iterate) {
    for (int32_t s = DLC_PARAM_SETS; s-- > 0;)
        DLC_TRY(mark_ready(iterate, s, SIZE_MAX));
    return DLC_OK;
}

/* A rank without samples that is no server contributes gradients of zero. */
static int has_gradients(const dlc_session *session) {
    return session->rank < session->ranks - session->needs.servers;
}

static dlc_status zero_gradients(dlc_iterate *iterate) {
    const dlc_session *session = iterate->session;
    memset(iterate->bucket, 0, sizeof iterate->bucket);
    DLC_EACH_PARAM_SET(session, set)
    DLC_TRY(session->device_ops->fill(session->device, queue_of(iterate),
                                      set->arenas->gradients, 0,
                                      set->arenas->count * sizeof(float)));
    return DLC_OK;
}

/* ---- Control words --------------------------------------------------------------- */

static float *control_words_of(const dlc_session *session) {
    const dlc_arenas *arenas = dlc_net_arenas(session->net);
    return arenas->gradients + arenas->count - arenas->control_words;
}

/* Writes what this rank asks of all ranks; its loss is written elsewhere. */
static void write_requests(dlc_iterate *iterate, float control[DLC_CONTROL_WORDS]) {
    unsigned learned = dlc_job_requests(iterate->session->job) | iterate->requested;
    unsigned asks = dlc_requests_ask(&iterate->requests, learned);
    iterate->requested = 0;
    for (int i = 0; i < DLC_CONTROL_VOTES; i++)
        control[request_words[i].word] = asks & request_words[i].request ? 1.0f : 0.0f;
}

/* Returns what all ranks have agreed on. */
static unsigned read_requests(dlc_iterate *iterate,
                              const float control[DLC_CONTROL_WORDS]) {
    unsigned agreed = 0;
    for (int i = 0; i < DLC_CONTROL_VOTES; i++)
        if (control[request_words[i].word] > 0)
            agreed |= request_words[i].request;
    dlc_requests_agree(&iterate->requests, agreed);
    return agreed;
}

/* Writes what this rank has spent on samples and on waiting for them. With a queue the
 * device alone could tell how long computing takes. */
static void write_times(dlc_iterate *iterate, float control[DLC_CONTROL_WORDS]) {
    const dlc_feed *feed = iterate->session->feed;
    double before = iterate->data_seconds;
    iterate->data_seconds = feed ? dlc_feed_waited(feed) : 0;
    control[CONTROL_DATA] = dlc_slowdown_power(iterate->data_seconds - before);
    if (!queue_of(iterate))
        control[CONTROL_COMPUTED] = dlc_slowdown_power(iterate->compute_seconds);
}

static dlc_status write_control_words(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    float *control = iterate->words;
    memset(control, 0, sizeof iterate->words);
    write_requests(iterate, control);
    DLC_TRY(dlc_loss_shares_write(session, control));
    write_times(iterate, control);
    control[CONTROL_LOSS] = (float)iterate->loss;
    return session->device_ops->copy(session->device, NULL, control_words_of(session),
                                     control, sizeof iterate->words);
}

/* With a queue: adds the losses of a pass to the control's words. */
static dlc_status add_batch_losses(const dlc_iterate *iterate) {
    const dlc_session *session = iterate->session;
    if (!queue_of(iterate) || is_server(session))
        return DLC_OK;
    for (int32_t i = 0; i < dlc_net_losses(session->net); i++) {
        double share = dlc_loss_share(session, i, iterate->pass.iteration, 0,
                                      session->local_batch);
        DLC_TRY(
            dlc_net_add_loss(session->net, i, (float)share,
                             &session->control.on_device->control_words[CONTROL_LOSS]));
    }
    return DLC_OK;
}

/* As write_control_words, queued. */
static dlc_status queue_control_words(const dlc_iterate *iterate) {
    const dlc_session *session = iterate->session;
    return session->device_ops->copy(
        session->device, session->queue, control_words_of(session),
        session->control.on_device->control_words, DLC_CONTROL_WORDS * sizeof(float));
}

/* ---- Passes ---------------------------------------------------------------------- */

/* The batch of a pass: with a pipeline, each micro-batch becomes the net's input. */
static dlc_status read_batch(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    dlc_pass *pass = &iterate->pass;
    *pass = (dlc_pass){.loss = queue_of(iterate) ? NULL : &iterate->loss,
                       .ready = mark_ready,
                       .context = iterate};
    if (!session->pipeline)
        return dlc_upload_next(&iterate->upload, &pass->iteration);
    pass->iteration = session->iteration * session->accumulation_steps +
                      iterate->number;
    if (!session->feed)
        return DLC_OK;
    DLC_TRY(dlc_feed_next(session->feed, &iterate->batch));
    pass->batch = &iterate->batch;
    pass->iteration = iterate->batch.iteration;
    return DLC_OK;
}

/* Waits for the work on the queue, if there is one. */
static dlc_status wait_for_queue(const dlc_session *session) {
    dlc_event *idle = NULL;
    if (!session->queue)
        return DLC_OK;
    const dlc_device_queue_ops *queues = session->device_ops->queues;
    DLC_TRY(dlc_device_open_event(session->device_ops, session->device, &idle));
    dlc_status status = queues->event_record(session->device, session->queue, idle);
    if (status == DLC_OK)
        status = dlc_session_wait(session, idle);
    queues->event_close(session->device, idle);
    return status;
}

static dlc_status wait_if_timed(const dlc_session *session) {
    return session->is_timed ? wait_for_queue(session) : DLC_OK;
}

/* Seconds spent on deferred updates since the last call. */
static double take_update_seconds(dlc_session *session) {
    double seconds = 0;
    DLC_EACH_PARAM_SET(session, set) {
        seconds += set->updates.seconds;
        set->updates.seconds = 0;
    }
    return seconds;
}

/* When forward or backward began, and how long this rank had waited for others then. */
typedef struct compute_timing {
    uint64_t began;
    double waited;
} compute_timing;

static dlc_status begin_timing(dlc_iterate *iterate, compute_timing *timing) {
    dlc_session *session = iterate->session;
    DLC_TRY(wait_if_timed(session));
    timing->began = dlc_now_ns();
    timing->waited = dlc_session_waited(session);
    iterate->solver_seconds = session->layer_group.seconds = 0;
    (void)take_update_seconds(session);
    return DLC_OK;
}

/* The seconds spent on samples count, without those spent meanwhile on updates and on
 * waiting for other ranks. */
static dlc_status end_iteration_timing(dlc_iterate *iterate,
                                       const compute_timing *timing) {
    dlc_session *session = iterate->session;
    DLC_TRY(wait_if_timed(session));
    double waited = dlc_session_waited(session) - timing->waited +
                    session->layer_group.seconds;
    iterate->compute_seconds += dlc_since(timing->began) - iterate->solver_seconds -
                                take_update_seconds(session) - waited;
    return DLC_OK;
}

/* Of the whole net, or (k) of a micro-batch of a pipeline. */
static dlc_status forward(dlc_iterate *iterate, int32_t k) {
    dlc_session *session = iterate->session;
    compute_timing timing;
    DLC_TRY(begin_timing(iterate, &timing));
    if (session->pipeline)
        DLC_TRY(dlc_pipeline_forward(session->pipeline, &iterate->pass, k));
    else
        DLC_TRY(dlc_net_forward(session->net, iterate->pass.iteration,
                                session->local_offset));
    return end_iteration_timing(iterate, &timing);
}

/* The loss is read after backward, in which some layers may still produce it. */
static dlc_status backward_whole(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    int64_t number = iterate->pass.iteration;
    dlc_loss_shares_set(session, number, 0, session->local_batch);
    DLC_TRY(dlc_net_backward(session->net, 1, mark_ready, iterate));
    return iterate->pass.loss
               ? dlc_session_add_loss(session, number, 0, session->local_batch,
                                      iterate->pass.loss)
               : DLC_OK;
}

static dlc_status backward(dlc_iterate *iterate, int32_t k) {
    dlc_session *session = iterate->session;
    compute_timing timing;
    DLC_TRY(begin_timing(iterate, &timing));
    memset(iterate->bucket, 0, sizeof iterate->bucket);
    DLC_TRY(session->pipeline
                ? dlc_pipeline_backward(session->pipeline, &iterate->pass, k)
                : backward_whole(iterate));
    if (!is_last_backward(iterate)) {
        DLC_TRY(mark_all_ready(iterate));
        iterate->backwards++;
    }
    return end_iteration_timing(iterate, &timing);
}

double dlc_iterate_computed(dlc_iterate *iterate) {
    double compute_seconds = iterate->compute_seconds;
    iterate->compute_seconds = 0;
    return compute_seconds;
}

/* A pass of a rank without samples: its part in collective layers. */
static dlc_status take_part(const dlc_session *session) {
    if (!dlc_net_collective_layer(session->net))
        return DLC_OK;
    DLC_TRY(dlc_net_forward(session->net, 0, 0));
    return dlc_net_backward(session->net, 0, NULL, NULL);
}

/* The gradients of a pass are complete, or of all: control words, and the buckets that
 * are left. */
static dlc_status reduce(dlc_iterate *iterate) {
    const dlc_session *session = iterate->session;
    int has = !is_server(session) || has_gradients(session);
    DLC_TRY(add_batch_losses(iterate));
    if (!is_last_pass(iterate))
        return DLC_OK;
    if (is_server(session) && has)
        DLC_TRY(zero_gradients(iterate));
    DLC_TRY(queue_of(iterate) ? queue_control_words(iterate)
                              : write_control_words(iterate));
    return has ? mark_all_ready(iterate) : DLC_OK;
}

/* A rank without samples needs no weights that would wait for the others, unless
 * collective layers keep it in step with them. */
static dlc_status update_weights(const dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    int is_plugin = dlc_setup_has_consistency_plugin(session->setup);
    dlc_job_activity(session->job, is_plugin ? "update by" : "update",
                     is_plugin ? session->setup->consistency->name : NULL, 0);
    return dlc_param_sets_update(session, is_server(session) &&
                                              !dlc_net_collective_layer(session->net));
}

/* ---- Iterations ------------------------------------------------------------------ */

/* The micro-batches of a pass through a pipeline, in 1F1B order (plan/work_order.h). */
static dlc_status run_micro_batches(dlc_iterate *iterate) {
    dlc_pipeline *pipeline = iterate->session->pipeline;
    DLC_TRY(dlc_pipeline_begin_pass(pipeline));
    for (;;) {
        dlc_work work;
        int32_t k;
        DLC_TRY(dlc_pipeline_next(pipeline, &work, &k));
        if (work == DLC_WORK_DONE)
            return DLC_OK;
        DLC_TRY(work == DLC_WORK_FORWARD ? forward(iterate, k) : backward(iterate, k));
    }
}

/* Forward and backward of the whole net. */
static dlc_status run_net(dlc_iterate *iterate) {
    DLC_TRY(forward(iterate, 0));
    return backward(iterate, 0);
}

static dlc_status run_pass(dlc_iterate *iterate) {
    const dlc_session *session = iterate->session;
    if (is_server(session))
        return take_part(session);
    DLC_TRY(read_batch(iterate));
    return session->pipeline ? run_micro_batches(iterate) : run_net(iterate);
}

/* An iteration has as many passes as accumulation steps. */
static dlc_status run_iteration(dlc_iterate *iterate) {
    for (; iterate->number < iterate->session->accumulation_steps; iterate->number++) {
        DLC_TRY(run_pass(iterate));
        DLC_TRY(reduce(iterate));
    }
    return update_weights(iterate);
}

/* What is left of an iteration of the whole net in one pass, once the batch is read. */
static dlc_status run_after_reading(dlc_iterate *iterate) {
    DLC_TRY(run_net(iterate));
    DLC_TRY(reduce(iterate));
    return update_weights(iterate);
}

/* ---- Capture --------------------------------------------------------------------- */

/* Returns why an iteration can't be captured, or NULL. */
static const char *obstacle(const dlc_session *session) {
    const dlc_device_ops *ops = session->device_ops;
    if (!DLC_CAN(ops, queues) || !DLC_CAN(ops->queues, capture_begin))
        return "the device cannot capture graphs";
    if (session->pipeline)
        return "pipeline stages send messages";
    if (session->tensor)
        return "tensor-parallel layers exchange activations";
    if (session->staleness)
        return "the ranks may be in different iterations";
    if (session->accumulation_steps > 1)
        return "an iteration has several micro-batches";
    const dlc_param_set *whole = &session->set[DLC_PARAMS_WHOLE];
    if (whole->deferred_update)
        return "forward overlaps the updates of weights";
    if (session->ranks > 1 && (!dlc_exchanger_is_stream_ordered(whole->exchanger) ||
                               !dlc_comm_can_capture(session->connection.comm)))
        return "the transport needs the CPU for each reduction";
    return dlc_layer_group_capture_obstacle(&session->layer_group, whole->buckets);
}

static void decide_capture(dlc_iterate *iterate) {
    const dlc_session *session = iterate->session;
    if (!queue_of(iterate) ||
        !dlc_settings_get_bool(session->setup->train_settings, "capture"))
        return;
    const char *reason = obstacle(session);
    iterate->may_capture = reason == NULL;
    if (reason && session->rank == 0)
        dlc_info("iterations are not captured: %s", reason);
}

/* Captures the work of an iteration, but for reading its batch, without running it. A
 * failure is no error: the work is then queued in every iteration as before. */
static void capture(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    const dlc_device_ops *ops = session->device_ops;

    iterate->may_capture = 0; /* only one attempt */
    if (ops->queues->capture_begin(session->device, session->queue) == DLC_OK) {
        dlc_status noted = run_after_reading(iterate);
        dlc_captured_graph **to = noted == DLC_OK ? &iterate->graph : NULL;
        if (ops->queues->capture_end(session->device, session->queue, to) == DLC_OK &&
            iterate->graph) {
            dlc_info("iterations are captured as a graph");
            return;
        }
    }
    dlc_warn("iterations are not captured: %s", dlc_detail());
}

static dlc_status launch_graph(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    dlc_job_activity(session->job, "captured iteration", NULL, 0);
    dlc_exchanger_count_replay(session->set[DLC_PARAMS_WHOLE].exchanger);
    return session->device_ops->queues->graph_launch(session->device, session->queue,
                                                     iterate->graph);
}

/* The first two iterations set up everything that is set up at first use. */
enum { CAPTURE_FROM = 2 };

/* An iteration that differs from the last one only in the batch and the control: the
 * shares of the losses are part of a graph. */
static dlc_status replay_iteration(dlc_iterate *iterate) {
    DLC_TRY(read_batch(iterate));
    if (!iterate->graph && iterate->begun >= CAPTURE_FROM)
        capture(iterate);
    return iterate->graph ? launch_graph(iterate) : run_after_reading(iterate);
}

static dlc_status queue_iteration(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    dlc_control_input in = {.step = {session->iteration, session->local_offset}};
    DLC_TRY(dlc_solver_values(&session->solver, session->iteration, &in.values));
    write_requests(iterate, in.control_words);
    DLC_TRY(dlc_loss_shares_write(session, in.control_words));
    write_times(iterate, in.control_words);
    DLC_TRY(dlc_control_begin(&session->control, &in));
    int replays = !session->is_timed && (iterate->may_capture || iterate->graph) &&
                  dlc_loss_shares_are_plain(session, session->iteration);
    DLC_TRY(replays ? replay_iteration(iterate) : run_iteration(iterate));
    DLC_TRY(dlc_control_end(&session->control, control_words_of(session)));
    return is_server(session) ? DLC_OK : dlc_upload_prefetch(&iterate->upload);
}

/* ---- Begin and end --------------------------------------------------------------- */

dlc_status dlc_iterate_open(dlc_session *session, dlc_iterate *iterate) {
    *iterate = (dlc_iterate){.session = session};
    dlc_process_state_take(&iterate->process);
    DLC_TRY(dlc_loss_shares_open(session));
    if (is_server(session))
        return DLC_OK;
    iterate->upload = dlc_iterate_upload(session);
    dlc_status status = dlc_upload_open(&iterate->upload);
    if (status != DLC_OK) {
        dlc_iterate_close(iterate);
        return status;
    }
    decide_capture(iterate);
    return DLC_OK;
}

void dlc_iterate_close(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    if (!session)
        return;
    dlc_session_drain(session);
    dlc_loss_shares_close(session);
    if (iterate->graph)
        session->device_ops->queues->graph_close(session->device, iterate->graph);
    dlc_upload_close(&iterate->upload);
    *iterate = (dlc_iterate){0};
}

int dlc_iterate_depth(const dlc_iterate *iterate) {
    return queue_of(iterate) ? DLC_CONTROL_SLOTS : 1;
}

int dlc_iterate_in_flight(const dlc_iterate *iterate) {
    return queue_of(iterate) ? dlc_control_in_flight(&iterate->session->control)
                             : iterate->has_result;
}

/* Every iteration: it takes less than a microsecond. */
static dlc_status check_process(const dlc_iterate *iterate) {
    const char *changed = dlc_process_state_change(&iterate->process);
    if (!changed)
        return DLC_OK;
    return dlc_fail(DLC_ERR_PLUGIN,
                    "a plugin has changed %s in iteration %" PRId64
                    "; `dlcore plugin check` says which does",
                    changed, iterate->session->iteration);
}

dlc_status dlc_iterate_begin(dlc_iterate *iterate) {
    iterate->loss = 0;
    iterate->backwards = 0;
    iterate->number = 0;
    DLC_TRY(dlc_job_check(iterate->session->job));
    DLC_TRY(queue_of(iterate) ? queue_iteration(iterate) : run_iteration(iterate));
    DLC_TRY(check_process(iterate));
    iterate->has_result = 1;
    iterate->begun++;
    iterate->session->iteration++;
    return DLC_OK;
}

/* Copies the control words of all ranks to `words`. */
static dlc_status collect_control_words(dlc_iterate *iterate,
                                        float words[DLC_CONTROL_WORDS]) {
    dlc_session *session = iterate->session;
    const size_t bytes = sizeof iterate->words;
    iterate->has_result = 0;
    DLC_TRY(wait_for_queue(session));
    DLC_TRY(session->device_ops->copy(session->device, NULL, words,
                                      control_words_of(session), bytes));
    dlc_loss_shares_read(session, words); /* of the ranks that have the same losses */
    return session->pipeline ? dlc_pipeline_reduce_control(session->pipeline, words)
                             : DLC_OK;
}

dlc_status dlc_iterate_end(dlc_iterate *iterate, dlc_iterate_result *result) {
    dlc_session *session = iterate->session;
    float words[DLC_CONTROL_WORDS] = {0};
    const float *control = words;
    if (queue_of(iterate)) {
        DLC_TRY(dlc_session_wait(session, dlc_control_done(&session->control)));
        control = dlc_control_collect(&session->control);
        dlc_loss_shares_read(session, control);
    } else {
        DLC_TRY(collect_control_words(iterate, words));
    }
    *result = (dlc_iterate_result){
        .loss = (double)control[CONTROL_LOSS],
        .own_loss = iterate->loss,
        .slowest = {.computed = dlc_slowdown_root(control[CONTROL_COMPUTED]),
                    .data = dlc_slowdown_root(control[CONTROL_DATA])},
        .agreed = read_requests(iterate, control)};
    return DLC_OK;
}
