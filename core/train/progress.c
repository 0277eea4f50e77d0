/* Prints the progress bar, the progress lines and the lines of results. */
#include "train/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/bar.h"
#include "base/clock.h"
#include "base/log.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/staleness/staleness.h"

#define LINE_EVERY_NS 2000000000u
#define DRAW_EVERY_NS 100000000u
/* The least share of time that waiting for data is mentioned for, and advised about. */
#define WORTH_A_WORD 0.05
#define WORTH_ADVICE 0.2

/* Iterations that the throughput leaves out: the first ones compile kernels and touch
 * memory, and would dominate the result of a short run. */
static int64_t warm_up_of(int64_t iterations) {
    enum { SHORT = 4, LEAST = 2, MOST = 20 };
    if (iterations < SHORT)
        return iterations > 1;
    int64_t tenth = iterations / 10;
    return tenth < LEAST ? LEAST : tenth > MOST ? MOST : tenth;
}

void dlc_progress_begin(dlc_progress *progress, const dlc_session *session,
                        int is_shown) {
    int64_t left = session->max_iterations - session->iteration;
    *progress = (dlc_progress){
        .session = session,
        .is_shown = is_shown && session->rank == 0,
        .first = session->iteration,
        .done = session->iteration,
        .display = dlc_settings_get_int(session->setup->train_settings, "display"),
        .warm_up = warm_up_of(left),
        .last_line = dlc_now_ns(),
        .loss = (double)NAN,
        .training_loss = (double)NAN,
    };
}

static double epochs(const dlc_progress *progress) {
    return (double)progress->done / (double)progress->session->epoch_iterations;
}

/* Logs how the batch is split, unless it is split equally. */
static void say_batch_split(const dlc_session *session) {
    const dlc_batch_split *split = &session->setup->batch_split;
    dlc_text text = {0};
    if (dlc_batch_split_is_equal(split))
        return;
    dlc_batch_split_print(split, &text);
    dlc_info("batch of %" PRId64 " split among the ranks: %s", session->global_batch,
             dlc_text_string(&text));
    dlc_text_free(&text);
}

/* The learning rate, and what it is halfway if it changes. */
static void say_rate(const dlc_session *session, double rate) {
    int64_t halfway = (session->iteration + session->max_iterations) / 2;
    double later = dlc_solver_learning_rate(&session->solver, halfway);
    if (later < rate || later > rate)
        dlc_info("learning rate %g now, %g halfway", rate, later);
    else
        dlc_info("learning rate %g", rate);
}

static void say_scale(const dlc_session *session) {
    const dlc_lr_policy *policy = &session->solver.policy;
    if (policy->scale != 1)
        dlc_info("learning rate %g x %g = %g for a batch of %" PRId64 " (base %" PRId64
                 ")",
                 policy->base_rate, policy->scale, policy->base_rate * policy->scale,
                 dlc_session_samples(session), session->setup->train.batch);
}

void dlc_progress_announce(const dlc_progress *progress) {
    const dlc_session *session = progress->session;
    const dlc_setup *setup = session->setup;
    if (!progress->is_shown)
        return;
    double rate = dlc_solver_learning_rate(&session->solver, session->iteration);
    int64_t samples = dlc_session_samples(session);
    dlc_info("net '%s' on %s, %" PRId32 " rank%s, solver %s, %s", setup->name,
             setup->device->name, session->ranks, session->ranks > 1 ? "s" : "",
             setup->solver->name, setup->consistency->name);
    dlc_info("effective batch %" PRId64 " (%s scaling: %" PRId64 " %s%s)", samples,
             setup->strong ? "strong" : "weak", setup->train.batch,
             setup->strong ? "split among all ranks" : "per rank",
             session->accumulation_steps > 1 ? ", with gradient accumulation" : "");
    say_batch_split(session);
    dlc_mesh_announce(session);
    if (session->pipeline)
        dlc_pipeline_announce(session->pipeline);
    say_scale(session);
    say_rate(session, rate);
    dlc_info("training for %" PRId64 " iterations (%.3g epochs of %" PRId64
             " iterations), %" PRId64 " samples",
             session->max_iterations - session->iteration,
             (double)(session->max_iterations - session->iteration) /
                 (double)session->epoch_iterations,
             session->epoch_iterations, setup->train.info.samples);

    dlc_json event = dlc_log_event_begin("start");
    dlc_json_string(&event, "net", setup->name);
    dlc_json_string(&event, "device", setup->device->name);
    dlc_json_int(&event, "ranks", session->ranks);
    dlc_json_string(&event, "transport", session->connection.transport);
    dlc_json_int(&event, "effective_batch", samples);
    dlc_json_number(&event, "learning_rate", rate);
    dlc_json_int(&event, "iteration", session->iteration);
    dlc_json_int(&event, "max_iterations", session->max_iterations);
    dlc_log_event_end(&event);
}

