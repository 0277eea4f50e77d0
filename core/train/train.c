/* The training loop, and the report of `dlcore train --json`. */
#include "train/train.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/run_folder.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/rebalance/rebalance.h"
#include "parallel/staleness/staleness.h"
#include "run/run.h"
#include "session/digest.h"
#include "session/ema.h"
#include "session/param_sets.h"
#include "train/evaluate.h"
#include "train/iterate.h"
#include "train/progress.h"

typedef struct train_loop {
    dlc_session *session;
    dlc_iterate iterate;
    dlc_progress progress;
    dlc_train_result *result;
    dlc_checkpointer checkpointer;
    int64_t test_interval; /* 0: never */
    double target;
    int64_t tested; /* iteration after which the last test was; -1: none */
    double loss;    /* of the last iteration that is complete */
    dlc_slowdown slowdown;
    uint64_t ended;     /* when the last iteration did; 0: something came after it */
    int is_own;         /* the loss of this rank alone is not finite */
    int is_good_enough; /* the target is reached */
    unsigned agreed;    /* requests of the user, DLC_JOB_*, that are to be met */
    int is_trial;       /* dlc_train_options.is_trial */
} train_loop;

static int ends(const train_loop *loop) {
    return loop->is_good_enough || loop->agreed & DLC_JOB_STOP;
}

static int is_event_due(int64_t interval, int64_t iteration) {
    return interval > 0 && iteration % interval == 0;
}

/* ---- Iterations -------------------------------------------------------------- */

static dlc_status check_loss(train_loop *loop, double own) {
    if (loop->is_trial || (isfinite(loop->loss) && isfinite(own)))
        return DLC_OK;
    loop->is_own = isfinite(loop->loss);
    return dlc_fail(
        DLC_ERR_DIVERGED,
        "the loss became %g at iteration %" PRId64
        ": try a smaller learning rate ([solver] learning_rate) or a warm-up",
        isfinite(own) ? loop->loss : own, loop->progress.done + 1);
}

/* Looks at the inputs of the iteration that has diverged, and of the one before, whose
 * update may have spoilt the weights. */
static void find_bad_input(const train_loop *loop, char *found, size_t room) {
    const dlc_session *session = loop->session;
    int64_t done = loop->progress.done, passes = session->accumulation_steps;
    dlc_text text = {0};
    for (int64_t i = (done > 0 ? done - 1 : 0) * passes;
         session->feed && !text.length && i < (done + 1) * passes; i++)
        if (dlc_feed_find_nonfinite(session->feed, i, &text) != DLC_OK)
            break;
    if (text.length)
        (void)snprintf(found, room, "%s", text.bytes);
    dlc_text_free(&text);
}

/* Training has diverged. Where an input is to blame, says so instead, on all ranks if
 * they have diverged together. */
static dlc_status explain_divergence(const train_loop *loop) {
    enum { TEXT = 768 };
    const dlc_session *session = loop->session;
    int is_alone = loop->is_own || session->needs.allows_skew || session->ranks == 1;
    size_t count = is_alone ? 1 : (size_t)session->ranks, r = 0;
    char mine[TEXT] = "";
    char *why = dlc_strdup(dlc_detail()), *all = dlc_alloc(count, sizeof mine);
    dlc_status status = why && all ? DLC_OK : DLC_ERR_NOMEM;
    find_bad_input(loop, mine, sizeof mine);
    if (status == DLC_OK && is_alone)
        memcpy(all, mine, sizeof mine);
    else if (status == DLC_OK)
        status = dlc_job_all_gather(session->job, mine, sizeof mine, all);
    while (status == DLC_OK && r < count - 1 && !all[r * TEXT])
        r++;
    if (status == DLC_OK && all[r * TEXT])
        status = dlc_fail(DLC_ERR_DATA,
                          "training diverged at iteration %" PRId64
                          " because of a sample: %s; correct it or leave it out",
                          loop->progress.done + 1, all + r * TEXT);
    else if (status == DLC_OK)
        status = dlc_fail(DLC_ERR_DIVERGED, "%s", why);
    dlc_free(all);
    dlc_free(why);
    return status;
}

