/* Opens and closes a session's parts in the order in which they depend on each other,
 * and reopens them when the batch is split anew. */
#include "run/run.h"

#include "base/log.h"
#include "base/memory.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/rebalance/rebalance.h"
#include "parallel/rebalance/throughput.h"
#include "parallel/staleness/staleness.h"
#include "parallel/tensor/tensor_parallel.h"
#include "plugin/answers.h"
#include "plugin/device_objects.h"
#include "run/feeds.h"
#include "run/nets.h"
#include "run/test_output.h"
#include "session/ema.h"
#include "session/loss_scale.h"
#include "session/model.h"
#include "session/model_norms.h"
#include "session/param_sets.h"

/* ---- Device and batch -------------------------------------------------------- */

static dlc_device_args device_args(const dlc_session *session) {
    return (dlc_device_args){
        .size = sizeof(dlc_device_args),
        .settings = session->setup->train_settings,
        .index =
            dlc_job_rank_info(session->job, dlc_job_rank(session->job))->device_index,
        .threads = dlc_job_threads(session->job),
        .cpus = dlc_job_cpus(session->job)};
}

static dlc_status open_device(dlc_session *session) {
    dlc_device_args args = device_args(session);
    session->device_ops = session->setup->device->ops;
    DLC_TRY(DLC_ASK(session->device_ops, "open",
                    session->device_ops->open(&args, &session->device)));
    DLC_TRY(dlc_answer_check_opened(session->setup->device, "open", session->device));
    if (!DLC_CAN(session->device_ops, queues))
        return DLC_OK;
    return dlc_device_open_queue(session->device_ops, session->device, &session->queue);
}

static void find_local_batch(dlc_session *session) {
    session->global_batch = dlc_setup_global_batch(session->setup);
    dlc_setup_rank_samples(session->setup, session->rank, &session->local_offset,
                           &session->local_batch);
    session->micro_batches = 1;
}

static dlc_status split_batch(dlc_session *session) {
    DLC_TRY(dlc_setup_split_batch(session->setup));
    find_local_batch(session);
    return DLC_OK;
}

static dlc_status open_loss_scale(dlc_session *session) {
    if (dlc_setup_precision(session->setup) != DLC_F16)
        return DLC_OK;
    if (!session->queue || !DLC_CAN(session->device_ops, update_loss_scale))
        return dlc_fail(DLC_ERR_UNSUPPORTED,
                        "device '%s' cannot train in half precision; set [train] "
                        "precision = float32",
                        session->setup->device->name);
    return dlc_loss_scale_open(session->device_ops, session->device,
                               &session->loss_scale);
}

/* ---- Ranks ------------------------------------------------------------------- */

/* What is reduced in an iteration; 0: the nets are not open yet. */
static double gradient_bytes(const dlc_session *session) {
    return session->net && !session->output.is_wanted
               ? (double)dlc_net_arenas(session->net)->count * sizeof(float)
               : 0;
}

static dlc_status open_connection(dlc_session *session) {
    const dlc_setup *setup = session->setup;
    if (session->connection.comm)
        return DLC_OK;
    dlc_connection_args args = {.registry = setup->registry,
                                .wanted = setup->transport,
                                .settings = setup->transport_settings,
                                .device_feature = setup->device,
                                .device = session->device,
                                .device_args = device_args(session),
                                .job = session->job,
                                .bytes = gradient_bytes(session),
                                .tagged_messages = session->needs.p2p_channel,
                                .any_order = dlc_settings_is(setup->transport_settings,
                                                             "reduction_order", "any")};
    DLC_TRY(dlc_connection_open(&args, &session->connection));
    session->set[DLC_PARAMS_WHOLE].replicas = (dlc_replicas){
        .ranks = {.stride = 1, .ranks = session->ranks},
        .how = session->connection.how};
    return DLC_OK;
}

static dlc_status open_replicas(dlc_session *session) {
    for (int32_t s = 0; s < DLC_PARAM_SETS; s++)
        DLC_TRY(dlc_replicas_open(&session->set[s].replicas, session->job,
                                  session->local_batch, session->needs.p2p_channel));
    return DLC_OK;
}

/* ---- How the work is divided ------------------------------------------------- */

int dlc_session_measures(const dlc_session *session) {
    return dlc_pipeline_needs_connection(session) ||
           dlc_tensor_parallel_needs_connection(session);
}