static double waited(const dlc_progress *progress) {
    const dlc_feed *feed = progress->session->feed;
    return feed ? dlc_feed_waited(feed) : 0;
}

void dlc_progress_iteration_begin(dlc_progress *progress) {
    progress->began = dlc_now_ns();
    progress->waited_before = waited(progress);
}

void dlc_progress_wait_end(dlc_progress *progress) {
    if (progress->done - progress->first > progress->warm_up)
        progress->trained_ns += dlc_now_ns() - progress->began;
}

double dlc_progress_throughput(const dlc_progress *progress) {
    if (!progress->trained_ns)
        return 0;
    return (double)progress->samples / ((double)progress->trained_ns * 1e-9);
}

double dlc_progress_data_wait(const dlc_progress *progress) {
    double all = (double)progress->trained_ns * 1e-9;
    return progress->waited < all ? progress->waited / all : all > 0;
}

double dlc_progress_training_loss(const dlc_progress *progress) {
    return progress->result_count
               ? progress->result_sum / (double)progress->result_count
               : progress->training_loss;
}

/* "BEFORE840 images/s (30 % waiting for data)", as far as it is known and worth a word.
 */
static void format_speed(const dlc_progress *progress, const char *before, char *text,
                         size_t bytes) {
    double share = dlc_progress_data_wait(progress);
    double speed = dlc_progress_throughput(progress);
    text[0] = '\0';
    if (speed > 0 && share >= WORTH_A_WORD)
        snprintf(text, bytes, "%s%.0f images/s (%.0f %% waiting for data)", before,
                 speed, 100 * share);
    else if (speed > 0)
        snprintf(text, bytes, "%s%.0f images/s", before, speed);
}

static void draw_bar(const dlc_progress *progress) {
    const dlc_session *session = progress->session;
    double done = session->max_iterations
                      ? (double)progress->done / (double)session->max_iterations
                      : 1;
    char shown[96];
    double speed = dlc_progress_throughput(progress);
    double left = (double)(session->max_iterations - progress->done) *
                  (double)dlc_session_samples(session);
    format_speed(progress, "  ", shown, sizeof shown);
    dlc_bar_draw(done, speed > 0 ? left / speed : -1,
                 "epoch %.2f  training loss %.4f%s", epochs(progress), progress->loss,
                 shown);
}

static void write_line(dlc_progress *progress) {
    const dlc_session *session = progress->session;
    double loss = progress->loss_sum / (double)progress->loss_count;
    double rate = dlc_solver_learning_rate(&session->solver, progress->done - 1);
    double speed = dlc_progress_throughput(progress);
    char shown[96];
    format_speed(progress, ", ", shown, sizeof shown);
    if (!dlc_log_is_terminal())
        dlc_info("iteration %" PRId64 ", epoch %.2f: loss %.4f, learning rate %.4g%s",
                 progress->done, epochs(progress), loss, rate, shown);
    dlc_json event = dlc_log_event_begin("train");
    dlc_json_int(&event, "iteration", progress->done);
    dlc_json_number(&event, "epoch", epochs(progress));
    dlc_json_number(&event, "training_loss", loss);
    dlc_json_number(&event, "learning_rate", rate);
    dlc_json_number(&event, "images_per_s", speed);
    dlc_json_number(&event, "data_wait", dlc_progress_data_wait(progress));
    if (session->staleness)
        dlc_staleness_progress(session->staleness, &event);
    dlc_log_event_end(&event);
    progress->loss_sum = 0;
    progress->loss_count = 0;
}

