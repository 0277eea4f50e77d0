/* dlcore time: measures the time of a training pass, layer by layer. */
#include <string.h>

#include "command.h"
#include "cpu_limits.h"
#include "file.h"
#include "options.h"
#include "run/run.h"
#include "streams.h"
#include "time_measure.h"
#include "time_report.h"
#include "topology/quota.h"

typedef struct time_command {
    dlc_tool_options tool; /* first: what the child parsers get */
    int passes;            /* 0: not given */
    dlc_time_order order;
    dlc_time_style style;
    const char *plot;
    dlc_setup *setup;
} time_command;

enum { KEY_PASSES = 0x300, KEY_ORDER, KEY_WIDE, KEY_ALL, KEY_PLOT };

static const struct argp_option options[] = {
    {"passes", KEY_PASSES, "N", 0,
     "passes to measure (50, or as many as fit in 10 s, but at least 5)", 0},
    {"order", KEY_ORDER, "time|net", 0,
     "order of rows: slowest first (time), or as in the net", 0},
    {"wide", KEY_WIDE, NULL, 0, "show the rates of each part, and types", 0},
    {"all", KEY_ALL, NULL, 0, "also show layers that are fused into others", 0},
    {"plot", KEY_PLOT, "FILE.svg", 0, "also draw a plot", 0},
    {0}};

static error_t parse_order(time_command *command, const char *argument,
                           struct argp_state *state) {
    if (strcmp(argument, "net") == 0)
        command->order = TIME_AS_IN_NET;
    else if (strcmp(argument, "time") == 0)
        command->order = TIME_SLOWEST_FIRST;
    else
        argp_error(state, "--order=%s: must be `time` (slowest first) or `net`",
                   argument);
    return 0;
}

static error_t parse(int key, char *argument, struct argp_state *state) {
    time_command *command = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        dlc_tool_share_input(state, &command->tool);
        return 0;
    case KEY_PASSES:
        command->passes = dlc_tool_parse_count("passes", argument, TIME_MAX_PASSES,
                                               state);
        return 0;
    case KEY_ORDER:
        return parse_order(command, argument, state);
    case KEY_WIDE:
        command->style.wide = 1;
        return 0;
    case KEY_ALL:
        command->style.all = 1;
        return 0;
    case KEY_PLOT:
        command->plot = dlc_tool_parse_plot(argument, state);
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
        "Measures each layer, and each reorder between layers, in training on one rank's "
        "batch: forward, backward data (bw data), backward weights (bw param), and the "
        "solver's update of its weights.\v"
        "Each number is the median over the passes; totals are sums of medians. If a "
        "layer cannot do backward data and backward weights separately, all of its "
        "backward is under `bw data`. The update is the solver's own, run on each "
        "layer's slice of the weights. GFLOP/s count two operations per multiply-add; "
        "GB/s count every tensor that must be read or written once, regardless of "
        "caches. `of limit` is the time that the CPU's limit of arithmetic or of memory "
        "allows, whichever is longer, over the time taken; the limits are measured at "
        "the start, with as many threads. `done by` is the implementation and layout "
        "that the layer reports.",
    .children = dlc_tool_children};

/* ---- Output ------------------------------------------------------------ */

static dlc_status print_text(const time_command *command, const dlc_time_head *head,
                             const dlc_time_table *table) {
    dlc_text text = {0};
    dlc_time_style style = command->style;
    if (dlc_tool_columns())
        style.width = dlc_tool_columns();
    dlc_time_text(head, table, &style, &text);
    return dlc_tool_print_text(&text);
}

static dlc_status print_json(const dlc_time_head *head, const dlc_time_table *table) {
    dlc_json json = {0};
    dlc_time_json(head, table, &json);
    return dlc_tool_print_json(&json);
}