double dlc_session_waited(const dlc_session *session) {
    return (session->pipeline ? dlc_pipeline_waited(session->pipeline) : 0) +
           (session->tensor ? dlc_tensor_parallel_waited(session->tensor) : 0);
}

static void find_named_part(dlc_session *session) {
    session->part = (dlc_rank_part){.ranks = session->ranks,
                                    .samples = session->local_batch};
    if (session->pipeline)
        dlc_pipeline_find_part(session->pipeline, &session->part);
    if (session->tensor)
        dlc_tensor_parallel_find_part(session->tensor, &session->part);
}

void dlc_session_describe_part(const dlc_session *session, dlc_text *text,
                               dlc_json *json) {
    if (session->pipeline)
        dlc_pipeline_describe(session->pipeline, text, json);
    if (session->tensor && text)
        dlc_text_add(text, "%sa slice of each tensor-parallel layer's channels",
                     text->length ? ", " : "");
}

/* Each sees what those before it have decided. */
static dlc_status plan_parallel(dlc_session *session) {
    DLC_TRY(dlc_pipeline_plan(session));
    DLC_TRY(dlc_tensor_parallel_plan(session));
    DLC_TRY(dlc_rebalance_plan(session));
    DLC_TRY(dlc_staleness_plan(session));
    return dlc_session_count_iterations(session); /* ranks may have other samples now */
}

static dlc_status connect_parallel(dlc_session *session) {
    if (session->pipeline)
        DLC_TRY(dlc_pipeline_connect(session->pipeline));
    return session->tensor ? dlc_tensor_parallel_connect(session->tensor) : DLC_OK;
}

static dlc_status open_parallel(dlc_session *session) {
    if (session->pipeline)
        DLC_TRY(dlc_pipeline_open(session->pipeline));
    return session->tensor ? dlc_tensor_parallel_open(session->tensor) : DLC_OK;
}

static void disconnect_parallel(dlc_session *session) {
    if (session->tensor)
        dlc_tensor_parallel_disconnect(session->tensor);
    if (session->pipeline)
        dlc_pipeline_disconnect(session->pipeline);
}

static void close_parallel(dlc_session *session) {
    dlc_staleness_close(session->staleness);
    dlc_free(session->rebalance);
    dlc_tensor_parallel_close(session->tensor);
    dlc_pipeline_close(session->pipeline);
}

/* ---- Opening ----------------------------------------------------------------- */

static dlc_status begin_opening(dlc_setup *setup, dlc_job *job, int32_t rank,
                                int32_t ranks, dlc_session *session) {
    *session = (dlc_session){.setup = setup,
                             .job = job,
                             .rank = rank,
                             .ranks = ranks,
                             .accumulation_steps = 1};
    dlc_log_rank_set((int)dlc_job_rank(job));
    return dlc_setup_set_ranks(setup, ranks);
}

static dlc_status begin_as_rank(dlc_setup *setup, dlc_job *job, dlc_session *session) {
    return begin_opening(setup, job, dlc_job_rank(job), dlc_job_ranks(job), session);
}

/* Calls `open`, which starts threads, while this thread is bound to cores that do not
 * compute; the new threads inherit that binding. */
static dlc_status aside(dlc_session *session,
                        dlc_status (*open)(dlc_session *session)) {
    dlc_job_use_spare_cpus(session->job, 1);
    dlc_status status = open(session);
    dlc_job_use_spare_cpus(session->job, 0);
    return status;
}

static dlc_status open_control(dlc_session *session) {
    session->control = (dlc_control){
        .ops = session->device_ops, .device = session->device, .queue = session->queue};
    return dlc_control_open(&session->control);
}

/* Says what is done next, unless a signal has ended it. */
static dlc_status begin_stage(const dlc_session *session, const char *what) {
    dlc_job_activity(session->job, DLC_SETUP, what, 0);
    if (session->rank == 0)
        dlc_info("set-up: %s", what);
    return dlc_job_check(session->job);
}

/* The first part of opening, for training and for a plan. */
static dlc_status open_device_and_solver(dlc_session *session) {
    DLC_TRY(dlc_setup_make_mesh(session->setup, session->ranks, &session->mesh));
    DLC_TRY(open_device(session));
    DLC_TRY(dlc_session_ask_solver(session));
    DLC_TRY(split_batch(session));
    return dlc_session_count_iterations(session);
}