/* Warns when iterations have become much slower. */
static void note_time(train_loop *loop, const dlc_iteration_time *slowest) {
    const dlc_session *session = loop->session;
    uint64_t began = loop->ended;
    loop->ended = dlc_now_ns();
    if (!began || session->rank != 0)
        return;
    dlc_iteration_time time = *slowest;
    time.seconds = dlc_between(began, loop->ended);
    dlc_text text = {0};
    const char *transport = session->ranks > 1 ? session->connection.transport : NULL;
    dlc_slowdown_news news = dlc_slowdown_note(&loop->slowdown, &time, transport,
                                               &text);
    if (news == DLC_SLOWDOWN_BEGINS)
        dlc_warn("%s", dlc_text_string(&text));
    else if (news == DLC_SLOWDOWN_ENDS)
        dlc_info("%s", dlc_text_string(&text));
    dlc_text_free(&text);
}

/* Prints a line of results for each epoch, unless a test follows, which prints one. */
static void end_epoch(train_loop *loop) {
    const dlc_session *session = loop->session;
    int64_t done = loop->progress.done;
    int tests = session->test_net && (is_event_due(loop->test_interval, done) ||
                                      done == session->max_iterations);
    if (is_event_due(session->epoch_iterations, done) && !tests)
        dlc_progress_result(&loop->progress, NULL);
}

/* Completes the oldest iteration in flight. */
static dlc_status end_oldest(train_loop *loop) {
    dlc_iterate_result result;
    DLC_TRY(dlc_iterate_end(&loop->iterate, &result));
    loop->loss = result.loss;
    loop->agreed |= result.agreed;
    DLC_TRY(check_loss(loop, result.own_loss));
    dlc_progress_iteration_end(&loop->progress, loop->loss);
    note_time(loop, &result.slowest);
    end_epoch(loop);
    if (loop->result->first_iteration_seconds <= 0)
        loop->result->first_iteration_seconds = dlc_process_seconds();
    return DLC_OK;
}

static dlc_status end_all(train_loop *loop) {
    while (dlc_iterate_in_flight(&loop->iterate)) {
        dlc_progress_iteration_begin(&loop->progress);
        DLC_TRY(end_oldest(loop));
    }
    DLC_TRY(dlc_param_sets_finish(loop->session));
    dlc_progress_iteration_begin(&loop->progress);
    if (loop->session->staleness)
        DLC_TRY(dlc_staleness_synchronize(loop->session->staleness));
    dlc_progress_wait_end(&loop->progress);
    loop->ended = 0;
    dlc_job_activity(loop->session->job, "comparison of weights", NULL, 0);
    return dlc_digest_compare(loop->session, DLC_DIGEST_TRAINING);
}

static dlc_status iterate(train_loop *loop) {
    dlc_rebalance *rebalance = loop->session->rebalance;
    if (dlc_checkpointer_must_ask(&loop->checkpointer))
        loop->iterate.requested |= DLC_JOB_CHECKPOINT;
    dlc_progress_iteration_begin(&loop->progress);
    if (rebalance)
        dlc_rebalance_begin_iteration(rebalance);
    DLC_TRY(dlc_iterate_begin(&loop->iterate));
    if (dlc_iterate_in_flight(&loop->iterate) == dlc_iterate_depth(&loop->iterate))
        DLC_TRY(end_oldest(loop));
    double computed = dlc_iterate_computed(&loop->iterate);
    if (rebalance)
        dlc_rebalance_end_iteration(rebalance, computed,
                                    dlc_session_waited(loop->session));
    return DLC_OK;
}

/* ---- Between iterations ------------------------------------------------------ */

