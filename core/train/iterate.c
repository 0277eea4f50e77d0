/* Runs the iterations of training: passes of this rank's batch, handing finished
 * buckets to the consistency model, control words, capture of the iteration as a graph.
 */
#include "train/iterate.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "parallel/pipeline/pipeline.h"

/* Control words at the end of the gradient arena: reduced over the ranks with the last
 * bucket, so that all ranks act alike in the same iteration at no extra cost. */
enum { CONTROL_LOSS = 0 }; /* this rank's part of the mean loss */

/* Words that are > 0 if a rank was asked to do something. */
static const struct {
    unsigned request;
    int word;
} request_words[] = {{DLC_JOB_STOP, 1}, {DLC_JOB_CHECKPOINT, 2}, {DLC_JOB_RELOAD, 3}};

enum { REQUEST_WORDS = sizeof request_words / sizeof request_words[0] };

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

/* ---- The work of one iteration ------------------------------------------------ */

/* The last of several micro-batches carries the control words of all, because the
 * arenas are added up. */
static int is_last_micro_batch(const dlc_iterate *iterate) {
    return iterate->micro_batch == iterate->session->accumulation_steps - 1;
}

/* Adds a bucket to those of earlier micro-batches; the sum of all is ready. */
static dlc_status bucket_ready(const dlc_iterate *iterate, int32_t bucket) {
    const dlc_session *session = iterate->session;
    DLC_TRY(dlc_accumulate(&session->accumulator, iterate->micro_batch,
                           session->bucket_begin[bucket],
                           session->bucket_begin[bucket + 1]));
    return is_last_micro_batch(iterate)
               ? session->consistency_ops->ready(session->consistency,
                                                 session->iteration, bucket)
               : DLC_OK;
}

/* Hands over every bucket whose gradients are final, up to `elements`. */
static dlc_status mark_ready(void *context, size_t elements) {
    dlc_iterate *iterate = context;
    dlc_session *session = iterate->session;
    while (iterate->bucket < session->buckets &&
           session->bucket_begin[iterate->bucket + 1] <= elements) {
        uint64_t began = dlc_now_ns();
        DLC_TRY(bucket_ready(iterate, iterate->bucket));
        iterate->solver_seconds += dlc_since(began);
        iterate->bucket++;
    }
    return DLC_OK;
}

static float *control_words_of(const dlc_session *session) {
    const dlc_arenas *arenas = dlc_net_arenas(session->net);
    return arenas->gradients + arenas->count - arenas->control_words;
}

/* Writes what this rank asks of all ranks; its loss is written elsewhere. */
static void write_requests(dlc_iterate *iterate, float control[DLC_CONTROL_WORDS]) {
    unsigned learned = dlc_job_requests(iterate->session->job) | iterate->requested;
    unsigned asks = dlc_requests_ask(&iterate->requests, learned);
    iterate->requested = 0;
    for (int i = 0; i < REQUEST_WORDS; i++)
        control[request_words[i].word] = asks & request_words[i].request ? 1.0f : 0.0f;
}

/* Returns what all ranks have agreed on. */
static unsigned read_requests(dlc_iterate *iterate,
                              const float control[DLC_CONTROL_WORDS]) {
    unsigned agreed = 0;
    for (int i = 0; i < REQUEST_WORDS; i++)
        if (control[request_words[i].word] > 0)
            agreed |= request_words[i].request;
    dlc_requests_agree(&iterate->requests, agreed);
    return agreed;
}

/* A rank without samples runs no passes: a parameter server, or a rank that
 * [parallel] batch_split gives none. */
static int is_server(const dlc_session *session) {
    return session->local_batch == 0;
}

/* The weight of one sample of this rank's pass in the mean over the whole iteration. */
static double loss_share(const dlc_session *session) {
    return (double)session->local_batch /
           (double)(session->global_batch * session->accumulation_steps);
}

/* Adds this rank's part of the mean loss of its last pass. */
static dlc_status add_loss(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    for (int32_t i = 0; !is_server(session) && i < dlc_net_metrics(session->net); i++) {
        dlc_metric metric;
        DLC_TRY(dlc_net_metric(session->net, i, &metric));
        if (metric.is_loss && metric.count > 0)
            iterate->loss += loss_share(session) * metric.weight * metric.sum /
                             metric.count;
    }
    return DLC_OK;
}

static dlc_status write_control_words(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    float control[DLC_CONTROL_WORDS] = {0};
    DLC_TRY(add_loss(iterate));
    if (is_last_micro_batch(iterate)) {
        write_requests(iterate, control);
        control[CONTROL_LOSS] = (float)iterate->loss;
    }
    return session->device_ops->copy(session->device, NULL, control_words_of(session),
                                     control, sizeof control);
}

/* As write_control_words, queued. The losses of all micro-batches accumulate in the
 * control's words, which the last micro-batch copies to the arena. */
