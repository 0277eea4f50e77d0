/* dlcore test: computes loss and accuracy of saved weights on [data.test]. */
#include <stdio.h>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "command.h"
#include "options.h"
#include "train/evaluate.h"

typedef struct test_command {
    dlc_tool_options tool; /* first: the child parsers get a pointer to it */
    dlc_setup *setup;
} test_command;

static error_t parse(int key, char *argument, struct argp_state *state) {
    (void)argument;
    test_command *command = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        dlc_tool_share_input_with_weights(state, &command->tool);
        return 0;
    case ARGP_KEY_END:
        if (!command->tool.weights.file.count)
            argp_error(state, "which weights? Give --weights FILE");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {.parser = parse,
                                 .args_doc = "NET.INI",
                                 .doc = "Tests saved weights on [data.test].",
                                 .children = dlc_tool_children_with_weights};

static dlc_status print_json(const dlc_session *session,
                             const dlc_evaluation *evaluation) {
    dlc_json json = {0};
    dlc_json_object(&json, NULL);
    dlc_json_string(&json, "net", session->setup->name);
    dlc_json_int(&json, "ranks", session->ranks);
    dlc_json_int(&json, "samples", session->setup->test.info.samples);
    dlc_json_number(&json, "test_loss", evaluation->loss);
    dlc_json_number(&json, "accuracy", evaluation->accuracy);
    dlc_json_object(&json, "metrics");
    for (int32_t i = 0; i < evaluation->metrics; i++)
        dlc_json_number(&json, evaluation->metric[i].name,
                        evaluation->metric[i].sum / evaluation->metric[i].count);
    dlc_json_end_object(&json);
    dlc_json_number(&json, "seconds", evaluation->seconds);
    dlc_json_end_object(&json);
    return dlc_tool_print_json(&json);
}

static dlc_status report(const dlc_session *session, const test_command *command,
                         const dlc_evaluation *evaluation) {
    if (session->rank != 0)
        return DLC_OK;
    if (command->tool.json)
        return print_json(session, evaluation);
    for (int32_t i = 0; i < evaluation->metrics; i++)
        printf("%s %.4f\n", evaluation->metric[i].name,
               evaluation->metric[i].sum / evaluation->metric[i].count);
    return DLC_OK;
}

static int test_as_rank(dlc_job *job, void *argument) {
    test_command *command = argument;
    dlc_session session;
    dlc_evaluation evaluation;
    dlc_weights weights = dlc_tool_weights_of(&command->tool.weights);
    dlc_status status = dlc_session_open_test(command->setup, job, &session);
    if (status == DLC_OK) {
        status = dlc_checkpoint_load_weights(&session, session.test_net, &weights);
        if (status == DLC_OK)
            status = dlc_evaluate(&session, &evaluation);
        if (status == DLC_OK)
            status = report(&session, command, &evaluation);
        dlc_session_close(&session);
    }
    return dlc_tool_end_rank(job, status);
}

int dlc_command_test(int argc, char **argv) {
    test_command command = {0};
    int exit_code = 0;
    dlc_tool_parse(&argp, argc, argv, &command);
    dlc_status status = dlc_tool_setup(&command.tool, DLC_PHASE_TEST, &command.setup);
    if (status == DLC_OK && !command.setup->test.present)
        status = dlc_fail(DLC_ERR_CONFIG, "%s has no [data.test] to test on",
                          command.tool.path);
    if (status == DLC_OK)
        status = dlc_tool_run(command.setup, test_as_rank, &command, &exit_code);
    return dlc_tool_close(&command.tool, command.setup, status, exit_code);
}