/* Decides how the work is divided. */
static dlc_status plan(dlc_session *session) {
    DLC_TRY(dlc_staleness_check(session));
    if (!session->is_plan && dlc_session_measures(session))
        DLC_TRY(aside(session, open_connection));
    return plan_parallel(session);
}

/* What the nets of this rank are, before they are built. */
static void plan_nets(dlc_session *session) {
    find_named_part(session);
    dlc_layer_group_plan(session->rank, session->ranks, &session->layer_group);
    if (session->pipeline)
        dlc_pipeline_shape_group(session->pipeline, &session->layer_group);
}

/* Opens what a plan shows; no tensor memory is allocated. */
static dlc_status open_plan(dlc_session *session) {
    DLC_TRY(open_device_and_solver(session));
    DLC_TRY(session->ranks > 1 ? plan(session) : dlc_staleness_check(session));
    plan_nets(session);
    return dlc_nets_build(session);
}

/* Builds a training net, times it on all ranks, and splits the batch by that. */
static dlc_status measure_batch_split(dlc_session *session) {
    dlc_net *net = NULL;
    dlc_status status = DLC_OK;
    if (!session->rebalance || !dlc_rebalance_measures_first(session->rebalance))
        return DLC_OK;
    if (session->local_batch > 0)
        status = dlc_nets_build_train(session, &net);
    if (status == DLC_OK && net)
        status = dlc_net_allocate(net);
    if (status == DLC_OK)
        status = dlc_throughput_measure(session, net, session->local_batch);
    dlc_net_free(net);
    if (status == DLC_OK)
        find_local_batch(session);
    return status;
}

/* Once a pipeline's stages are connected: their messages must move on meanwhile. */
static dlc_status open_layer_group(dlc_session *session) {
    dlc_session_layer_group *group = &session->layer_group;
    if (!dlc_net_collective_layer(session->net))
        return DLC_OK;
    if (session->pipeline)
        dlc_pipeline_shape_group(session->pipeline, group);
    const dlc_layer_group_args args = {
        .how = &session->connection.how,
        .rank_info = dlc_job_rank_info(session->job, group->first),
        .device = session->device,
        .queue = session->queue,
        .exchange = session->connection.comm,
        .is_async = dlc_session_async_queue(session) != NULL};
    return dlc_layer_group_open(&args, group);
}

/* Opens everything that depends on how the batch is split. */
static dlc_status open_work(dlc_session *session) {
    plan_nets(session);
    DLC_TRY(begin_stage(session, "building the net"));
    DLC_TRY(dlc_nets_open(session));
    DLC_TRY(begin_stage(session, session->ranks > 1 ? "connecting the ranks"
                                                    : "reading the first samples"));
    DLC_TRY(aside(session, dlc_feeds_open)); /* they start to read ahead */
    DLC_TRY(aside(session, open_connection));
    DLC_TRY(aside(session, connect_parallel));
    DLC_TRY(aside(session, open_replicas));
    DLC_TRY(aside(session, open_layer_group));
    DLC_TRY(aside(session, dlc_param_sets_open_exchange));
    DLC_TRY(dlc_param_sets_open_slots(session));
    dlc_session_ema_open(session);
    return open_parallel(session);
}

static dlc_status open_train(dlc_session *session) {
    dlc_job_activity(session->job, DLC_SETUP, NULL, 0);
    DLC_TRY(open_device_and_solver(session));
    DLC_TRY(plan(session));
    DLC_TRY(open_control(session));
    DLC_TRY(open_loss_scale(session));
    DLC_TRY(measure_batch_split(session));
    return open_work(session);
}

dlc_status dlc_session_start(dlc_session *session) {
    if (session->staleness)
        dlc_staleness_start(session->staleness);
    DLC_TRY(dlc_model_norms_open(session));
    DLC_TRY(dlc_session_set_schedule(session));
    return aside(session, dlc_param_sets_open_models);
}

static dlc_status open_test(dlc_session *session) {
    DLC_TRY(open_device(session));
    if (session->output.is_wanted)
        DLC_TRY(dlc_test_output_plan(session));
    DLC_TRY(dlc_nets_open_test(session));
    if (session->output.is_wanted)
        DLC_TRY(dlc_test_output_open(session));
    DLC_TRY(aside(session, dlc_feeds_open_test)); /* they begin to read ahead */
    return aside(session, open_connection);
}