/* All ranks have the same result, and no iteration is in flight. */
static void report_to_schedule(dlc_session *session, const dlc_evaluation *evaluation) {
    if (dlc_lr_plateau_report(&session->solver.plateau, session->iteration,
                              evaluation->loss) &&
        session->rank == 0)
        dlc_info("the test loss has stopped falling: the learning rate is now %g",
                 dlc_solver_learning_rate(&session->solver, session->iteration));
}

static dlc_status test(train_loop *loop) {
    dlc_session *session = loop->session;
    if (!session->test_net || loop->tested == session->iteration)
        return DLC_OK;
    dlc_evaluation evaluation;
    DLC_TRY(end_all(loop));
    dlc_job_activity(session->job, "test", NULL, 0);
    DLC_TRY(dlc_evaluate(session, NULL, &evaluation));
    loop->tested = session->iteration;
    loop->result->test_loss = evaluation.loss;
    loop->result->accuracy = evaluation.accuracy;
    report_to_schedule(session, &evaluation);
    dlc_checkpointer_note_test(&loop->checkpointer, &evaluation);
    dlc_progress_result(&loop->progress, &evaluation);
    if (loop->target > 0 && evaluation.accuracy >= loop->target) {
        loop->result->target_seconds = dlc_process_seconds();
        loop->is_good_enough = 1;
        if (session->rank == 0)
            dlc_info("accuracy %.4f reached after %.2f s", evaluation.accuracy,
                     loop->result->target_seconds);
    }
    return DLC_OK;
}

static dlc_status save(train_loop *loop, int must) {
    DLC_TRY(end_all(loop));
    loop->agreed &= ~DLC_JOB_CHECKPOINT;
    dlc_job_activity(loop->session->job, "checkpoint", NULL, 0);
    dlc_checkpointer_note_loss(&loop->checkpointer,
                               dlc_progress_training_loss(&loop->progress));
    return dlc_checkpointer_write(&loop->checkpointer, must);
}

static dlc_status reload(train_loop *loop) {
    DLC_TRY(end_all(loop));
    loop->agreed &= ~DLC_JOB_RELOAD;
    return dlc_consistency_reload(loop->session);
}

/* Agrees on all requests of the user that are on their way between the ranks. */
static dlc_status settle(train_loop *loop) {
    const dlc_session *session = loop->session;
    unsigned agreed = 0;
    DLC_TRY(dlc_requests_settle(&loop->iterate.requests, session->job, session->ranks,
                                &agreed));
    loop->agreed |= agreed;
    return DLC_OK;
}

/* Splits the batch anew where that was asked for and some ranks are faster. */
static dlc_status rebalance(train_loop *loop) {
    dlc_session *session = loop->session;
    int changed = 0;
    if (session->rebalance)
        DLC_TRY(dlc_rebalance_compare(session->rebalance, dlc_session_waited(session),
                                      &changed));
    if (!changed)
        return DLC_OK;
    DLC_TRY(end_all(loop));
    DLC_TRY(settle(loop)); /* the model is closed, with what it was asked */
    dlc_iterate_close(&loop->iterate);
    DLC_TRY(dlc_session_reopen(session));
    loop->slowdown = (dlc_slowdown){.is_slow = 0}; /* ranks have other samples now */
    return dlc_iterate_open(session, &loop->iterate);
}