void dlc_progress_iteration_end(dlc_progress *progress, double loss) {
    const dlc_session *session = progress->session;
    uint64_t now = dlc_now_ns();
    progress->done++;
    if (progress->done - progress->first > progress->warm_up) {
        double more = waited(progress) - progress->waited_before;
        progress->trained_ns += now - progress->began;
        progress->waited += more > 0 ? more : 0; /* less: the feed is a new one */
        progress->samples += (uint64_t)dlc_session_samples(session);
    }
    progress->result_sum += loss;
    progress->result_count++;
    if (!progress->is_shown)
        return;
    progress->loss = isnan(progress->loss) ? loss : 0.95 * progress->loss + 0.05 * loss;
    progress->loss_sum += loss;
    progress->loss_count++;
    int due = progress->display ? progress->done % progress->display == 0
                                : now - progress->last_line >= LINE_EVERY_NS;
    if (due) {
        write_line(progress);
        progress->last_line = now;
    }
    if (now - progress->last_draw >= DRAW_EVERY_NS) {
        draw_bar(progress);
        progress->last_draw = now;
    }
}

/* " test loss 0.7548 (loss1 0.6931, loss2 0.1234)": what it is the weighted sum of. */
static void add_shown_losses(const dlc_evaluation *evaluation, dlc_text *line) {
    const char *before = " (";
    dlc_text_add(line, " test loss %.4f", evaluation->loss);
    if (evaluation->is_one_loss)
        return;
    for (int32_t i = 0; i < evaluation->metrics; i++) {
        const dlc_metric *metric = &evaluation->metric[i];
        if (!metric->is_loss)
            continue;
        dlc_text_add(line, "%s%s %.4f", before, metric->name, dlc_metric_mean(metric));
        before = ", ";
    }
    dlc_text_add(line, ")");
}

/* Adds the metrics of a test, which have the names of their layers. */
static void add_test(const dlc_evaluation *evaluation, dlc_text *line,
                     dlc_json *event) {
    dlc_json_number(event, "test_loss", evaluation->loss);
    dlc_json_number(event, "accuracy", evaluation->accuracy);
    dlc_json_object(event, "metrics");
    if (evaluation->losses)
        add_shown_losses(evaluation, line);
    const char *comma = evaluation->losses ? "," : "";
    for (int32_t i = 0; i < evaluation->metrics; i++) {
        const dlc_metric *metric = &evaluation->metric[i];
        double mean = dlc_metric_mean(metric);
        if (!metric->is_loss) {
            dlc_text_add(line, "%s %s %.4f", comma, metric->name, mean);
            comma = ",";
        }
        dlc_json_number(event, metric->name, mean);
    }
    dlc_json_end_object(event);
    dlc_json_number(event, "seconds", evaluation->seconds);
}

void dlc_progress_result(dlc_progress *progress, const dlc_evaluation *evaluation) {
    int64_t count = progress->result_count;
    if (count)
        progress->training_loss = progress->result_sum / (double)count;
    progress->result_sum = 0;
    progress->result_count = 0;
    if (!progress->is_shown || (!count && !evaluation))
        return;
    dlc_text line = {0};
    dlc_json event = dlc_log_event_begin(evaluation ? "test" : "epoch");
    dlc_text_add(&line, "epoch %.2f, iteration %" PRId64 ":", epochs(progress),
                 progress->done);
    dlc_json_int(&event, "iteration", progress->done);
    dlc_json_number(&event, "epoch", epochs(progress));
    if (count) {
        dlc_text_add(&line, " loss %.4f%s", progress->training_loss,
                     evaluation ? "," : "");
        dlc_json_number(&event, "training_loss", progress->training_loss);
    }
    if (evaluation)
        add_test(evaluation, &line, &event);
    dlc_log_result_text(&line);
    dlc_log_event_end(&event);
    dlc_text_free(&line);
    progress->last_line = dlc_now_ns();
}

void dlc_progress_end(dlc_progress *progress) {
    if (!progress->is_shown)
        return;
    dlc_log_status("%s", "");
    if (progress->loss_count)
        write_line(progress);
    if (dlc_progress_data_wait(progress) >= WORTH_ADVICE)
        dlc_info("training waited for data %.0f %% of the time: more [data] threads "
                 "help, and so do smaller images (dlcore data convert --resize)",
                 100 * dlc_progress_data_wait(progress));
}