static dlc_status ended(dlc_status status, dlc_session *session) {
    status = dlc_session_explain(session, status);
    if (status != DLC_OK)
        dlc_session_close(session);
    return status;
}

dlc_status dlc_session_open(dlc_setup *setup, dlc_job *job, dlc_session *session) {
    DLC_TRY(begin_as_rank(setup, job, session));
    return ended(open_train(session), session);
}

/* Drops proportions: the session has one rank, or splits its samples differently. */
static void split_equally(dlc_setup *setup) {
    dlc_batch_split_free(&setup->batch_split);
}

dlc_status dlc_session_open_test(dlc_setup *setup, dlc_job *job,
                                 const dlc_session_output *output,
                                 dlc_session *session) {
    split_equally(setup);
    DLC_TRY(begin_as_rank(setup, job, session));
    if (output)
        session->output = *output;
    return ended(open_test(session), session);
}

dlc_status dlc_session_open_plan(dlc_setup *setup, dlc_job *job, int32_t rank,
                                 int32_t ranks, dlc_session *session) {
    if (ranks == 1)
        split_equally(setup);
    DLC_TRY(begin_opening(setup, job, rank, ranks, session));
    session->is_plan = 1;
    return ended(open_plan(session), session);
}

/* ---- Closing ----------------------------------------------------------------- */

/* Closes what open_work and dlc_session_start have opened. */
static void close_work(dlc_session *session) {
    dlc_session_drain(session);
    dlc_param_sets_close_models(session);
    dlc_param_sets_close_slots(session);
    dlc_free(session->model_state);
    dlc_layer_group_close(
        &session->layer_group); /* before the exchanger waits for the queue */
    dlc_param_sets_close_exchange(session);
    disconnect_parallel(session);
    dlc_model_norms_close(session);
    dlc_connection_close(&session->connection);
    dlc_test_output_close(session);
    dlc_nets_free(session);
    dlc_free(session->plain);
    dlc_feeds_close(session);
}

/* The parts of a session that outlive close_work. */
static dlc_session remaining(const dlc_session *from) {
    return (dlc_session){.setup = from->setup,
                         .job = from->job,
                         .rank = from->rank,
                         .ranks = from->ranks,
                         .mesh = from->mesh,
                         .pipeline = from->pipeline,
                         .tensor = from->tensor,
                         .rebalance = from->rebalance,
                         .staleness = from->staleness,
                         .rules_out = from->rules_out,
                         .device_ops = from->device_ops,
                         .device = from->device,
                         .queue = from->queue,
                         .loss_scale = from->loss_scale,
                         .control = from->control,
                         .solver = from->solver,
                         .consistency_ops = from->consistency_ops,
                         .needs = from->needs,
                         .accumulation_steps = from->accumulation_steps,
                         .epoch_iterations = from->epoch_iterations,
                         .max_iterations = from->max_iterations,
                         .iteration = from->iteration,
                         .exchanged = from->exchanged,
                         .run_folder = from->run_folder,
                         .resumed_schedule = from->resumed_schedule};
}

dlc_status dlc_session_reopen_work(dlc_session *session) {
    dlc_exchange_stats last = dlc_param_sets_exchanged(session);
    dlc_exchange_stats_add(&last, &session->exchanged);
    if (session->staleness)
        DLC_TRY(dlc_staleness_keep(session->staleness));
    close_work(session);
    *session = remaining(session);
    find_local_batch(session);
    if (session->pipeline)
        DLC_TRY(dlc_pipeline_divide(session->pipeline));
    if (session->tensor)
        DLC_TRY(dlc_tensor_parallel_divide(session->tensor));
    return open_work(session);
}

void dlc_session_close(dlc_session *session) {
    /* What is cancelled here sets a detail sentence; the one before it is the cause. */
    char *cause = dlc_strdup(dlc_detail());
    close_work(session);
    close_parallel(session);
    dlc_control_close(&session->control);
    dlc_device_free(session->device_ops, session->device, &session->loss_scale);
    if (session->queue)
        session->device_ops->queues->queue_close(session->device, session->queue);
    if (session->device_ops)
        session->device_ops->close(session->device);
    *session = (dlc_session){.setup = NULL};
    if (cause)
        (void)dlc_fail(DLC_OK, "%s", cause);
    dlc_free(cause);
}
