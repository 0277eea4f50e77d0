/* See iterate.h. */
#include "train/iterate.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "train/pipeline/pipeline.h"

/* Words in the tail of the gradient arena: summed over the ranks with the last bucket,
 * so that all ranks act alike at the same iteration, at no cost. */
enum {
    TAIL_LOSS = 0,       /* the rank's share of the mean loss */
    TAIL_STOP = 1,       /* not 0: some rank was asked to stop */
    TAIL_CHECKPOINT = 2, /* not 0: some rank was asked for a checkpoint */
    TAIL_CHANGE = 3,     /* not 0: some rank was asked to read [solver] again */
};

static dlc_queue *queue_of(const dlc_iterate *iterate) {
    return dlc_session_queue_ahead(iterate->session);
}

dlc_intake dlc_iterate_intake(const dlc_session *session) {
    return (dlc_intake){.ops = session->device_ops,
                        .device = session->device,
                        .queue = dlc_session_queue_ahead(session),
                        .net = session->net,
                        .feed = session->feed,
                        .batch = session->share};
}

/* ---- The work of one iteration ------------------------------------------------ */

/* Hands the solver every bucket that is final up to `elements`. */
static dlc_status mark_ready(void *context, size_t elements) {
    dlc_iterate *iterate = context;
    dlc_session *session = iterate->session;
    while (iterate->bucket < session->buckets &&
           session->bucket_begin[iterate->bucket + 1] <= elements) {
        uint64_t began = dlc_now_ns();
        DLC_TRY(session->solver_ops->ready(session->solver, session->iteration,
                                           iterate->micro, iterate->bucket));
        iterate->handed += dlc_since(began);
        iterate->bucket++;
    }
    return DLC_OK;
}

static float *tail_of(const dlc_session *session) {
    const dlc_arenas *arenas = dlc_net_arenas(session->net);
    return arenas->gradients + arenas->count - arenas->tail;
}

/* The last of several micro-batches speaks for all: a solver may add their arenas up.
 */
static int speaks(const dlc_iterate *iterate) {
    return iterate->micro == iterate->session->micro_batches - 1;
}

/* What this rank tells the others, but for its loss. */
static void write_words(dlc_iterate *iterate, float tail[DLC_ARENA_TAIL]) {
    unsigned asked = dlc_job_requests(iterate->session->job) | iterate->ask;
    iterate->ask = 0;
    tail[TAIL_STOP] = asked & DLC_JOB_STOP ? 1.0f : 0.0f;
    tail[TAIL_CHECKPOINT] = asked & DLC_JOB_CHECKPOINT ? 1.0f : 0.0f;
    tail[TAIL_CHANGE] = asked & DLC_JOB_CHANGE ? 1.0f : 0.0f;
}

/* It has no samples, so neither passes nor losses; or none of its own
 * ([parallel] batch_split). */
static int is_server(const dlc_session *session) {
    return session->share == 0;
}

/* Of a sample of this rank's pass in the mean over all that make up an iteration. */
static double loss_share(const dlc_session *session) {
    return (double)session->share /
           (double)(session->global_batch * session->micro_batches);
}

/* The rank's share of the mean loss of its last pass. */
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

static dlc_status write_tail(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    float tail[DLC_ARENA_TAIL] = {0};
    DLC_TRY(add_loss(iterate));
    if (speaks(iterate)) {
        write_words(iterate, tail);
        tail[TAIL_LOSS] = (float)iterate->loss;
    }
    return session->device_ops->copy(session->device, NULL, tail_of(session), tail,
                                     sizeof tail);
}

/* The same as work for the queue. The losses of all micro-batches gather in the
 * control's words, which the last of them gives to the arena. */
static dlc_status queue_tail(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    float *words = iterate->session->control.at->tail;
    if (!is_server(session))
        DLC_TRY(dlc_net_add_losses(session->net, (float)loss_share(session),
                                   &words[TAIL_LOSS]));
    if (!speaks(iterate))
        return session->device_ops->fill(session->device, session->queue,
                                         tail_of(session), 0,
                                         DLC_ARENA_TAIL * sizeof(float));
    return session->device_ops->copy(session->device, session->queue, tail_of(session),
                                     words, DLC_ARENA_TAIL * sizeof(float));
}

/* Seconds with samples since then. */
static void note_pass(dlc_iterate *iterate, uint64_t began) {
    double updated = iterate->session->updates.spent;
    iterate->computed += dlc_since(began) - iterate->handed - updated;
}

double dlc_iterate_computed(dlc_iterate *iterate) {
    double computed = iterate->computed;
    iterate->computed = 0;
    return computed;
}

