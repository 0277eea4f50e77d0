/* dlcore train: starts the ranks, each of which trains; rank 0 reports the result. */
#include "train/train.h"
#include "base/text.h"

#include <math.h>
#include <signal.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/run_folder.h"
#include "command.h"
#include "known_files.h"
#include "options.h"
#include "run/run.h"
#include "setup/data_source.h"

typedef struct train_command {
    dlc_tool_options tool; /* first: the child parsers get a pointer to it */
    dlc_train_options train;
    const char *resume;
    dlc_setup *setup;
} train_command;

enum { KEY_RESUME = 0x300 };

static const struct argp_option options[] = {
    {"resume", KEY_RESUME, "PATH|auto", 0,
     "resume from a checkpoint, or from the newest in a folder; auto: from this net's last "
     "run, or from --run-dir",
     0},
    {0}};

static error_t parse(int key, char *argument, struct argp_state *state) {
    train_command *command = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        dlc_tool_share_input_of_train(state, &command->tool);
        return 0;
    case KEY_RESUME:
        command->resume = argument;
        return 0;
    case ARGP_KEY_END:
        if (command->tool.weights.file.count && command->resume &&
            !dlc_is_auto(command->resume))
            argp_error(state,
                       "--resume continues a run, --weights starts a new one: give "
                       "one of them");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "NET.INI",
    .doc =
        "Trains the net that net.ini describes.\vResults go to stdout: a line for each "
        "test and each epoch, and the summary (none with --quiet). Progress, messages and errors go to "
        "stderr; with --json results go there too, and stdout has one JSON "
        "document.\n\nEvery option of a job is a shorthand for --set: --ranks=2 is "
        "--set parallel.ranks=2. SIGINT and SIGTERM write a checkpoint and stop; SIGHUP "
        "writes one and continues; SIGUSR1 reads [consistency] again, if the model "
        "allows it.",
    .children = dlc_tool_children_of_train};

static void say_exchange(const dlc_train_result *result) {
    double megabytes = result->exchange_bytes / 1e6;
    if (isnan(result->hidden))
        dlc_info("exchange: %.1f MB per rank, on the devices' queues", megabytes);
    else
        dlc_info("exchange: %.1f MB per rank, %.2f s, %.0f %% of it hidden behind the "
                 "computation",
                 megabytes, result->exchange_seconds, 100 * result->hidden);
}

/* Leaves out a value that was never measured. */
static void add_number(dlc_text *line, const char *name, double value) {
    if (!isnan(value))
        dlc_text_add(line, "%s %.4f,", name, value);
}

/* Reports a resumed run that was already complete. */
static void say_complete(const dlc_session *session, const dlc_train_result *result) {
    dlc_text line = {0};
    dlc_text_add(&line,
                 "nothing to do: the run in %s is complete after %lld iterations:",
                 session->run_folder->path, (long long)session->iteration);
    add_number(&line, " training loss", result->training_loss);
    add_number(&line, " test loss", result->test_loss);
    add_number(&line, " test accuracy", result->accuracy);
    dlc_text_add(&line, " nothing was changed");
    dlc_log_result_text(&line);
    dlc_text_free(&line);
}

static void say_result(const dlc_session *session, const dlc_train_result *result) {
    dlc_text line = {0};
    if (result->is_nothing) {
        say_complete(session, result);
        return;
    }
    dlc_text_add(&line, "%s after %lld iterations, %.1f s:",
                 result->stopped ? "stopped" : "done", (long long)session->iteration,
                 result->seconds);
    add_number(&line, " training loss", result->training_loss);
    add_number(&line, " test loss", result->test_loss);
    add_number(&line, " test accuracy", result->accuracy);
    if (result->images_per_s > 0) /* too short a run is not measured */
        dlc_text_add(&line, " %.0f images/s", result->images_per_s);
    else if (line.length)
        line.bytes[line.length - 1] = '\0'; /* the comma or colon before it */
    dlc_log_result_text(&line);
    dlc_text_free(&line);
    if (result->exchange_bytes > 0)
        say_exchange(result);
    if (result->checkpoint)
        dlc_log_result("checkpoint: %s", result->checkpoint);
}

static dlc_status report(const dlc_session *session, const train_command *command,
                         const dlc_train_result *result) {
    if (session->rank != 0)
        return DLC_OK;
    say_result(session, result);
    if (!command->tool.json)
        return dlc_log_results_status();
    dlc_json json = {0};
    dlc_train_report_json(session, result, &json);
    return dlc_tool_print_json(&json);
}

static int train_as_rank(dlc_job *job, void *argument) {
    train_command *command = argument;
    dlc_session session;
    dlc_run_folder folder;
    dlc_train_result result = {0};
    dlc_weights weights = dlc_tool_weights_of(&command->tool.weights);
    dlc_job_stop_at_once(job, 1); /* until the first iteration */
    dlc_status status = dlc_run_folder_open(command->setup, job, command->resume,
                                            &folder);
    if (status != DLC_OK)
        return dlc_tool_end_rank(job, status);
    command->train.folder = &folder;
    if (command->tool.weights.file.count)
        command->train.weights = &weights;
    status = dlc_session_open(command->setup, job, &session);
    if (status == DLC_OK) {
        status = dlc_train(&session, &command->train, &result);
        if (status == DLC_OK)
            status = report(&session, command, &result);
        dlc_train_result_free(&result);
        dlc_session_close(&session);
    }
    dlc_run_folder_close(&folder);
    return dlc_tool_end_rank(job, status);
}

int dlc_command_train(int argc, char **argv) {
    train_command command = {0};
    int exit_code = 0;
    dlc_tool_parse(&argp, argc, argv, &command);
    if (dlc_tool_hosts_given(&command.tool.hosts)) {
        exit_code = dlc_tool_hosts_run(&command.tool.hosts);
        return dlc_tool_close(&command.tool, NULL, DLC_OK, exit_code);
    }
    /* Ctrl-C also ends `tee` behind a pipe; the final checkpoint must still be written.
     */
    signal(SIGPIPE, SIG_IGN);
    dlc_status status = dlc_tool_setup(&command.tool, DLC_PHASE_TRAIN | DLC_PHASE_TEST,
                                       &command.setup);
    if (status == DLC_OK && command.resume)
        status = dlc_known_file_check_weights(command.resume);
    if (status == DLC_OK)
        status = dlc_data_source_identify(&command.setup->train);
    if (status == DLC_OK)
        status = dlc_tool_run(command.setup, train_as_rank, &command, &exit_code);
    return dlc_tool_close(&command.tool, command.setup, status, exit_code);
}
