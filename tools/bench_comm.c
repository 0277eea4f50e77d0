/* dlcore bench comm: measures time and bandwidth of collectives and messages by size.
 */
#include "bench_comm.h"

#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "bench_measure.h"
#include "config/suggest.h"
#include "file.h"
#include "options.h"
#include "streams.h"

typedef struct comm_command {
    dlc_tool_sets sets;
    dlc_tool_hosts hosts;
    int has_ranks;
    unsigned ops;
    uint64_t least, most, factor;
    dlc_bench_options options;
    int plain, json;
    const char *plot;
    dlc_bench_plan plan;
    dlc_bench_row *row; /* of rank 0 */
    size_t rows;
} comm_command;

enum {
    KEY_RANKS = 0x400,
    KEY_TRANSPORT,
    KEY_DEVICE,
    KEY_OP,
    KEY_MIN,
    KEY_MAX,
    KEY_FACTOR,
    KEY_ITERATIONS,
    KEY_WARM_UP,
    KEY_NO_CHECK,
    KEY_ARENA,
    KEY_PLAIN,
    KEY_SET,
    KEY_JSON,
    KEY_PLOT,
};

static const struct argp_option options[] = {
    {"ranks", KEY_RANKS, "N", 0, "ranks on this machine (2)", 1},
    {"device", KEY_DEVICE, "NAME", 0, "the device whose memory is exchanged", 1},
    {"transport", KEY_TRANSPORT, "NAME", 0, "the transport between ranks (auto)", 1},
    {"set", KEY_SET, "SECTION.KEY=VALUE", 0,
     "a setting of [train], [parallel] or [transport]", 1},
    {"op", KEY_OP, "LIST", 0,
     "operations, separated by commas, or all (all_reduce): all_reduce, broadcast, "
     "all_gather, reduce_scatter, send_recv, ping_pong, stream",
     2},
    {"min", KEY_MIN, "SIZE", 0, "smallest size (4K)", 2},
    {"max", KEY_MAX, "SIZE", 0, "largest size (256M)", 2},
    {"factor", KEY_FACTOR, "N", 0, "factor between sizes (4)", 2},
    {"iterations", KEY_ITERATIONS, "N|auto", 0,
     "measured operations per size (auto: as many as take 0.2 s)", 2},
    {"warm-up", KEY_WARM_UP, "N|auto", 0,
     "operations before measuring (auto: as many as take 0.05 s)", 2},
    {"no-check", KEY_NO_CHECK, NULL, 0, "don't check the results", 2},
    {"arena", KEY_ARENA, NULL, 0,
     "use memory registered with the transport, like gradients (the default)", 2},
    {"plain", KEY_PLAIN, NULL, 0, "use memory that isn't registered", 2},
    {"json", KEY_JSON, NULL, 0, "print one JSON document on stdout", 3},
    {"plot", KEY_PLOT, "FILE.svg", 0, "also draw a plot", 3},
    {"verbose", 'v', NULL, 0, "log more", 3},
    {"quiet", 'q', NULL, 0, "log only warnings and errors", 3},
    {0}};

/* ---- Options --------------------------------------------------------------------- */

static uint64_t parse_size(const char *name, const char *argument,
                           struct argp_state *state) {
    uint64_t bytes = dlc_bench_parse_size(argument);
    if (bytes < sizeof(float))
        argp_error(state, "--%s=%s: not a size from 4 to 1024G, such as 64K", name,
                   argument);
    return bytes / sizeof(float) * sizeof(float);
}

static uint64_t parse_count(const char *name, const char *argument, uint64_t least,
                            int may_be_auto, struct argp_state *state) {
    char rest;
    uint64_t value = 0;
    if (may_be_auto && dlc_is_auto(argument))
        return 0;
    if (argument[0] == '-' || sscanf(argument, "%" SCNu64 "%c", &value, &rest) != 1 ||
        value < least || value > 1000000000)
        argp_error(state, "--%s=%s: not an integer from %" PRIu64 " to 1000000000%s",
                   name, argument, least, may_be_auto ? ", or auto" : "");
    return value;
}