/* The batch is in place. */
static dlc_status pass(dlc_iterate *iterate, int64_t batch) {
    dlc_session *session = iterate->session;
    uint64_t began = dlc_now_ns();
    iterate->handed = session->updates.spent = 0;
    DLC_TRY(dlc_net_forward(session->net, batch, session->share_offset));
    iterate->bucket = 0;
    double share = (double)session->share / (double)session->global_batch;
    DLC_TRY(dlc_net_backward(session->net, (float)share, mark_ready, iterate));
    note_pass(iterate, began);
    /* Behind backward: split layers may give losses in it. The tail is not ready yet.
     */
    DLC_TRY(queue_of(iterate) ? queue_tail(iterate) : write_tail(iterate));
    DLC_TRY(dlc_split_ready(session, iterate->micro));
    return mark_ready(iterate, dlc_net_arenas(session->net)->count);
}

/* All weights; or, where the others may come late, those whose sum has the tail. */
static dlc_status update(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    size_t count = dlc_net_arenas(session->net)->count;
    dlc_job_doing(session->job, "update", NULL, 0);
    DLC_TRY(dlc_split_finish(session));
    if (!session->late)
        return session->solver_ops->finish(session->solver, session->iteration);
    dlc_updates_put_off(&session->updates, session->iteration);
    return dlc_updates_need(&session->updates, count - 1, count);
}

/* Nothing but its words. A rank that is without samples, but no server to the solver,
 * has gradients of zero to give. */
static dlc_status no_pass(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    const dlc_arenas *arenas = dlc_net_arenas(session->net);
    int gives = session->rank < session->ranks - session->needs.servers;
    if (gives)
        DLC_TRY(session->device_ops->fill(session->device, queue_of(iterate),
                                          arenas->gradients, 0,
                                          arenas->count * sizeof(float)));
    DLC_TRY(queue_of(iterate) ? queue_tail(iterate) : write_tail(iterate));
    iterate->bucket = 0;
    return gives ? mark_ready(iterate, arenas->count) : DLC_OK;
}

/* And what the solver makes of the others' gradients. */
static dlc_status serve(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    for (iterate->micro = 0; iterate->micro < session->micro_batches; iterate->micro++)
        DLC_TRY(no_pass(iterate));
    DLC_TRY(update(iterate));
    return dlc_updates_finish(&session->updates);
}

