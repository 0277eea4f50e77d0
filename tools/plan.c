/* dlcore plan: predicts how fast a net trains on other machines, and which combination
 * of data, tensor and pipeline parallelism is best. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "command.h"
#include "machine.h"
#include "options.h"
#include "plan_measure.h"
#include "plan_report.h"
#include "setup/device_indices.h"

typedef struct plan_command {
    dlc_tool_options tool; /* first: what the child parsers get */
    plan_given given;
    plan_measure_options measure;
    plan_mesh asked; /* by [parallel] */
    dlc_setup *setup;
} plan_command;

enum {
    KEY_FROM = 0x300,
    KEY_NODES,
    KEY_LINK,
    KEY_INSIDE,
    KEY_LATENCY,
    KEY_SPEED,
    KEY_IMAGES,
    KEY_PASSES,
    KEY_NO_CHECK
};

enum { MAX_PASSES = 1000 };

static const struct argp_option options[] = {
    {"from", KEY_FROM, "FILE", 0,
     "predict for a recorded machine: hwloc's XML (lstopo FILE.xml) or NCCL's XML, "
     "with one rank per GPU, or per NUMA node if there are no GPUs",
     0},
    {"nodes", KEY_NODES, "N[xM]", 0, "predict for N machines with M ranks each", 0},
    {"link", KEY_LINK, "RATE", 0,
     "bandwidth of a machine's network link, in Gb/s or GB/s (that of the recorded "
     "adapters, else 10Gb/s)",
     0},
    {"latency", KEY_LATENCY, "TIME", 0,
     "latency of a message between machines, such as 5us", 0},
    {"inside", KEY_INSIDE, "RATE", 0,
     "bandwidth between ranks of a machine (as recorded, else as measured here)", 0},
    {"speed", KEY_SPEED, "X", 0,
     "predict for ranks X times as fast as those of this machine", 0},
    {"images-per-s", KEY_IMAGES, "X", 0,
     "predict for ranks that each train X images per second on their own", 0},
    {"passes", KEY_PASSES, "N", 0,
     "passes to measure (as many as fit in 3 s, but at least 5)", 0},
    {"no-check", KEY_NO_CHECK, NULL, 0,
     "skip the short real run that the prediction is compared with", 0},
    {0}};

/* ---- Options --------------------------------------------------------------------- */

static double parse_factor(const char *name, const char *argument,
                           struct argp_state *state) {
    double value = 0;
    char rest;
    if (sscanf(argument, "%lf%c", &value, &rest) != 1 || !isfinite(value) ||
        value <= 0 || value > 1e9)
        argp_error(state, "--%s=%s: not a number above 0", name, argument);
    return value;
}

static double parse_rate(const char *name, const char *argument,
                         struct argp_state *state) {
    double value = 0;
    if (!plan_parse_rate(argument, &value))
        argp_error(state, "--%s=%s: not a rate such as 100Gb/s or 12.5GB/s", name,
                   argument);
    return value;
}

static void parse_target(plan_command *command, int key, const char *argument,
                         struct argp_state *state) {
    plan_given *given = &command->given;
    if (key == KEY_FROM)
        given->from = argument;
    else if (key == KEY_LINK)
        given->link = parse_rate("link", argument, state);
    else if (key == KEY_INSIDE)
        given->inside = parse_rate("inside", argument, state);
    else if (key == KEY_NODES &&
             !plan_parse_nodes(argument, &given->nodes, &given->ranks_per_node))
        argp_error(state, "--nodes=%s: not a number of machines and ranks such as 16x8",
                   argument);
    else if (key == KEY_LATENCY && !plan_parse_time(argument, &given->latency))
        argp_error(state, "--latency=%s: not a time such as 5us", argument);
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
    case KEY_SPEED:
        command->given.speed = parse_factor("speed", argument, state);
        return 0;
    case KEY_IMAGES:
        command->given.images_per_s = parse_factor("images-per-s", argument, state);
        return 0;
    case KEY_PASSES:
        command->measure.passes = dlc_tool_parse_count("passes", argument, MAX_PASSES,
                                                       state);
        return 0;
    case KEY_NO_CHECK:
        command->measure.check = 0;
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
        "Predicts how fast a net trains on 1, 2, 4 ... ranks of the given machines, and"
        " which parallelism is best: data, tensor (layers split over the ranks), or "
        "pipeline stages.\v"
        "Layers are measured here, on --ranks ranks at the same time (2, if there are"
        " as many cores); --speed or --images-per-s scales their times to other "
        "devices. Without --nodes and --from the prediction is for this machine. To "
        "show its accuracy, the prediction for this machine's ranks is compared with a "
        "short real run. Rates are per direction; the ranks of a machine share its "
        "network link.",
    .children = dlc_tool_children};

/* ---- Planning -------------------------------------------------------------------- */