static void parse_ops(comm_command *command, const char *argument,
                      struct argp_state *state) {
    const char *names[BENCH_OPS];
    char bad[32];
    if (!dlc_bench_parse_ops(argument, &command->ops, bad))
        return;
    for (int i = 0; i < BENCH_OPS; i++)
        names[i] = dlc_bench_op_name(i);
    const char *nearest = dlc_nearest(bad, names, BENCH_OPS);
    argp_error(state, "--op: there is no operation '%s'%s%s%s", bad,
               nearest ? "; did you mean '" : "", nearest ? nearest : "",
               nearest ? "'?" : "");
}

static error_t parse_job(int key, char *argument, comm_command *command) {
    switch (key) {
    case KEY_RANKS:
        command->has_ranks = 1;
        dlc_tool_sets_add(&command->sets, dlc_format("parallel.ranks=%s", argument));
        return 0;
    case KEY_DEVICE:
        dlc_tool_sets_add(&command->sets, dlc_format("train.device=%s", argument));
        return 0;
    case KEY_TRANSPORT:
        dlc_tool_sets_add(&command->sets, dlc_format("transport.type=%s", argument));
        return 0;
    case KEY_SET:
        command->has_ranks |= strncmp(argument, "parallel.ranks=", 15) == 0;
        dlc_tool_sets_add(&command->sets, dlc_strdup(argument));
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_report(int key, char *argument, struct argp_state *state) {
    comm_command *command = state->input;
    switch (key) {
    case KEY_JSON:
        command->json = 1;
        return 0;
    case KEY_PLOT:
        command->plot = dlc_tool_parse_plot(argument, state);
        return 0;
    case 'v':
        dlc_log_level_set(DLC_LOG_DEBUG);
        return 0;
    case 'q':
        dlc_log_level_set(DLC_LOG_WARN);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse(int key, char *argument, struct argp_state *state) {
    comm_command *command = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &command->hosts;
        return 0;
    case KEY_OP:
        parse_ops(command, argument, state);
        return 0;
    case KEY_MIN:
        command->least = parse_size("min", argument, state);
        return 0;
    case KEY_MAX:
        command->most = parse_size("max", argument, state);
        return 0;
    case KEY_FACTOR:
        command->factor = parse_count("factor", argument, 2, 0, state);
        return 0;
    case KEY_ITERATIONS:
        command->options.iterations = parse_count("iterations", argument, 1, 1, state);
        return 0;
    case KEY_WARM_UP:
        command->options.warm_up = parse_count("warm-up", argument, 1, 1, state);
        return 0;
    case KEY_NO_CHECK:
        command->options.check = 0;
        return 0;
    case KEY_ARENA:
    case KEY_PLAIN:
        command->plain = key == KEY_PLAIN;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "bench comm takes no argument: '%s'", argument);
        return 0;
    case ARGP_KEY_END:
        if (command->least > command->most)
            argp_error(state, "--min is more than --max");
        return 0;
    default:
        return parse_job(key, argument, command) == 0
                   ? 0
                   : parse_report(key, argument, state);
    }
}

static const struct argp_child children[] = {
    {&dlc_tool_hosts_argp, 0, "Several hosts:", 4}, {0}};

static const struct argp argp = {
    .options = options,
    .parser = parse,
    .children = children,
    .doc =
        "Benchmarks communication between ranks: one line per size, with the columns of "
        "nccl-tests.\v"
        "Times are those of the slowest rank, the mean over many consecutive operations; "
        "for ping_pong one-way. algbw is size / time; busbw is the load of the busiest "
        "link: 2(n-1)/n of algbw for all_reduce, (n-1)/n for all_gather and "
        "reduce_scatter, all of it for the others. #wrong counts wrong elements in one "
        "operation after the measurement. Exits with 1 if there are any."};

/* ---- As a rank ------------------------------------------------------------------- */

static dlc_status report_row(comm_command *command, const dlc_bench_head *head,
                             const dlc_bench_row *row) {
    dlc_bench_row *grown = dlc_grow_by_one(command->row, command->rows, sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    command->row = grown;
    int is_first = command->rows == 0 || grown[command->rows - 1].op != row->op;
    grown[command->rows++] = *row;
    if (command->json)
        return DLC_OK;
    dlc_text text = {0};
    if (is_first)
        dlc_bench_text_head(head, row->op, &text);
    dlc_bench_text_row(head, row, &text);
    return dlc_tool_print_text(&text);
}

static dlc_status report_all(const comm_command *command, const dlc_bench_head *head) {
    if (command->json) {
        dlc_json json = {0};
        dlc_bench_json(head, command->row, command->rows, &json);
        DLC_TRY(dlc_tool_print_json(&json));
    }
    if (!command->plot)
        return DLC_OK;
    dlc_text svg = {0};
    dlc_status status = dlc_bench_svg(head, command->row, command->rows, &svg);
    if (status == DLC_OK)
        status = dlc_tool_file_write(command->plot, svg.bytes, svg.length);
    dlc_text_free(&svg);
    return status;
}

static dlc_status measure_all(comm_command *command, dlc_bench_group *group,
                              const dlc_bench_head *head, int64_t *wrong) {
    for (int op = 0; op < BENCH_OPS; op++) {
        if (!(command->ops & 1u << op))
            continue;
        for (uint64_t bytes = command->least; bytes <= command->most;
             bytes *= command->factor) {
            dlc_bench_row row;
            DLC_TRY(dlc_bench_measure(group, &command->options, (dlc_bench_op)op,
                                      (size_t)bytes, &row));
            if (group->stopped)
                return DLC_OK;
            *wrong += row.wrong > 0 ? row.wrong : 0;
            if (group->rank == 0)
                DLC_TRY(report_row(command, head, &row));
        }
    }
    return DLC_OK;
}

static dlc_status measure(comm_command *command, dlc_bench_group *group) {
    dlc_bench_head head = {.transport = group->connection.transport,
                           .device = command->plan.device->name,
                           .ranks = group->ranks,
                           .arena = !command->plain};
    int64_t wrong = 0;
    DLC_TRY(measure_all(command, group, &head, &wrong));
    if (group->rank == 0)
        DLC_TRY(report_all(command, &head));
    return wrong == 0 || group->rank != 0
               ? DLC_OK
               : dlc_fail(DLC_ERR_INTERNAL, "%" PRId64 " elements were wrong", wrong);
}

static int bench_as_rank(dlc_job *job, void *argument) {
    comm_command *command = argument;
    dlc_bench_group_args args = {
        .bytes = (size_t)command->most,
        .arena = !command->plain,
        .messages = (command->ops & (1u << BENCH_SEND_RECV | 1u << BENCH_PING_PONG |
                                     1u << BENCH_STREAM)) != 0};
    dlc_bench_group group;
    dlc_status status = dlc_bench_group_open(&command->plan, job, &args, &group);
    if (status == DLC_OK) {
        status = measure(command, &group);
        dlc_bench_group_close(&group);
    }
    dlc_free(command->row);
    return dlc_tool_end_rank(job, status);
}

/* ---- The command ----------------------------------------------------------------- */

static int end(comm_command *command, dlc_status status, int exit_code) {
    dlc_bench_plan_close(&command->plan);
    dlc_tool_sets_free(&command->sets);
    dlc_hosts_free(&command->hosts.hosts);
    return status == DLC_OK ? exit_code : dlc_tool_end(status);
}

int dlc_command_bench_comm(int argc, char **argv) {
    comm_command command = {.ops = 1u << BENCH_ALL_REDUCE,
                            .least = 4 << 10,
                            .most = 256 << 20,
                            .factor = 4,
                            .options = {.check = 1}};
    int exit_code = 0;
    dlc_tool_parse(&argp, argc, argv, &command);
    if (dlc_tool_hosts_given(&command.hosts))
        return end(&command, DLC_OK, dlc_tool_hosts_run(&command.hosts));
    if (!command.has_ranks && !dlc_job_is_external())
        dlc_tool_sets_add(&command.sets, dlc_strdup("parallel.ranks=2"));
    dlc_status status = command.sets.failed ? DLC_ERR_NOMEM : DLC_OK;
    if (status == DLC_OK && command.json)
        status = dlc_tool_reserve_stdout();
    if (status == DLC_OK && command.plot)
        status = dlc_tool_file_check(command.plot);
    if (status == DLC_OK)
        status = dlc_bench_plan_open((const char *const *)command.sets.list,
                                     command.sets.count, &command.plan);
    if (status == DLC_OK)
        status = dlc_bench_plan_run(&command.plan, bench_as_rank, &command, &exit_code);
    return end(&command, status, exit_code);
}