static dlc_status queue_control_words(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    float *words = iterate->session->control.on_device->control_words;
    if (!is_server(session))
        DLC_TRY(dlc_net_add_losses(session->net, (float)loss_share(session),
                                   &words[CONTROL_LOSS]));
    if (!is_last_micro_batch(iterate))
        return session->device_ops->fill(session->device, session->queue,
                                         control_words_of(session), 0,
                                         DLC_CONTROL_WORDS * sizeof(float));
    return session->device_ops->copy(session->device, session->queue,
                                     control_words_of(session), words,
                                     DLC_CONTROL_WORDS * sizeof(float));
}

/* Counts the seconds since `began` that were spent on samples. */
static void note_pass(dlc_iterate *iterate, uint64_t began) {
    double updated = iterate->session->updates.seconds;
    iterate->compute_seconds += dlc_since(began) - iterate->solver_seconds - updated;
}

double dlc_iterate_computed(dlc_iterate *iterate) {
    double compute_seconds = iterate->compute_seconds;
    iterate->compute_seconds = 0;
    return compute_seconds;
}

/* Forward and backward of the batch that the net's input holds. */
static dlc_status pass(dlc_iterate *iterate, int64_t batch) {
    dlc_session *session = iterate->session;
    uint64_t began = dlc_now_ns();
    iterate->solver_seconds = session->updates.seconds = 0;
    DLC_TRY(dlc_net_forward(session->net, batch, session->local_offset));
    iterate->bucket = 0;
    double weight = (double)session->local_batch / (double)session->global_batch;
    DLC_TRY(dlc_net_backward(session->net, (float)weight, mark_ready, iterate));
    note_pass(iterate, began);
    /* After backward, in which tensor-parallel layers may still produce losses. The
     * control words are not ready yet. */
    DLC_TRY(queue_of(iterate) ? queue_control_words(iterate)
                              : write_control_words(iterate));
    DLC_TRY(dlc_tensor_parallel_ready(session, iterate->micro_batch));
    return mark_ready(iterate, dlc_net_arenas(session->net)->count);
}

/* Updates all weights; or, if updates are deferred, only the bucket with the control
 * words. */
static dlc_status update(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    size_t count = dlc_net_arenas(session->net)->count;
    dlc_job_activity(session->job, "update", NULL, 0);
    DLC_TRY(dlc_tensor_parallel_finish(session));
    DLC_TRY(dlc_ema_update(&session->ema[1], 0, SIZE_MAX));
    if (!session->deferred_update) {
        DLC_TRY(
            session->consistency_ops->finish(session->consistency, session->iteration));
        return dlc_ema_update(&session->ema[0], 0, SIZE_MAX);
    }
    dlc_updates_defer(&session->updates, session->iteration);
    return dlc_updates_need(&session->updates, count - 1, count);
}

/* Only the control words. A rank without samples that is no server contributes
 * gradients of zero. */
static dlc_status empty_pass(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    const dlc_arenas *arenas = dlc_net_arenas(session->net);
    int gives = session->rank < session->ranks - session->needs.servers;
    if (gives)
        DLC_TRY(session->device_ops->fill(session->device, queue_of(iterate),
                                          arenas->gradients, 0,
                                          arenas->count * sizeof(float)));
    DLC_TRY(queue_of(iterate) ? queue_control_words(iterate)
                              : write_control_words(iterate));
    iterate->bucket = 0;
    return gives ? mark_ready(iterate, arenas->count) : DLC_OK;
}

/* An iteration of a rank without samples: control words, then the update. */
static dlc_status serve(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    for (iterate->micro_batch = 0; iterate->micro_batch < session->accumulation_steps;
         iterate->micro_batch++)
        DLC_TRY(empty_pass(iterate));
    DLC_TRY(update(iterate));
    return dlc_updates_finish(&session->updates);
}

/* A pass of a net with pipeline stages: this rank's stage, micro-batch by micro-batch.
 */
static dlc_status pipeline_pass(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    dlc_pipeline *pipeline = session->pipeline;
    dlc_batch read = {.iteration = session->iteration * session->accumulation_steps +
                                   iterate->micro_batch};
    if (session->feed)
        DLC_TRY(dlc_feed_next(session->feed, &read));
    double weight = (double)pipeline->micro_batch_size / (double)session->global_batch;
    dlc_pipeline_batch batch = {.data = read.data,
                                .labels = read.labels,
                                .iteration = read.iteration,
                                .loss_share = weight /
                                              (double)session->accumulation_steps,
                                .share = weight,
                                .ready = mark_ready,
                                .context = iterate,
                                .loss = &iterate->loss};
    iterate->bucket = 0;
    DLC_TRY(dlc_pipeline_pass(pipeline, &batch));
    return mark_ready(iterate, dlc_net_arenas(session->net)->count);
}

static dlc_status all_passes(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    int64_t batch = 0;
    if (is_server(session))
        return serve(iterate);
    for (iterate->micro_batch = 0;
         session->pipeline && iterate->micro_batch < session->accumulation_steps;
         iterate->micro_batch++)
        DLC_TRY(pipeline_pass(iterate));
    if (session->pipeline)
        return update(iterate);
    for (iterate->micro_batch = 0; iterate->micro_batch < session->accumulation_steps;
         iterate->micro_batch++) {
        DLC_TRY(dlc_upload_next(&iterate->upload, &batch));
        DLC_TRY(pass(iterate, batch));
    }
    return update(iterate);
}