/* Of a net that is cut into stages: this rank's part of it, sub-batch by sub-batch. */
static dlc_status staged_pass(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    dlc_pipeline *pipeline = session->pipeline;
    dlc_batch read = {.iteration = session->iteration * session->micro_batches +
                                   iterate->micro};
    if (session->feed)
        DLC_TRY(dlc_feed_next(session->feed, &read));
    double share = (double)pipeline->sub_batch / (double)session->global_batch;
    dlc_pipeline_batch batch = {.data = read.data,
                                .labels = read.labels,
                                .iteration = read.iteration,
                                .loss_share = share / (double)session->micro_batches,
                                .share = share,
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
    for (iterate->micro = 0;
         session->pipeline && iterate->micro < session->micro_batches; iterate->micro++)
        DLC_TRY(staged_pass(iterate));
    if (session->pipeline)
        return update(iterate);
    for (iterate->micro = 0; iterate->micro < session->micro_batches;
         iterate->micro++) {
        DLC_TRY(dlc_intake_next(&iterate->intake, &batch));
        DLC_TRY(pass(iterate, batch));
    }
    return update(iterate);
}

/* ---- Recording ------------------------------------------------------------------ */

/* NULL: an iteration's work can be recorded; else why it can't. */
static const char *obstacle(const dlc_session *session) {
    const dlc_device_ops *ops = session->device_ops;
    if (!DLC_CAN(ops, record_begin) || !DLC_CAN(ops, record_end) ||
        !DLC_CAN(ops, record_run) || !DLC_CAN(ops, record_close))
        return "the device cannot record";
    if (!session->needs.queued)
        return "the solver, as it is set, looks at what was computed";
    if (session->micro_batches > 1)
        return "an iteration is made of several passes";
    if (session->late)
        return "forward begins before all weights are there";
    if (session->split.count)
        return "ranks exchange what split layers give";
    if (session->ranks > 1 && (!dlc_exchanger_is_queued(session->exchanger) ||
                               !dlc_comm_can_record(session->connection.comm)))
        return "the transport needs the processor for each sum";
    return NULL;
}

static void decide_recording(dlc_iterate *iterate) {
    const dlc_session *session = iterate->session;
    if (!queue_of(iterate) || !dlc_settings_get_bool(session->setup->train_settings, "capture"))
        return;
    const char *reason = obstacle(session);
    iterate->may_record = reason == NULL;
    if (reason && session->rank == 0)
        dlc_info("iterations are not recorded: %s", reason);
}

/* The batch is in the net's input, the step in the control. */
static dlc_status one_pass(dlc_iterate *iterate, int64_t batch) {
    iterate->micro = 0;
    DLC_TRY(pass(iterate, batch));
    return update(iterate);
}

/* Notes the work without doing it. What cannot be recorded is no error: then it is
 * given to the queue at every iteration, as before. */
static void record(dlc_iterate *iterate, int64_t batch) {
    dlc_session *session = iterate->session;
    const dlc_device_ops *ops = session->device_ops;

    iterate->may_record = 0; /* one try */
    if (ops->record_begin(session->device, session->queue) == DLC_OK) {
        dlc_status noted = one_pass(iterate, batch);
        dlc_recording **to = noted == DLC_OK ? &iterate->recording : NULL;
        if (ops->record_end(session->device, session->queue, to) == DLC_OK &&
            iterate->recording) {
            dlc_info("iterations are recorded and run as a whole");
            return;
        }
    }
    dlc_warn("iterations are not recorded: %s", dlc_detail());
}

static dlc_status run_recording(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    dlc_job_doing(session->job, "recorded iteration", NULL, 0);
    dlc_exchanger_count(session->exchanger);
    return session->device_ops->record_run(session->device, session->queue,
                                           iterate->recording);
}

/* Everything that is set up at first use is, when the first two are through. */
enum { RECORDED_FROM = 2 };

/* One pass of which nothing but the batch and the control differs from the last. */
static dlc_status same_pass(dlc_iterate *iterate) {
    int64_t batch = 0;
    DLC_TRY(dlc_intake_next(&iterate->intake, &batch));
    if (iterate->may_record && iterate->begun >= RECORDED_FROM)
        record(iterate, batch);
    return iterate->recording ? run_recording(iterate) : one_pass(iterate, batch);
}

static dlc_status queue_iteration(dlc_iterate *iterate) {
    dlc_session *session = iterate->session;
    const dlc_solver_ops *solver = session->solver_ops;
    dlc_control_in in = {
        .step = {session->iteration, session->share_offset},
        .rate = (float)solver->rate(session->solver, session->iteration)};
    write_words(iterate, in.tail);
    DLC_TRY(dlc_control_begin(&session->control, &in));
    int same = session->micro_batches == 1 && !is_server(session);
    DLC_TRY(same ? same_pass(iterate) : all_passes(iterate));
    DLC_TRY(dlc_control_end(&session->control, tail_of(session)));
    return is_server(session) ? DLC_OK : dlc_intake_ahead(&iterate->intake);
}

/* ---- Beginning and ending -------------------------------------------------------- */

dlc_status dlc_iterate_open(dlc_session *session, dlc_iterate *iterate) {
    *iterate = (dlc_iterate){.session = session};
    if (is_server(session))
        return DLC_OK;
    iterate->intake = dlc_iterate_intake(session);
    dlc_status status = dlc_intake_open(&iterate->intake);
    if (status != DLC_OK) {
        dlc_iterate_close(iterate);
        return status;
    }
    decide_recording(iterate);
    return DLC_OK;
}

void dlc_iterate_close(dlc_iterate *iterate) {
    const dlc_session *session = iterate->session;
    if (iterate->recording)
        session->device_ops->record_close(session->device, iterate->recording);
    dlc_intake_close(&iterate->intake);
    *iterate = (dlc_iterate){0};
}

int dlc_iterate_depth(const dlc_iterate *iterate) {
    return queue_of(iterate) ? DLC_CONTROL_LANES : 1;
}

int dlc_iterate_under_way(const dlc_iterate *iterate) {
    return queue_of(iterate) ? dlc_control_under_way(&iterate->session->control)
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
    float words[DLC_ARENA_TAIL] = {0};
    const float *tail = words;
    if (queue_of(iterate)) {
        DLC_TRY(dlc_session_wait(session, dlc_control_done(&session->control)));
        tail = dlc_control_take(&session->control);
    } else if (session->pipeline) {
        write_words(iterate, words);
        words[TAIL_LOSS] = (float)iterate->loss;
        DLC_TRY(dlc_pipeline_agree(session->pipeline, words));
        iterate->has_result = 0;
    } else {
        DLC_TRY(session->device_ops->copy(session->device, NULL, words,
                                          tail_of(session), sizeof words));
        iterate->has_result = 0;
    }
    *result = (dlc_iterate_result){.loss = (double)tail[TAIL_LOSS],
                                   .own_loss = iterate->loss,
                                   .stop = tail[TAIL_STOP] > 0,
                                   .checkpoint = tail[TAIL_CHECKPOINT] > 0,
                                   .change = tail[TAIL_CHANGE] > 0};
    return DLC_OK;
}
