/* dlcore topo: shows the interconnect of a job's ranks, and the route and transport
 * between any two of them. */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "command.h"
#include "options.h"
#include "plugin/answers.h"
#include "streams.h"
#include "topo_make.h"
#include "topo_measure.h"
#include "topology/discover.h"

typedef enum format { ASCII, SVG, JSON } format;

typedef struct topo_command {
    dlc_tool_sets sets;
    int ranks;          /* 0: not given */
    topo_recorded from; /* path NULL: this machine */
    format format;
    int measure;
    double seconds;
    dlc_bench_plan plan;
    dlc_topo machine; /* this one, as hwloc sees it */
} topo_command;

enum {
    KEY_RANKS = 0x500,
    KEY_DEVICE,
    KEY_TRANSPORT,
    KEY_SET,
    KEY_FROM,
    KEY_NODES,
    KEY_OF,
    KEY_JSON,
    KEY_MEASURE,
    KEY_TIMEOUT
};

static const struct argp_option options[] = {
    {"ranks", KEY_RANKS, "N", 0,
     "ranks on this machine (one per device, or per NUMA node, at least 2); for a "
     "recorded machine: GPUs to show, or ranks to distribute over its NUMA nodes",
     1},
    {"device", KEY_DEVICE, "NAME", 0, "the device that the ranks compute on", 1},
    {"transport", KEY_TRANSPORT, "NAME", 0, "the transport between ranks (auto)", 1},
    {"set", KEY_SET, "SECTION.KEY=VALUE", 0,
     "a setting of [train], [parallel] or [transport]", 1},
    {"from", KEY_FROM, "FILE", 0,
     "a recorded machine instead of this one: hwloc's XML (lstopo FILE.xml) or "
     "NCCL's XML",
     2},
    {"nodes", KEY_NODES, "N", 0, "N of the recorded machine, connected by a network",
     2},
    {"measure", KEY_MEASURE, NULL, 0,
     "measure each pair, and check that every byte arrives", 3},
    {"timeout", KEY_TIMEOUT, "SECONDS", 0, "stop measuring a pair after this time (10)",
     3},
    {"of", KEY_OF, "ascii|svg|json", 0, "what to print (ascii)", 4},
    {"json", KEY_JSON, NULL, 0, "the same as --of=json", 4},
    {"verbose", 'v', NULL, 0, "log more", 4},
    {"quiet", 'q', NULL, 0, "log only warnings and errors", 4},
    {0}};

/* ---- Options ----------------------------------------------------------------- */

static void parse_format(topo_command *command, const char *argument,
                         struct argp_state *state) {
    static const char *const formats[] = {"ascii", "svg", "json"};
    for (int i = 0; i < 3; i++)
        if (strcmp(argument, formats[i]) == 0) {
            command->format = (format)i;
            return;
        }
    argp_error(state, "--of=%s: ascii, svg or json", argument);
}

static void parse_timeout(topo_command *command, const char *argument,
                          struct argp_state *state) {
    char rest;
    if (sscanf(argument, "%lf%c", &command->seconds, &rest) != 1 ||
        !(command->seconds > 0 && command->seconds <= 3600))
        argp_error(state, "--timeout=%s: seconds, more than 0 and up to 3600",
                   argument);
}

static error_t parse_job(int key, char *argument, struct argp_state *state) {
    topo_command *command = state->input;
    switch (key) {
    case KEY_RANKS:
        command->ranks = dlc_tool_parse_count("ranks", argument, TOPO_MAX_ENDS, state);
        return 0;
    case KEY_DEVICE:
        dlc_tool_sets_add(&command->sets, dlc_format("train.device=%s", argument));
        return 0;
    case KEY_TRANSPORT:
        dlc_tool_sets_add(&command->sets, dlc_format("transport.type=%s", argument));
        return 0;
    case KEY_SET:
        dlc_tool_sets_add(&command->sets, dlc_strdup(argument));
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_end(const topo_command *command, struct argp_state *state) {
    if (command->from.path && command->measure)
        argp_error(state,
                   "a recorded machine cannot be measured (--from with --measure)");
    if (command->from.nodes && !command->from.path)
        argp_error(state, "--nodes needs a recorded machine (--from)");
    return 0;
}

static error_t parse(int key, char *argument, struct argp_state *state) {
    topo_command *command = state->input;
    switch (key) {
    case KEY_FROM:
        command->from.path = argument;
        return 0;
    case KEY_NODES:
        command->from.nodes = dlc_tool_parse_count("nodes", argument, TOPO_MAX_ENDS,
                                                   state);
        return 0;
    case KEY_OF:
        parse_format(command, argument, state);
        return 0;
    case KEY_JSON:
        command->format = JSON;
        return 0;
    case KEY_MEASURE:
        command->measure = 1;
        return 0;
    case KEY_TIMEOUT:
        parse_timeout(command, argument, state);
        return 0;
    case 'v':
    case 'q':
        dlc_log_level_set(key == 'v' ? DLC_LOG_DEBUG : DLC_LOG_WARN);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "topo takes no argument: '%s'; a file comes after --from",
                   argument);
        return 0;
    case ARGP_KEY_END:
        return parse_end(command, state);
    default:
        return parse_job(key, argument, state);
    }
}

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .doc =
        "Shows the interconnect of a job's ranks: a matrix of links, and for every pair"
        " the route that fits the link, the transport that is chosen, and why each of "
        "the others is not.\v"
        "Links are named as nvidia-smi does; the legend explains them. A route is what "
        "the machine allows; a transport is an installed plugin that uses it. --measure "
        "shows the one-way bandwidth of 8 MiB in GB/s and the one-way latency of 8 bytes "
        "in microseconds, the best of 5 batches, one pair after the other, and exits with "
        "1 if bytes were changed or a pair did not answer."};