/* Predicts the real run on this machine, and compares. */
static dlc_status check(const plan_measured *measured, plan_check *check) {
    const plan_given nothing = {.latency = -1};
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

/* How many times as fast as here a rank is to be. */
static dlc_status find_speed(const plan_given *given, const plan_measured *measured,
                             double *speed) {
    const dlc_plan_exchange exchange = {.overlap = DLC_PLAN_OVERLAP_NONE};
    dlc_plan_cluster one = {.nodes = 1,
                            .ranks_per_node = 1,
                            .update_bandwidth = measured->update_bandwidth,
                            .rest = measured->rest};
    dlc_plan_step step;
    *speed = given->speed;
    if (given->images_per_s <= 0)
        return DLC_OK;
    DLC_TRY(dlc_plan_step_of(measured->layer, measured->layers, NULL, &one, &exchange,
                             (double)measured->batch, &step));
    *speed = given->images_per_s * step.seconds / (double)measured->batch;
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
                          .given = &command->given,
                          .target = &target,
                          .prediction = &prediction};
    DLC_TRY(check(measured, &report.check));
    DLC_TRY(plan_target_make(&command->given, measured, &target));
    DLC_TRY(find_speed(&command->given, measured, &speed));
    plan_layers_speed(layer, measured->layers, speed);
    target.cluster.update_bandwidth *= speed;
    target.cluster.accumulate_bandwidth *= speed;
    target.cluster.rest /= speed;
    DLC_TRY(plan_predict(layer, measured->layers, &target.cluster, report.batch,
                         &command->asked, &prediction));
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

/* Reports a file that cannot be read before anything is measured. */
static dlc_status check_target(const plan_given *given) {
    const plan_measured none = {.ranks = 1};
    plan_target target;
    return plan_target_make(given, &none, &target);
}

/* Runs at least two ranks, so that communication can be measured, unless the user has
 * given a number. */
static dlc_status choose_ranks(plan_command *command) {
    dlc_machine machine;
    const dlc_setup *setup = command->setup;
    for (size_t i = 0; i < command->tool.sets.count; i++)
        if (strncmp(command->tool.sets.list[i], "parallel.ranks=", 10) == 0)
            return DLC_OK;
    if (setup->ranks > 1 || setup->device_index)
        return DLC_OK;
    DLC_TRY(dlc_machine_read(&machine));
    int devices = setup->device->caps & DLC_DEVICE_HOST
                      ? machine.cores
                      : dlc_device_count(setup->device);
    return devices > 1 ? dlc_setup_set_ranks(command->setup, 2) : DLC_OK;
}

/* The ranks that are predicted for; else those of the job that would train here. */
static dlc_status count_ranks(const plan_command *command, int32_t here,
                              int32_t *ranks) {
    const plan_measured none = {.ranks = 1};
    plan_given given = command->given;
    plan_target target;
    *ranks = here;
    if (!given.nodes && !given.from)
        return DLC_OK;
    if (!given.from && !given.ranks_per_node)
        given.ranks_per_node = command->setup->ranks;
    DLC_TRY(plan_target_make(&given, &none, &target));
    *ranks = dlc_plan_ranks(&target.cluster);
    return DLC_OK;
}

static int is_mesh_set(const dlc_setup *setup) {
    const dlc_mesh_sizes *sizes = &setup->mesh_sizes;
    return sizes->stage_ranks || sizes->tensor > 1 || sizes->pipeline > 1;
}

/* Chooses the ranks that measure, and makes the mesh that is set, by training's rule.
 */
static dlc_status take_mesh(plan_command *command) {
    dlc_setup *setup = command->setup;
    int32_t ranks, here = setup->ranks;
    int is_set = is_mesh_set(setup);
    if (is_set && !dlc_settings_is_set(setup->parallel_settings, "ranks"))
        DLC_TRY(dlc_setup_set_ranks(setup, 1));
    DLC_TRY(choose_ranks(command));
    DLC_TRY(count_ranks(command, here, &ranks));
    if (!is_set || ranks == 1)
        return DLC_OK;
    command->measure.mesh_ranks = ranks;
    return dlc_setup_make_mesh(setup, ranks, &command->asked.mesh);
}

/* Nothing is written. */
static dlc_status open_setup(plan_command *command) {
    static const char *const sets[] = {
        "parallel.scaling=weak", "parallel.batch_split=equal", "train.test_first=no"};
    if (dlc_job_is_external())
        return dlc_fail(DLC_ERR_CONFIG, "plan starts its ranks itself; run it without "
                                        "mpirun, srun or torchrun");
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        dlc_tool_sets_add(&command->tool.sets, dlc_strdup(sets[i]));
    DLC_TRY(check_target(&command->given));
    DLC_TRY(dlc_tool_setup(&command->tool, DLC_PHASE_TRAIN | DLC_PHASE_TEST,
                           &command->setup));
    return take_mesh(command);
}

int dlc_command_plan(int argc, char **argv) {
    plan_command command = {.given = {.latency = -1, .speed = 1},
                            .measure = {.check = 1}};
    plan_measured *measured = NULL;
    int exit_code = 0;
    dlc_tool_parse(&argp, argc, argv, &command);
    dlc_status status = open_setup(&command);
    if (status == DLC_OK)
        status = plan_measure(command.setup, &command.measure, &measured, &exit_code);
    if (status == DLC_OK && exit_code == 0) {
        command.asked.micro_batches = measured->micro_batches;
        status = plan(&command, measured);
    }
    plan_measured_free(measured);
    return dlc_tool_close(&command.tool, command.setup, status, exit_code);
}
