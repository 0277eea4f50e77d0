/* Option parsers and set-up shared by the subcommands that take a net.ini. */
#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/memory.h"
#include "class_names.h"
#include "known_files.h"
#include "setup/device_indices.h"
#include "spinning.h"
#include "streams.h"

enum { KEY_SET = 0x100, KEY_JSON, KEY_LOG_FILE, KEY_JOB };

void dlc_tool_sets_add(dlc_tool_sets *sets, char *text) {
    char **grown = dlc_grow_by_one(sets->list, sets->count, sizeof *grown);
    if (grown)
        sets->list = grown;
    if (!text || !grown) {
        dlc_free(text);
        sets->failed = 1;
        return;
    }
    grown[sets->count++] = text;
}

void dlc_tool_sets_free(dlc_tool_sets *sets) {
    for (size_t i = 0; i < sets->count; i++)
        dlc_free(sets->list[i]);
    dlc_free(sets->list);
    *sets = (dlc_tool_sets){0};
}

/* ---- net.ini and how to report ----------------------------------------------- */

static const struct argp_option net_options[] = {
    {"set", KEY_SET, "SECTION.KEY=VALUE", 0, "replace or add a setting of net.ini", 1},
    {"json", KEY_JSON, NULL, 0, "print one JSON document on stdout", 1},
    {"log-file", KEY_LOG_FILE, "FILE", 0,
     "also append log messages and events to FILE, as JSON lines", 1},
    {"verbose", 'v', NULL, 0, "log more", 1},
    {"quiet", 'q', NULL, 0, "log only warnings and errors", 1},
    {0}};

static error_t parse_net(int key, char *argument, struct argp_state *state) {
    dlc_tool_options *options = state->input;
    switch (key) {
    case KEY_SET:
        dlc_tool_sets_add(&options->sets, dlc_strdup(argument));
        return 0;
    case KEY_JSON:
        options->json = 1;
        return 0;
    case KEY_LOG_FILE:
        options->log_file = argument;
        return 0;
    case 'v':
        dlc_log_level_set(DLC_LOG_DEBUG);
        return 0;
    case 'q':
        dlc_log_level_set(DLC_LOG_WARN);
        return 0;
    case ARGP_KEY_ARG:
        if (options->path)
            argp_error(state, "only one net.ini is allowed: '%s' is a second one",
                       argument);
        options->path = argument;
        return 0;
    case ARGP_KEY_END:
        if (!options->path)
            argp_error(state, "no net: give the path of a net.ini");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp net_argp = {.options = net_options, .parser = parse_net};

/* ---- Options of a job: shorthands for --set ---------------------------------- */

static const char *const job_settings[] = {
    "parallel.ranks",   "train.device",         "transport.type",   "solver.type",
    "parallel.scaling", "train.epochs",         "train.iterations", "train.run_dir",
    "train.seed",       "train.threads",        "train.gpu",        "train.overcommit",
    "consistency.type", "solver.learning_rate", "data.batch",
};

static const struct argp_option job_options[] = {
    {"ranks", KEY_JOB + 0, "N", 0, "ranks on this machine", 1},
    {"device", KEY_JOB + 1, "NAME", 0, "where layers run", 1},
    {"transport", KEY_JOB + 2, "NAME", 0, "how ranks communicate, or auto", 1},
    {"solver", KEY_JOB + 3, "NAME", 0, "update rule for the weights", 1},
    {"consistency", KEY_JOB + 12, "NAME|synchronous", 0,
     "when the updates of one rank become visible to the others", 1},
    {"scaling", KEY_JOB + 4, "weak|strong", 0,
     "weak: each rank has the whole batch; strong: it is split among the ranks", 1},
    {"learning-rate", KEY_JOB + 13, "X", 0, "base learning rate of the solver", 1},
    {"lr", 0, NULL, OPTION_ALIAS, NULL, 1},
    {"batch", KEY_JOB + 14, "N", 0, "samples of a batch", 1},
    {"batch-size", 0, NULL, OPTION_ALIAS, NULL, 1},
    {"epochs", KEY_JOB + 5, "N", 0, "passes over the training data", 1},
    {"iterations", KEY_JOB + 6, "N", 0, "updates of the weights", 1},
    {"run-dir", KEY_JOB + 7, "DIR", 0, "folder of the run's checkpoints", 1},
    {"seed", KEY_JOB + 8, "N", 0, "seed of all random numbers", 1},
    {"threads", KEY_JOB + 9, "N", 0, "compute threads of a rank", 1},
    {"gpu", KEY_JOB + 10, "LIST|all", 0, "use these GPUs, one rank on each", 1},
    {"overcommit", KEY_JOB + 11, NULL, 0,
     "run even if more memory is planned than the machine has", 1},
    {0}};

static error_t parse_job(int key, char *argument, struct argp_state *state) {
    dlc_tool_options *options = state->input;
    int i = key - KEY_JOB;
    if (i < 0 || i >= (int)(sizeof job_settings / sizeof *job_settings))
        return ARGP_ERR_UNKNOWN;
    dlc_tool_sets_add(&options->sets, dlc_format("%s=%s", job_settings[i],
                                                 argument ? argument : "true"));
    return 0;
}

static const struct argp job_argp = {.options = job_options, .parser = parse_job};

const struct argp_child dlc_tool_children[] = {
    {&net_argp, 0, "Reporting:", 1}, {&job_argp, 0, "The job:", 2}, {0}};

const struct argp_child dlc_tool_children_with_weights[] = {
    {&net_argp, 0, "Reporting:", 1},
    {&job_argp, 0, "The job:", 2},
    {&dlc_tool_weights_argp, 0, "Weights:", 3},
    {0}};

const struct argp_child dlc_tool_children_of_train[] = {
    {&net_argp, 0, "Reporting:", 1},
    {&job_argp, 0, "The job:", 2},
    {&dlc_tool_weights_argp, 0, "Weights:", 3},
    {&dlc_tool_hosts_argp, 0, "Several hosts:", 4},
    {0}};

void dlc_tool_share_input(struct argp_state *state, dlc_tool_options *options) {
    for (int i = 0; dlc_tool_children[i].argp; i++)
        state->child_inputs[i] = options;
}

void dlc_tool_share_input_with_weights(struct argp_state *state,
                                       dlc_tool_options *options) {
    dlc_tool_share_input(state, options);
    state->child_inputs[2] = &options->weights;
}

void dlc_tool_share_input_of_train(struct argp_state *state,
                                   dlc_tool_options *options) {
    dlc_tool_share_input_with_weights(state, options);
    state->child_inputs[3] = &options->hosts;
}

/* ---- Beginning and end ------------------------------------------------------- */

/* argp calls this -?, which few try. */
static void accept_short_help(int argc, char **argv) {
    static char help[] = "--help";
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "-h") == 0)
            argv[i] = help;
}