static dlc_status run(train_loop *loop) {
    dlc_session *session = loop->session;
    if (dlc_settings_get_bool(session->setup->train_settings, "test_first"))
        DLC_TRY(test(loop));
    while (session->iteration < session->max_iterations && !ends(loop)) {
        DLC_TRY(iterate(loop));
        if (!ends(loop) && is_event_due(loop->test_interval, session->iteration))
            DLC_TRY(test(loop));
        if (loop->agreed & DLC_JOB_CHECKPOINT ||
            dlc_checkpointer_is_due(&loop->checkpointer))
            DLC_TRY(save(loop, 0));
        if (loop->agreed & DLC_JOB_RELOAD)
            DLC_TRY(reload(loop));
        if (!ends(loop))
            DLC_TRY(rebalance(loop));
    }
    loop->result->stopped = (loop->agreed & DLC_JOB_STOP) != 0;
    DLC_TRY(end_all(loop));
    dlc_progress_end(&loop->progress);
    if (!loop->result->stopped)
        DLC_TRY(test(loop));
    dlc_progress_result(&loop->progress, NULL);
    DLC_TRY(settle(loop));
    if (loop->agreed & (DLC_JOB_STOP | DLC_JOB_CHECKPOINT) || loop->checkpointer.last ||
        loop->checkpointer.improved)
        DLC_TRY(save(loop, 1));
    return DLC_OK;
}

/* ---- Training ---------------------------------------------------------------- */

static void note_exchange(const dlc_session *session, dlc_train_result *result) {
    dlc_exchange_stats stats = session->exchanged;
    if (!session->set[DLC_PARAMS_WHOLE].exchanger) /* it could not be reopened */
        return;
    dlc_exchange_stats last = dlc_param_sets_exchanged(session);
    dlc_exchange_stats_add(&last, &stats);
    result->exchange_bytes = (double)stats.bytes;
    result->exchange_seconds = stats.busy;
    result->hidden = dlc_param_sets_are_stream_ordered(session)
                         ? (double)NAN /* only the device could tell */
                         : dlc_exchange_hidden_fraction(&stats);
}

static dlc_status report_parallel(const dlc_session *session,
                                  dlc_train_result *result) {
    if (session->pipeline)
        DLC_TRY(dlc_pipeline_report(session->pipeline));
    return session->staleness
               ? dlc_staleness_report_end(session->staleness, &result->images_per_s)
               : DLC_OK;
}

/* Fills the result of a run that was already finished from its checkpoint. */
static void note_nothing(const dlc_session *session, dlc_train_result *result) {
    const dlc_run_state *state = &session->run_folder->state;
    result->is_nothing = 1;
    result->training_loss = state->training_loss;
    result->test_loss = state->test_loss;
    result->accuracy = state->accuracy;
    result->seconds = dlc_process_seconds();
    note_exchange(session, result);
}

/* The weights of a new run, from files or as they were initialized (NULL). */
static dlc_status begin_weights(dlc_session *session, const dlc_weights *weights) {
    if (weights)
        DLC_TRY(dlc_checkpoint_load_weights(session, session->net, weights));
    return dlc_session_ema_begin(session);
}

dlc_status dlc_train(dlc_session *session, const dlc_train_options *options,
                     dlc_train_result *result) {
    const dlc_settings *run_settings = session->setup->train_settings;
    *result = (dlc_train_result){.training_loss = (double)NAN,
                                 .test_loss = (double)NAN,
                                 .accuracy = (double)NAN,
                                 .target_seconds = (double)NAN};
    session->run_folder = options->folder;
    if (options->folder && options->folder->begin != DLC_RUN_NEW)
        DLC_TRY(dlc_checkpoint_resume(session));
    else
        DLC_TRY(begin_weights(session, options->weights));
    if (options->folder && options->folder->state.is_nothing_left) {
        note_nothing(session, result);
        return dlc_job_barrier(session->job);
    }
    session->resumed_schedule = dlc_run_folder_schedule(session->run_folder);
    DLC_TRY(dlc_session_start(session));
    if (options->folder)
        DLC_TRY(dlc_resume_schedule_check_rate(session));
    train_loop loop = {
        .session = session,
        .result = result,
        .is_trial = options->is_trial,
        .test_interval = dlc_settings_get_int(run_settings, "test_interval"),
        .target = dlc_settings_get_float(run_settings, "target_accuracy"),
        .tested = -1};
    dlc_checkpointer_init(&loop.checkpointer, session);
    if (!loop.test_interval)
        loop.test_interval = session->epoch_iterations;
    DLC_TRY(dlc_job_check(session->job));
    if (!options->is_trial)
        dlc_job_stop_at_once(session->job, 0);
    dlc_progress_begin(&loop.progress, session, !options->is_trial);
    dlc_progress_announce(&loop.progress);
    dlc_status status = dlc_iterate_open(session, &loop.iterate);
    if (status == DLC_OK)
        status = run(&loop);
    if (status == DLC_ERR_DIVERGED)
        status = explain_divergence(&loop);
    status = dlc_session_explain(session, status);
    dlc_iterate_close(&loop.iterate);
    if (status == DLC_OK) /* no rank leaves while another may still need it */
        status = dlc_job_barrier(session->job);
    dlc_log_status("%s", "");
    dlc_job_activity(session->job, NULL, NULL, 0);
    result->checkpoint = loop.checkpointer.path;
    result->training_loss = loop.progress.training_loss;
    result->images_per_s = dlc_progress_throughput(&loop.progress);
    result->data_wait = dlc_progress_data_wait(&loop.progress);
    if (status == DLC_OK)
        status = report_parallel(session, result);
    result->seconds = dlc_process_seconds();
    note_exchange(session, result);
    if (status != DLC_OK)
        dlc_train_result_free(result);
    return status;
}

