/* dlcore check: a net validated and laid out, without training it. */
#include <stdio.h>

#include "base/memory.h"
#include "check_mistakes.h"
#include "check_report.h"
#include "command.h"
#include "machine.h"
#include "options.h"

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
    .doc = "Validates net.ini and shows what it describes: layers, shapes, parameters, "
           "multiply-adds of one sample forward, and the memory that a rank will take. "
           "Of layers that are split (parallel = tensor) and of stages, what each of "
           "--ranks has; what training would choose by measuring (parallel = auto, "
           "tensor_schedule = auto) is left as it is without.",
    .children = dlc_tool_children};

typedef struct check_command {
    dlc_tool_options tool; /* first: what the child parsers get */
    check_mistakes mistakes;
    dlc_setup *setup;
    int32_t wanted; /* ranks of a job on this machine */
    int32_t ranks;  /* that are shown */
} check_command;

/* Are layers or stages shared out, once there are ranks? */
static int has_plan(const dlc_setup *setup) {
    int split = !dlc_settings_is(setup->parallel_settings, "stages", "1");
    for (int32_t i = 0; i < setup->graph->layers; i++)
        split |= setup->graph->layer[i].parallel != DLC_PARALLEL_DATA;
    return split;
}

/* Ranks that have the same are shown once: the replicas of a stage. */
static int32_t alike(const dlc_session *session) {
    return session->pipeline ? session->pipeline->stages.replicas : 1;
}

static dlc_status show_ranks(const check_command *command, dlc_job *job,
                             check_report *report) {
    for (int32_t rank = 0, count = 0; rank < command->ranks; rank += count) {
        dlc_session session;
        DLC_TRY(
            dlc_session_open_plan(command->setup, job, rank, command->ranks, &session));
        int shared = session.pipeline || session.split.count > 0;
        count = shared ? alike(&session) : command->ranks;
        dlc_status status = shared ? check_report_ranks(report, &session, count)
                                   : check_report_net(report, &session);
        if (status == DLC_OK && rank + count >= command->ranks)
            status = dlc_memory_judge(&session, &report->memory);
        dlc_session_close(&session);
        DLC_TRY(status);
    }
    return DLC_OK;
}

/* What only a net that is built shows is a mistake like the others. */
static dlc_status tell_failure(check_command *command, dlc_status status) {
    dlc_problems problems = {.tell = command->tool.tell,
                             .tell_context = command->tool.tell_context};
    dlc_problems_failed(&problems, command->setup->config, DLC_LINE_FILE, NULL, status);
    return dlc_problems_report(&problems);
}

static int check_as_rank(dlc_job *job, void *argument) {
    check_command *command = argument;
    check_report report = {.json_wanted = command->tool.json,
                           .has_plan = command->ranks == 1 && has_plan(command->setup),
                           .mistakes = &command->mistakes,
                           .ranks = command->wanted};
    dlc_status status = show_ranks(command, job, &report);
    if (status != DLC_OK)
        status = tell_failure(command, status);
    return dlc_tool_end(check_report_end(&report, status));
}

/* As many as each of the ranks would have; 0: all of the machine's cores. */
static int threads_of_each(const check_command *command) {
    int threads = (int)dlc_settings_get_int(command->setup->train_settings, "threads");
    dlc_machine machine;
    if (threads > 0 || command->wanted == 1)
        return threads;
    dlc_machine_read(&machine);
    return machine.cores > command->wanted ? machine.cores / command->wanted : 1;
}

/* What was found before there was a rank; the exit code is that of the failure. */
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
    if (status == DLC_OK) {
        command.wanted = command.setup->ranks;
        dlc_job_options job = {.ranks = 1, /* one shows what all have */
                               .threads = threads_of_each(&command)};
        command.ranks = has_plan(command.setup) ? command.setup->ranks : 1;
        status = dlc_job_run(&job, check_as_rank, &command, &exit_code);
    } else if (command.tool.json) {
        print_failure(&command, status);
    }
    exit_code = dlc_tool_close(&command.tool, command.setup, status, exit_code);
    check_mistakes_free(&command.mistakes);
    return exit_code;
}