void dlc_tool_parse(const struct argp *argp, int argc, char **argv, void *input) {
    argp_err_exit_status = 2;
    accept_short_help(argc, argv);
    error_t error = argp_parse(argp, argc, argv, 0, NULL, input);
    if (!error) {
        dlc_exit_forbid(); /* the parser exits after --help */
        return;
    }
    dlc_error("cannot parse the command line: %s",
              strerror(error)); // NOLINT(concurrency-mt-unsafe): one thread
    exit(error == ENOMEM ? 1 : argp_err_exit_status);
}

int dlc_tool_parse_count(const char *name, const char *argument, int most,
                         struct argp_state *state) {
    char *end = NULL;
    long value = strtol(
        argument, &end,
        10); /* out of range: the nearest long, which the check refuses */
    if (end == argument || *end || value < 1 || value > most)
        argp_error(state, "--%s=%s: must be a whole number from 1 to %d", name,
                   argument, most);
    return (int)value;
}

const char *dlc_tool_parse_plot(const char *argument, struct argp_state *state) {
    const char *ending = strrchr(argument, '.');
    if (!ending || strcasecmp(ending, ".svg") != 0)
        argp_error(
            state,
            "--plot=%s: the picture is an SVG, so its name must end in .svg; browsers "
            "show it, and rsvg-convert or Inkscape convert it to PNG or PDF",
            argument);
    return argument;
}

static dlc_status open_setup(const dlc_tool_options *options, unsigned phases,
                             dlc_setup **setup) {
    const dlc_tool_words *weights = &options->weights.file;
    dlc_class_names names = {.count = 0};
    /* A test may be of classes that the training data, which need not be there, has. */
    if (!(phases & DLC_PHASE_TRAIN) && weights->count)
        DLC_TRY(dlc_trained_classes(weights->list[0], &names));
    const dlc_data_info trained = {
        .size = sizeof trained, .classes = names.count, .class_names = names.name};
    const dlc_setup_args args = {.path = options->path,
                                 .sets = (const char *const *)options->sets.list,
                                 .nsets = options->sets.count,
                                 .phases = phases,
                                 .data_only = options->data_only,
                                 .trained = names.count ? &trained : NULL,
                                 .tell = options->tell,
                                 .tell_context = options->tell_context};
    dlc_status status = dlc_setup_open(&args, setup);
    dlc_class_names_close(&names);
    return status;
}