/* ---- Printing ------------------------------------------------------------------ */

static dlc_status print(const topo_command *command, const topo_report *report) {
    dlc_json json = {0};
    dlc_text text = {0};
    if (command->format == JSON) {
        topo_json(report, &json);
        return dlc_tool_print_json(&json);
    }
    if (command->format == SVG) {
        dlc_status status = topo_svg(report, &text);
        if (status != DLC_OK) {
            dlc_text_free(&text);
            return status;
        }
    } else {
        topo_ascii(report, &text);
    }
    return dlc_tool_print_text(&text);
}

static dlc_status show_recorded(topo_command *command) {
    topo_report report = {.source = command->from.path};
    command->from.ranks = command->ranks;
    dlc_status status = topo_replay(&command->from, &command->plan, &report);
    if (status == DLC_OK)
        status = print(command, &report);
    topo_report_free(&report);
    return status;
}

/* Whether all pairs were measured without errors. */
static dlc_status judge_measured(const topo_report *report) {
    for (size_t i = 0; i < report->pairs; i++) {
        const topo_pair *pair = &report->pair[i];
        if (pair->measured.problem[0])
            return dlc_fail(DLC_ERR_INTERNAL, "rank %d - rank %d: %s", pair->a, pair->b,
                            pair->measured.problem);
        if (pair->measured.done && !pair->measured.intact)
            return dlc_fail(DLC_ERR_INTERNAL,
                            "bytes were changed between rank %d and rank %d", pair->a,
                            pair->b);
    }
    return DLC_OK;
}

static int topo_as_rank(dlc_job *job, void *argument) {
    topo_command *command = argument;
    topo_report report = {.source = NULL};
    dlc_status status = topo_discover_job(job, &command->plan, &command->machine,
                                          &report);
    if (status == DLC_OK && command->measure)
        status = topo_measure(job, &command->plan, command->seconds, &report);
    if (status == DLC_OK && dlc_job_rank(job) == 0) {
        status = print(command, &report);
        if (status == DLC_OK)
            status = judge_measured(&report);
    }
    topo_report_free(&report);
    if (dlc_job_rank(job) != 0) /* inherited by fork */
        dlc_topo_free(&command->machine);
    return dlc_tool_end_rank(job, status);
}

/* The default: one rank per device, or per NUMA node. */
static dlc_status count_ranks(topo_command *command) {
    const dlc_feature *device = command->plan.device;
    int32_t count = 0;
    if (command->ranks)
        return DLC_OK;
    if (dlc_job_is_external()) {
        command->ranks = 1; /* others say how many there are */
        return DLC_OK;
    }
    if (device->caps & DLC_DEVICE_HOST)
        count = (int32_t)dlc_topo_count(&command->machine, -1, DLC_TOPO_NUMA);
    else
        DLC_TRY(dlc_answer_devices(device, &count));
    command->ranks = count > 2 ? count : 2;
    return DLC_OK;
}

static dlc_status show_job(topo_command *command, int *exit_code) {
    DLC_TRY(dlc_topo_discover(&command->machine));
    DLC_TRY(count_ranks(command));
    int host = (command->plan.device->caps & DLC_DEVICE_HOST) != 0;
    dlc_job_options job = {.ranks = command->ranks,
                           .external = 1,
                           .hang_timeout = command->measure ? command->seconds + 5 : 0,
                           .device = command->plan.device->name,
                           .devices = host ? 0 : TOPO_MAX_ENDS};
    return dlc_job_run(&job, topo_as_rank, command, exit_code);
}

/* ---- The command --------------------------------------------------------------- */

int dlc_command_topo(int argc, char **argv) {
    topo_command command = {.seconds = 10};
    int exit_code = 0;
    dlc_tool_parse(&argp, argc, argv, &command);
    dlc_status status = command.sets.failed ? DLC_ERR_NOMEM : DLC_OK;
    if (status == DLC_OK && command.format == JSON)
        status = dlc_tool_reserve_stdout();
    if (status == DLC_OK)
        status = dlc_bench_plan_open((const char *const *)command.sets.list,
                                     command.sets.count, &command.plan);
    if (status == DLC_OK)
        status = command.from.path ? show_recorded(&command)
                                   : show_job(&command, &exit_code);
    dlc_topo_free(&command.machine);
    dlc_bench_plan_close(&command.plan);
    dlc_tool_sets_free(&command.sets);
    return status == DLC_OK ? exit_code : dlc_tool_end(status);
}
