/* dlcore check: validates a net and shows its shapes and memory, without training. */
#include <stdio.h>

#include "base/memory.h"
#include "check_mistakes.h"
#include "check_report.h"
#include "command.h"
#include "machine.h"
#include "options.h"
#include "run/run.h"

static error_t parse(int key, char *argument, struct argp_state *state) {
    (void)argument;
    if (key != ARGP_KEY_INIT)
        return ARGP_ERR_UNKNOWN;
    dlc_tool_share_input(state, state->input);
    return 0;
}

static const struct argp argp = {
    .parser = parse,
    .args_doc = "NET.INI",
    .doc =
        "Validates net.ini and shows what it describes: layers, shapes, parameters, "
        "multiply-adds of one sample's forward pass, and the memory that a rank needs. With "
        "tensor-parallel layers (parallel = tensor) or pipeline stages, shows the part "
        "of each of --ranks. Choices that training makes by measuring (parallel = auto, "
        "tensor_schedule = auto) are not made.",
    .children = dlc_tool_children};

typedef struct check_command {
    dlc_tool_options tool; /* first: the child parsers get a pointer to it */
    check_mistakes mistakes;
    dlc_setup *setup;
    int32_t ranks; /* of a job on this machine */
} check_command;

/* Do ranks hold different parts of the net (layers or stages)? */
static int is_divided(const dlc_setup *setup) {
    return dlc_setup_divides_net(setup);
}

/* Opens a rank, or the one with the most samples if all have the whole net. */
static dlc_status open_rank(const check_command *command, dlc_job *job, int32_t rank,
                            dlc_session *session) {
    DLC_TRY(dlc_session_open_plan(command->setup, job, rank, command->ranks, session));
    int32_t most = dlc_batch_split_most(&command->setup->batch_split);
    if (rank == most || session->part.is_divided)
        return DLC_OK;
    dlc_session_close(session);
    return dlc_session_open_plan(command->setup, job, most, command->ranks, session);
}

static dlc_status show_ranks(const check_command *command, dlc_job *job,
                             check_report *report) {
    for (int32_t rank = 0, count = 0; rank < command->ranks; rank += count) {
        dlc_session session;
        DLC_TRY(open_rank(command, job, rank, &session));
        int is_part = session.part.is_divided;
        count = is_part ? session.part.ranks : command->ranks;
        dlc_status status = is_part ? check_report_part(report, &session)
                                    : check_report_net(report, &session);
        if (status == DLC_OK && rank + count >= command->ranks)
            status = dlc_memory_check_fits(&session, &report->memory);
        dlc_session_close(&session);
        DLC_TRY(status);
    }
    return DLC_OK;
}

/* A failure to build the net is reported like any other mistake. */
static dlc_status report_failure(check_command *command, dlc_status status) {
    dlc_problems problems = {.on_report = command->tool.tell,
                             .report_context = command->tool.tell_context};
    dlc_problems_add_failure(&problems, command->setup->config, DLC_LINE_FILE, NULL,
                             status);
    return dlc_problems_report(&problems);
}

static int check_as_rank(dlc_job *job, void *argument) {
    check_command *command = argument;
    check_report report = {.json_wanted = command->tool.json,
                           .is_divided = command->ranks == 1 &&
                                         is_divided(command->setup),
                           .mistakes = &command->mistakes,
                           .ranks = command->ranks};
    dlc_status status = show_ranks(command, job, &report);
    if (status != DLC_OK)
        status = report_failure(command, status);
    return dlc_tool_end(check_report_end(&report, status));
}

/* Compute threads of each rank; 0: one per core of the machine. */
static dlc_status threads_of_each(const check_command *command, int *threads) {
    dlc_machine machine;
    *threads = (int)dlc_settings_get_int(command->setup->train_settings, "threads");
    if (*threads > 0 || command->ranks == 1)
        return DLC_OK;
    DLC_TRY(dlc_machine_read(&machine));
    *threads = machine.cores > command->ranks ? machine.cores / command->ranks : 1;
    return DLC_OK;
}

/* One process builds the nets of all ranks in turn. */
static dlc_status check_ranks(check_command *command, int *exit_code) {
    dlc_job_options job = {.ranks = 1};
    command->ranks = command->setup->ranks;
    DLC_TRY(threads_of_each(command, &job.threads));
    return dlc_job_run(&job, check_as_rank, command, exit_code);
}

/* As JSON: the mistakes found before there was a rank. Keeps the failure's status. */
static void print_failure(check_command *command, dlc_status status) {
    dlc_json json = {0};
    char *detail = dlc_strdup(dlc_detail());
    check_mistakes_end(&command->mistakes, status);
    dlc_json_object(&json, NULL);
    check_mistakes_write(&command->mistakes, &json);
    dlc_json_end_object(&json);
    dlc_status printed = dlc_tool_print_json(&json);
    if (printed == DLC_OK)
        (void)dlc_fail(status, "%s", detail ? detail : "out of memory");
    dlc_free(detail);
}

int dlc_command_check(int argc, char **argv) {
    check_command command = {0};
    int exit_code = 0;
    dlc_tool_parse(&argp, argc, argv, &command);
    command.tool.tell = check_mistakes_keep;
    command.tool.tell_context = &command.mistakes;
    dlc_status status = dlc_tool_setup(&command.tool, DLC_PHASE_TRAIN | DLC_PHASE_TEST,
                                       &command.setup);
    if (status == DLC_OK)
        status = check_ranks(&command, &exit_code);
    else if (command.tool.json)
        print_failure(&command, status);
    exit_code = dlc_tool_close(&command.tool, command.setup, status, exit_code);
    check_mistakes_free(&command.mistakes);
    return exit_code;
}