dlc_status dlc_tool_setup(dlc_tool_options *options, unsigned phases,
                          dlc_setup **setup) {
    if (options->sets.failed)
        return dlc_fail(DLC_ERR_NOMEM, "out of memory");
    if (options->json) {
        dlc_log_results_to_stderr();
        DLC_TRY(dlc_tool_reserve_stdout());
    }
    if (options->log_file)
        DLC_TRY(dlc_log_file_open(options->log_file));
    dlc_tool_report_spinning();
    DLC_TRY(dlc_known_file_check_net(options->path));
    DLC_TRY(dlc_tool_weights_find(&options->weights));
    return open_setup(options, phases, setup);
}

dlc_job_discovery dlc_tool_discovery(const dlc_feature *device) {
    return device->caps & DLC_DEVICE_HOST ? DLC_DISCOVER_CORES : DLC_DISCOVER_ALL;
}

/* Ranks that only follow from the mesh, or from this machine's GPUs, contradict no
 * other launcher: a mesh is completed by the ranks that there are. */
static int ranks_to_start(const dlc_setup *setup) {
    return dlc_job_is_external() &&
                   !dlc_settings_is_set(setup->parallel_settings, "ranks")
               ? 1
               : (int)setup->ranks;
}

dlc_status dlc_tool_run(const dlc_setup *setup, dlc_job_main main, void *argument,
                        int *exit_code) {
    int32_t units = setup->device_index ? setup->device_indices
                                        : dlc_device_count(setup->device);
    dlc_text settings = {0};
    dlc_setup_list_settings(setup, &settings);
    dlc_job_options job = {
        .ranks = ranks_to_start(setup),
        .threads = (int)dlc_settings_get_int(setup->train_settings, "threads"),
        .unbound = !dlc_settings_get_bool(setup->train_settings, "bind"),
        .device = setup->device->name,
        .device_index = setup->device_index,
        .devices = units,
        .external = 1,
        .discover = dlc_tool_discovery(setup->device),
        .settings = dlc_text_string(&settings),
        .rendezvous_timeout = dlc_settings_get_float(setup->parallel_settings,
                                                     "rendezvous_timeout"),
        .hang_timeout = dlc_settings_get_float(setup->parallel_settings,
                                               "hang_timeout")};
    if (job.ranks > 1)
        dlc_graph_before_fork(setup->graph);
    dlc_status status = dlc_text_status(&settings);
    if (status == DLC_OK)
        status = dlc_job_run(&job, main, argument, exit_code);
    dlc_text_free(&settings);
    return status;
}

static const char *detail_of(dlc_status status) {
    return dlc_detail()[0] ? dlc_detail() : dlc_status_text(status);
}

static void say_error(dlc_status status) {
    if (status != DLC_OK)
        dlc_error("%s", detail_of(status));
}

int dlc_tool_end_rank(dlc_job *job, dlc_status status) {
    if (status != DLC_OK && dlc_job_was_stopped(job)) {
        if (dlc_job_rank(job) == 0)
            dlc_info("stopped");
        return 0;
    }
    if (status != DLC_OK && !dlc_job_report_failure(job, status, detail_of(status)))
        say_error(status);
    return dlc_exit_code(status);
}

/* In the process that opened it, which knows of its ranks' failures, too. The work may
 * have been done, but not all that was asked for. */
static int close_log_file(int exit_code) {
    dlc_status status = dlc_log_file_close();
    if (status == DLC_OK)
        return exit_code;
    dlc_error("%s", dlc_detail());
    return exit_code ? exit_code : dlc_exit_code(status);
}

int dlc_tool_end(dlc_status status) {
    say_error(status);
    return close_log_file(dlc_exit_code(status));
}

int dlc_tool_close(dlc_tool_options *options, dlc_setup *setup, dlc_status status,
                   int exit_code) {
    dlc_setup_close(setup);
    dlc_tool_sets_free(&options->sets);
    dlc_hosts_free(&options->hosts.hosts);
    dlc_tool_weights_free(&options->weights);
    return status == DLC_OK ? close_log_file(exit_code) : dlc_tool_end(status);
}

static dlc_status print(dlc_text *text, const char *end) {
    dlc_status status = dlc_text_status(text);
    FILE *out = dlc_tool_out();
    if (status == DLC_OK && (fputs(dlc_text_string(text), out) == EOF ||
                             fputs(end, out) == EOF || fflush(out) != 0))
        status = dlc_fail(DLC_ERR_IO, "writing to stdout: %s", strerror(errno));
    dlc_text_free(text);
    return status;
}

dlc_status dlc_tool_print_text(dlc_text *text) {
    return print(text, "");
}

dlc_status dlc_tool_print_json(dlc_json *json) {
    return print(&json->text, "\n");
}
