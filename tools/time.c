/* dlcore time: how long each layer takes, forward and backward. */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "command.h"
#include "options.h"
#include "train/session.h"

enum { WARM_UP = 5, DEFAULT_PASSES = 50 };

typedef struct time_command {
    dlc_tool_options tool; /* first: what the child parsers get */
    int passes;
    dlc_setup *setup;
} time_command;

enum { KEY_PASSES = 0x300 };

static const struct argp_option options[] = {
    {"passes", KEY_PASSES, "N", 0, "passes to measure (50)", 0}, {0}};

static error_t parse(int key, char *argument, struct argp_state *state) {
    time_command *command = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        dlc_tool_share_input(state, &command->tool);
        return 0;
    case KEY_PASSES:
        command->passes = 0;
        if (sscanf(argument, "%d", &command->passes) != 1 || command->passes < 1)
            argp_error(state, "--passes=%s: a number of passes, 1 or more", argument);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .args_doc = "NET.INI",
    .doc = "Measures forward and backward of each layer on this rank's batch.",
    .children = dlc_tool_children};

static dlc_status passes(dlc_session *session, int count) {
    for (int i = 0; i < count; i++) {
        dlc_batch batch;
        DLC_TRY(dlc_feed_next(session->feed, &batch));
        DLC_TRY(dlc_net_set_input(session->net, batch.data, batch.labels));
        DLC_TRY(dlc_net_forward(session->net, i, 0));
        DLC_TRY(dlc_net_backward(session->net, 1, NULL, NULL));
    }
    return DLC_OK;
}

static double gflops(const dlc_net_row *row, double times, double microseconds) {
    return microseconds > 0
               ? 2 * times * (double)row->multiply_adds / (microseconds * 1e3)
               : 0;
}

static dlc_status print_text(const dlc_session *session, int count) {
    double scale = 1e6 / count, total = 0;
    printf("%-16s %-14s %12s %9s %12s %9s  %s\n", "layer", "type", "forward us",
           "GFLOP/s", "backward us", "GFLOP/s", "done by");
    for (int32_t i = 0; i < dlc_net_rows(session->net); i++) {
        dlc_net_row row;
        DLC_TRY(dlc_net_row_at(session->net, i, &row));
        double forward = row.forward_seconds * scale;
        double backward = row.backward_seconds * scale;
        printf("%-16s %-14s %12.1f %9.1f %12.1f %9.1f  %s\n", row.name, row.type,
               forward, gflops(&row, 1, forward), backward, gflops(&row, 2, backward),
               row.absorbed_by ? row.absorbed_by : row.choice);
        total += forward + backward;
    }
    printf("\nforward and backward %.1f us, %.0f images/s\n", total,
           1e6 * (double)session->share / total);
    return DLC_OK;
}

static dlc_status print_json(const dlc_session *session, int count) {
    dlc_json json = {0};
    dlc_json_object(&json, NULL);
    dlc_json_string(&json, "net", session->setup->name);
    dlc_json_int(&json, "batch", session->share);
    dlc_json_int(&json, "passes", count);
    dlc_json_array(&json, "layers");
    for (int32_t i = 0; i < dlc_net_rows(session->net); i++) {
        dlc_net_row row;
        dlc_status status = dlc_net_row_at(session->net, i, &row);
        if (status != DLC_OK) {
            dlc_text_free(&json.text);
            return status;
        }
        dlc_json_object(&json, NULL);
        dlc_json_string(&json, "name", row.name);
        dlc_json_string(&json, "type", row.type);
        dlc_json_number(&json, "forward_us", row.forward_seconds * 1e6 / count);
        dlc_json_number(&json, "backward_us", row.backward_seconds * 1e6 / count);
        dlc_json_int(&json, "multiply_adds", row.multiply_adds);
        dlc_json_string(&json, "choice", row.absorbed_by ? NULL : row.choice);
        dlc_json_string(&json, "absorbed_by", row.absorbed_by);
        dlc_json_end_object(&json);
    }
    dlc_json_end_array(&json);
    dlc_json_end_object(&json);
    return dlc_tool_print_json(&json);
}

static int time_as_rank(dlc_job *job, void *argument) {
    time_command *command = argument;
    dlc_session session;
    dlc_status status = dlc_session_open(command->setup, job, &session);
    if (status == DLC_OK) {
        status = passes(&session, WARM_UP);
        dlc_net_time(session.net, 1);
        if (status == DLC_OK)
            status = passes(&session, command->passes);
        if (status == DLC_OK)
            status = command->tool.json ? print_json(&session, command->passes)
                                        : print_text(&session, command->passes);
        dlc_session_close(&session);
    }
    return dlc_tool_end(status);
}

int dlc_command_time(int argc, char **argv) {
    time_command command = {.passes = DEFAULT_PASSES};
    int exit_code = 0;
    dlc_tool_parse(&argp, argc, argv, &command);
    dlc_status status = dlc_tool_setup(&command.tool, &command.setup);
    if (status == DLC_OK && command.setup->ranks > 1)
        status = dlc_fail(DLC_ERR_CONFIG, "time measures one rank; give --ranks=1");
    if (status == DLC_OK)
        status = dlc_setup_open_data(command.setup, 1, 0);
    if (status == DLC_OK)
        status = dlc_tool_run(command.setup, time_as_rank, &command, &exit_code);
    return dlc_tool_close(&command.tool, command.setup, status, exit_code);
}
