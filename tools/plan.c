/* dlcore plan: how fast a net would train on other machines, and how best to share it
 * out among their ranks. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "command.h"
#include "machine.h"
#include "options.h"
#include "plan_measure.h"
#include "plan_report.h"
#include "train/units.h"

typedef struct plan_command {
    dlc_tool_options tool; /* first: what the child parsers get */
    plan_said said;
    plan_how how;
    dlc_setup *setup;
} plan_command;

enum {
    KEY_FROM = 0x300,
    KEY_NODES,
    KEY_LINK,
    KEY_INSIDE,
    KEY_LATENCY,
    KEY_BATCH,
    KEY_SPEED,
    KEY_IMAGES,
    KEY_PASSES,
    KEY_NO_CHECK
};

enum { PASSES_MOST = 1000 };

static const struct argp_option options[] = {
    {"from", KEY_FROM, "FILE", 0,
     "for a recorded machine: hwloc's XML (lstopo FILE.xml) or NCCL's XML; a rank for "
     "each of its GPUs, or else NUMA nodes",
     0},
    {"nodes", KEY_NODES, "N[xM]", 0, "for N machines of M ranks each", 0},
    {"link", KEY_LINK, "RATE", 0,
     "what joins a machine to the others, in Gb/s or GB/s (the recorded adapters, else "
     "10Gb/s)",
     0},
    {"latency", KEY_LATENCY, "TIME", 0, "of a message between machines, such as 5us",
     0},
    {"inside", KEY_INSIDE, "RATE", 0,
     "what joins a rank to the others of its machine (as recorded, else as measured "
     "here)",
     0},
    {"batch", KEY_BATCH, "N", 0, "another batch than that of net.ini", 0},
    {"speed", KEY_SPEED, "X", 0, "for ranks X times as fast as one of this machine", 0},
    {"images-per-s", KEY_IMAGES, "X", 0, "for ranks that train X images a second alone",
     0},
    {"passes", KEY_PASSES, "N", 0,
     "passes to measure (as many as take 3 s, 5 at least)", 0},
    {"no-check", KEY_NO_CHECK, NULL, 0,
     "leave out the short real run that the prediction is compared with", 0},
    {0}};

/* ---- Options --------------------------------------------------------------------- */

static double parse_factor(const char *name, const char *argument,
                           struct argp_state *state) {
    double value = 0;
    char rest;
    if (sscanf(argument, "%lf%c", &value, &rest) != 1 || !isfinite(value) ||
        value <= 0 || value > 1e9)
        argp_error(state, "--%s=%s: a number above 0", name, argument);
    return value;
}

static double parse_rate(const char *name, const char *argument,
                         struct argp_state *state) {
    double value = 0;
    if (!plan_parse_rate(argument, &value))
        argp_error(state, "--%s=%s: a rate such as 100Gb/s or 12.5GB/s", name,
                   argument);
    return value;
}

static void parse_target(plan_command *command, int key, const char *argument,
                         struct argp_state *state) {
    plan_said *said = &command->said;
    if (key == KEY_FROM)
        said->from = argument;
    else if (key == KEY_LINK)
        said->link = parse_rate("link", argument, state);
    else if (key == KEY_INSIDE)
        said->inside = parse_rate("inside", argument, state);
    else if (key == KEY_NODES && !plan_parse_nodes(argument, &said->nodes, &said->each))
        argp_error(state, "--nodes=%s: machines and ranks of each, such as 16x8",
                   argument);
    else if (key == KEY_LATENCY && !plan_parse_time(argument, &said->latency))
        argp_error(state, "--latency=%s: a time such as 5us", argument);
}

static error_t parse(int key, char *argument, struct argp_state *state) {
    plan_command *command = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        dlc_tool_share_input(state, &command->tool);
        return 0;
    case KEY_FROM:
    case KEY_NODES:
    case KEY_LINK:
    case KEY_LATENCY:
    case KEY_INSIDE:
        parse_target(command, key, argument, state);
        return 0;
    case KEY_BATCH:
        dlc_tool_sets_add(&command->tool.sets, dlc_format("data.batch=%s", argument));
        return 0;
    case KEY_SPEED:
        command->said.speed = parse_factor("speed", argument, state);
        return 0;
    case KEY_IMAGES:
        command->said.images_per_s = parse_factor("images-per-s", argument, state);
        return 0;
    case KEY_PASSES:
        command->how.passes = dlc_tool_parse_count("passes", argument, PASSES_MOST,
                                                   state);
        return 0;
    case KEY_NO_CHECK:
        command->how.check = 0;
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
        "Predicts how fast a net trains on 1, 2, 4 ... ranks of the machines that are "
        "described, and how best to share it out: data parallel, layers split over the "
        "ranks, or stages of a pipeline.\v"
        "Layers are measured here, on --ranks ranks at the same time (2, if there are as "
        "many cores); --speed or --images-per-s takes their times to other devices. "
        "Without --nodes and --from this machine is meant. The prediction for the ranks "
        "here is compared with a short real run of them, which tells how sure it is. "
        "Rates are those of one way; a machine's ranks share what joins it to others.",
    .children = dlc_tool_children};

/* ---- Planning -------------------------------------------------------------------- */