/* ---- Capture --------------------------------------------------------------------- */

/* Returns why an iteration can't be captured, or NULL. */
static const char *obstacle(const dlc_session *session) {
    const dlc_device_ops *ops = session->device_ops;
    if (!DLC_CAN(ops, queues) || !DLC_CAN(ops->queues, capture_begin))
        return "the device cannot capture graphs";
    if (session->asynchronous)
        return "the ranks may be in different iterations";
    if (dlc_solver_needs_whole_tensors(&session->solver))
        return "the solver, with these settings, reads results on the CPU";
    if (session->accumulation_steps > 1)
        return "an iteration has several micro-batches";
    if (session->deferred_update)
        return "forward overlaps the updates of weights";
    if (session->tensor_parallel.count)
        return "tensor-parallel layers exchange activations";
    if (session->ranks > 1 && (!dlc_exchanger_is_stream_ordered(session->exchanger) ||
                               !dlc_comm_can_capture(session->connection.comm)))
        return "the transport needs the CPU for each reduction";
    return NULL;
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

/* The batch is in the net's input, the step in the control. */
static dlc_status one_pass(dlc_iterate *iterate, int64_t batch) {
    iterate->micro_batch = 0;
    DLC_TRY(pass(iterate, batch));
    return update(iterate);
}

/* Captures the work of an iteration without running it. A failure is no error: the work
 * is then queued in every iteration as before. */
static void capture(dlc_iterate *iterate, int64_t batch) {
    dlc_session *session = iterate->session;
    const dlc_device_ops *ops = session->device_ops;

    iterate->may_capture = 0; /* only one attempt */
    if (ops->queues->capture_begin(session->device, session->queue) == DLC_OK) {
        dlc_status noted = one_pass(iterate, batch);
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
    dlc_exchanger_count_replay(session->exchanger);
    return session->device_ops->queues->graph_launch(session->device, session->queue,
                                                     iterate->graph);
}

/* The first two iterations set up everything that is set up at first use. */
enum { CAPTURE_FROM = 2 };

/* An iteration of one pass, which differs from the last one only in the batch and the
 * control. */
static dlc_status captured_pass(dlc_iterate *iterate) {
    int64_t batch = 0;
    DLC_TRY(dlc_upload_next(&iterate->upload, &batch));
    if (iterate->may_capture && iterate->begun >= CAPTURE_FROM)
        capture(iterate, batch);
    return iterate->graph ? launch_graph(iterate) : one_pass(iterate, batch);
}

static dlc_status queue_iteration(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    dlc_control_input in = {.step = {session->iteration, session->local_offset}};
    DLC_TRY(dlc_solver_values(&session->solver, session->iteration, &in.values));
    write_requests(iterate, in.control_words);
    DLC_TRY(dlc_control_begin(&session->control, &in));
    int same = session->accumulation_steps == 1 && !is_server(session);
    DLC_TRY(same ? captured_pass(iterate) : all_passes(iterate));
    DLC_TRY(dlc_control_end(&session->control, control_words_of(session)));
    return is_server(session) ? DLC_OK : dlc_upload_prefetch(&iterate->upload);
}

/* ---- Begin and end --------------------------------------------------------------- */

dlc_status dlc_iterate_open(dlc_session *session, dlc_iterate *iterate) {
    *iterate = (dlc_iterate){.session = session};
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
    const dlc_session *session = iterate->session;
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

dlc_status dlc_iterate_begin(dlc_iterate *iterate) {
    iterate->loss = 0;
    DLC_TRY(dlc_job_check(iterate->session->job));
    DLC_TRY(queue_of(iterate) ? queue_iteration(iterate) : all_passes(iterate));
    iterate->has_result = 1;
    iterate->begun++;
    iterate->session->iteration++;
    return DLC_OK;
}

dlc_status dlc_iterate_end(dlc_iterate *iterate, dlc_iterate_result *result) {
    dlc_session *session = iterate->session;
    float words[DLC_CONTROL_WORDS] = {0};
    const float *control = words;
    if (queue_of(iterate)) {
        DLC_TRY(dlc_session_wait(session, dlc_control_done(&session->control)));
        control = dlc_control_collect(&session->control);
    } else if (session->pipeline) {
        write_requests(iterate, words);
        words[CONTROL_LOSS] = (float)iterate->loss;
        DLC_TRY(dlc_pipeline_reduce_control_words(session->pipeline, words));
        iterate->has_result = 0;
    } else {
        DLC_TRY(session->device_ops->copy(session->device, NULL, words,
                                          control_words_of(session), sizeof words));
        iterate->has_result = 0;
    }
    *result = (dlc_iterate_result){.loss = (double)control[CONTROL_LOSS],
                                   .own_loss = iterate->loss,
                                   .agreed = read_requests(iterate, control)};
    return DLC_OK;
}