void dlc_train_result_free(dlc_train_result *result) {
    dlc_free(result->checkpoint);
    result->checkpoint = NULL;
}

void dlc_train_report_json(const dlc_session *session, const dlc_train_result *result,
                           dlc_json *json) {
    const dlc_setup *setup = session->setup;
    dlc_json_object(json, NULL);
    dlc_json_string(json, "net", setup->name);
    dlc_json_int(json, "ranks", session->ranks);
    dlc_json_string(json, "transport", session->connection.transport);
    dlc_json_string(json, "device", setup->device->name);
    dlc_json_string(json, "solver", setup->solver->name);
    dlc_json_string(json, "consistency", setup->consistency->name);
    dlc_json_string(json, "scaling", setup->strong ? "strong" : "weak");
    dlc_json_int(json, "batch", session->local_batch);
    dlc_json_array(json, "batch_split");
    for (int32_t r = 0; r < session->ranks; r++)
        dlc_json_int(json, NULL, setup->batch_split.count[r]);
    dlc_json_end_array(json);
    dlc_json_int(json, "effective_batch", dlc_session_samples(session));
    dlc_json_int(json, "iterations", session->iteration);
    dlc_json_number(json, "epochs",
                    (double)session->iteration / (double)session->epoch_iterations);
    dlc_json_number(json, "training_loss", result->training_loss);
    dlc_json_number(json, "test_loss", result->test_loss);
    dlc_json_number(json, "accuracy", result->accuracy);
    dlc_json_number(json, "images_per_s", result->images_per_s);
    dlc_json_number(json, "data_wait", result->data_wait);
    dlc_json_number(json, "seconds", result->seconds);
    dlc_json_number(json, "first_iteration_seconds", result->first_iteration_seconds);
    dlc_json_number(json, "target_seconds", result->target_seconds);
    dlc_json_object(json, "exchange");
    dlc_json_number(json, "bytes", result->exchange_bytes);
    dlc_json_number(json, "seconds", result->exchange_seconds);
    dlc_json_number(json, "hidden", result->hidden);
    dlc_json_end_object(json);
    dlc_mesh_json(&session->mesh, json);
    dlc_pipeline_json(session->pipeline, json);
    if (session->staleness)
        dlc_staleness_json(session->staleness, json);
    dlc_json_string(json, "run_dir",
                    session->run_folder ? session->run_folder->path : NULL);
    dlc_json_string(json, "checkpoint", result->checkpoint);
    dlc_json_int(json, "seed", (int64_t)setup->seed);
    dlc_json_bool(json, "stopped", result->stopped);
    dlc_json_end_object(json);
}