/* What was measured here, predicted the same way. */
static dlc_status check(const plan_measured *measured, plan_check *check) {
    const plan_said nothing = {.latency = -1};
    const dlc_plan_exchange exchange = {.overlap = DLC_PLAN_OVERLAP_BEST};
    plan_target here;
    dlc_plan_step step;
    *check = (plan_check){.done = measured->images_per_s > 0};
    if (!check->done)
        return DLC_OK;
    DLC_TRY(plan_target_make(&nothing, measured, &here));
    DLC_TRY(dlc_plan_step_of(measured->layer, measured->layers, NULL, &here.cluster,
                             &exchange, (double)measured->batch, &step));
    check->ranks = measured->ranks;
    check->iterations = measured->iterations;
    check->predicted = (double)(measured->batch * measured->ranks) / step.seconds;
    check->measured = measured->images_per_s;
    check->error = check->predicted / check->measured - 1;
    return DLC_OK;
}

/* How much faster than here a rank is to be. */
static dlc_status find_speed(const plan_said *said, const plan_measured *measured,
                             double *speed) {
    const dlc_plan_exchange exchange = {.overlap = DLC_PLAN_OVERLAP_NONE};
    dlc_plan_cluster one = {
        .nodes = 1, .each = 1, .update = measured->update, .rest = measured->rest};
    dlc_plan_step step;
    *speed = said->speed;
    if (said->images_per_s <= 0)
        return DLC_OK;
    DLC_TRY(dlc_plan_step_of(measured->layer, measured->layers, NULL, &one, &exchange,
                             (double)measured->batch, &step));
    *speed = said->images_per_s * step.seconds / (double)measured->batch;
    return DLC_OK;
}

static dlc_status print(const plan_command *command, const plan_report *report) {
    dlc_json json = {0};
    dlc_text text = {0};
    if (command->tool.json) {
        plan_report_json(report, &json);
        return dlc_tool_print_json(&json);
    }
    plan_report_text(report, &text);
    return dlc_tool_print_text(&text);
}

static dlc_status plan_with(const plan_command *command, const plan_measured *measured,
                            dlc_plan_layer *layer) {
    plan_prediction prediction;
    plan_target target;
    double speed;
    plan_report report = {.net = command->setup->name,
                          .device = command->setup->device->name,
                          .batch = (double)measured->batch,
                          .measured = measured,
                          .layer = layer,
                          .said = &command->said,
                          .target = &target,
                          .prediction = &prediction};
    DLC_TRY(check(measured, &report.check));
    DLC_TRY(plan_target_make(&command->said, measured, &target));
    DLC_TRY(find_speed(&command->said, measured, &speed));
    plan_layers_speed(layer, measured->layers, speed);
    target.cluster.update *= speed;
    target.cluster.rest /= speed;
    DLC_TRY(plan_predict(layer, measured->layers, &target.cluster, report.batch,
                         &prediction));
    dlc_status status = print(command, &report);
    plan_prediction_free(&prediction);
    return status;
}

static dlc_status plan(const plan_command *command, const plan_measured *measured) {
    dlc_plan_layer *layer = dlc_alloc(measured->layers, sizeof *layer);
    if (!layer)
        return DLC_ERR_NOMEM;
    memcpy(layer, measured->layer, measured->layers * sizeof *layer);
    dlc_status status = plan_with(command, measured, layer);
    dlc_free(layer);
    return status;
}

/* ---- The command ----------------------------------------------------------------- */

/* A file that cannot be read is told before anything is measured. */
static dlc_status check_target(const plan_said *said) {
    const plan_measured none = {.ranks = 1};
    plan_target target;
    return plan_target_make(said, &none, &target);
}

/* As many ranks as tell something of an exchange; the user's word goes before. */
static dlc_status choose_ranks(plan_command *command) {
    dlc_machine machine;
    const dlc_setup *setup = command->setup;
    for (size_t i = 0; i < command->tool.sets.count; i++)
        if (strncmp(command->tool.sets.list[i], "parallel.ranks=", 10) == 0)
            return DLC_OK;
    if (setup->ranks > 1 || setup->units)
        return DLC_OK;
    dlc_machine_read(&machine);
    int units = setup->device->caps & DLC_DEVICE_HOST ? machine.cores
                                                      : dlc_units_count(setup->device);
    return units > 1 ? dlc_setup_set_ranks(command->setup, 2) : DLC_OK;
}

/* Layers are measured whole and with the whole batch, and nothing is written. */
static dlc_status open_setup(plan_command *command) {
    static const char *const sets[] = {"parallel.scaling=weak", "parallel.stages=1",
                                       "parallel.batch_split=equal", "train.test_first=no"};
    if (dlc_job_is_from_outside())
        return dlc_fail(DLC_ERR_CONFIG, "plan starts its ranks itself: run it without "
                                        "mpirun, srun or torchrun");
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        dlc_tool_sets_add(&command->tool.sets, dlc_strdup(sets[i]));
    DLC_TRY(check_target(&command->said));
    DLC_TRY(dlc_tool_setup(&command->tool, DLC_PHASE_TRAIN | DLC_PHASE_TEST,
                           &command->setup));
    dlc_graph *graph = command->setup->graph;
    for (int32_t i = 0; i < graph->layers; i++)
        graph->layer[i].parallel = DLC_PARALLEL_DATA;
    return choose_ranks(command);
}

int dlc_command_plan(int argc, char **argv) {
    plan_command command = {.said = {.latency = -1, .speed = 1}, .how = {.check = 1}};
    plan_measured *measured = NULL;
    int exit_code = 0;
    dlc_tool_parse(&argp, argc, argv, &command);
    dlc_status status = open_setup(&command);
    if (status == DLC_OK)
        status = plan_measure(command.setup, &command.how, &measured, &exit_code);
    if (status == DLC_OK && exit_code == 0)
        status = plan(&command, measured);
    plan_measured_free(measured);
    return dlc_tool_close(&command.tool, command.setup, status, exit_code);
}