static dlc_status draw(const char *path, const dlc_time_head *head,
                       const dlc_time_table *table) {
    dlc_text svg = {0};
    dlc_status status = dlc_time_svg(head, table, &svg);
    if (status == DLC_OK)
        status = dlc_tool_file_write(path, svg.bytes, svg.length);
    dlc_text_free(&svg);
    return status;
}

static dlc_status report(const time_command *command, const dlc_session *session,
                         const dlc_time_measured *measured,
                         const dlc_time_limits *limits, double feed_images) {
    dlc_time_head head = {.net = session->setup->name,
                          .device = session->setup->device->name,
                          .solver = session->setup->solver->name,
                          .precision = dlc_settings_get_string(
                              session->setup->train_settings, "precision"),
                          .batch = session->local_batch,
                          .feed_images = feed_images,
                          .limits = *limits,
                          .threads = dlc_job_threads(session->job)};
    dlc_time_table table;
    DLC_TRY(dlc_time_table_make(measured->row, measured->update, limits,
                                &measured->samples, command->order, &table));
    dlc_status status = command->tool.json ? print_json(&head, &table)
                                           : print_text(command, &head, &table);
    if (status == DLC_OK && command->plot)
        status = draw(command->plot, &head, &table);
    dlc_time_table_free(&table);
    return status;
}

/* ---- The command ----------------------------------------------------------------- */

static dlc_status check_alone(int ranks) {
    return ranks == 1
               ? DLC_OK
               : dlc_fail(DLC_ERR_CONFIG, "time measures one rank only; use --ranks=1");
}

/* Measures what the CPU can do in the net's precision. Of other devices it is unknown.
 */
static dlc_time_limits find_limits(const dlc_setup *setup, int threads) {
    const double seconds = 0.02, most_bytes = 256e6;
    double bytes = dlc_quota_memory("") / 8;
    dlc_cpu_limits limits;
    if (!(setup->device->caps & DLC_DEVICE_HOST))
        return (dlc_time_limits){0};
    bytes = bytes > 0 && bytes < most_bytes ? bytes : most_bytes;
    dlc_cpu_limits_measure(threads, (size_t)bytes, seconds, &limits);
    int is_bf16 = dlc_settings_is(setup->train_settings, "precision", "bf16");
    return (dlc_time_limits){.gflops = is_bf16 ? dlc_cpu_limits_bf16(&limits)
                                               : limits.float32,
                             .gbytes = dlc_cpu_limits_memory(&limits)};
}

static int time_as_rank(dlc_job *job, void *argument) {
    time_command *command = argument;
    dlc_session session;
    dlc_time_measured measured = {0};
    dlc_status status = check_alone(dlc_job_ranks(job));
    if (status != DLC_OK)
        return dlc_tool_end_rank(job, status);
    /* Before the net has threads and memory. */
    dlc_time_limits limits = find_limits(command->setup, dlc_job_threads(job));
    status = dlc_session_open(command->setup, job, &session);
    if (status == DLC_OK) {
        double feed_images = 0;
        status = dlc_time_measure(&session, command->passes, &measured);
        if (status == DLC_OK)
            status = dlc_time_feed(&session, &feed_images);
        if (status == DLC_OK)
            status = report(command, &session, &measured, &limits, feed_images);
        dlc_time_measured_free(&measured);
        dlc_session_close(&session);
    }
    return dlc_tool_end(status);
}

int dlc_command_time(int argc, char **argv) {
    time_command command = {.order = TIME_SLOWEST_FIRST};
    int exit_code = 0;
    dlc_tool_parse(&argp, argc, argv, &command);
    dlc_status status = command.plot ? dlc_tool_file_check(command.plot) : DLC_OK;
    if (status == DLC_OK)
        status = dlc_tool_setup(&command.tool, DLC_PHASE_TRAIN, &command.setup);
    if (status == DLC_OK)
        status = check_alone((int)command.setup->ranks);
    if (status == DLC_OK)
        status = dlc_tool_run(command.setup, time_as_rank, &command, &exit_code);
    return dlc_tool_close(&command.tool, command.setup, status, exit_code);
}
