/* The checks of the descriptor of each feature. None of the feature's code runs. */
#include <string.h>

#include <dlcore/dlcore.h>

#include "base/status.h"
#include "plugin/check.h"
#include "setup/sections.h"
#include "solver/solver.h"
#include "suite.h"

static void descriptor_is_valid(suite_run *run) {
    dlc_entry_state state;
    if (dlc_feature_check(run->feature, &state) != DLC_OK)
        suite_fail(run, "%s", dlc_detail());
}

/* ---- Calls ------------------------------------------------------------------ */

/* One of several calls that must all be there, or none. */
typedef struct together {
    const char *name;
    int there;
} together;

static void all_or_none(suite_run *run, const together *calls, size_t count) {
    for (size_t i = 1; i < count; i++)
        if (calls[i].there != calls[0].there)
            suite_fail(run, "it has %s but no %s; they belong together",
                       calls[calls[i].there ? i : 0].name,
                       calls[calls[i].there ? 0 : i].name);
}

#define CALL(name) \
    { #name, DLC_CAN(ops, name) }
#define ALL_OR_NONE(run, ...) \
    do { \
        const together calls_[] = {__VA_ARGS__}; \
        all_or_none(run, calls_, sizeof calls_ / sizeof *calls_); \
    } while (0)

static void must_have(suite_run *run, int bit, const char *bit_name, int there,
                      const char *call) {
    if (bit && !there)
        suite_fail(run, "it has the capability %s but no %s", bit_name, call);
}

static void device_queue_calls(suite_run *run, const dlc_device_queue_ops *ops) {
    ALL_OR_NONE(run, CALL(capture_begin), CALL(capture_end), CALL(graph_launch),
                CALL(graph_close));
}

static void device_calls(suite_run *run) {
    const dlc_device_ops *ops = run->feature->ops;
    ALL_OR_NONE(run, CALL(pin), CALL(unpin));
    ALL_OR_NONE(run, CALL(ipc_export), CALL(ipc_import));
    ALL_OR_NONE(run, CALL(range_begin), CALL(range_end));
    if (DLC_CAN(ops, queues))
        device_queue_calls(run, ops->queues);
}

static void transport_calls(suite_run *run) {
    const dlc_transport_ops *ops = run->feature->ops;
    uint64_t caps = run->feature->caps;
    ALL_OR_NONE(run, CALL(wait_any), CALL(wakeup));
    must_have(run, (caps & DLC_TRANSPORT_CAPTURABLE) != 0, "DLC_TRANSPORT_CAPTURABLE",
              DLC_CAN(ops, queues), "queues");
    must_have(run, (caps & DLC_TRANSPORT_PAIRWISE) != 0, "DLC_TRANSPORT_PAIRWISE",
              DLC_CAN(ops, all_reduce) || DLC_CAN(ops, reduce_scatter), "all_reduce");
}

static void layer_calls(suite_run *run) {
    const dlc_layer_ops *ops = run->feature->ops;
    uint64_t caps = run->feature->caps;
    ALL_OR_NONE(run, CALL(param_import), CALL(param_export));
    must_have(run, (caps & DLC_LAYER_LOSS) != 0, "DLC_LAYER_LOSS",
              DLC_CAN(ops, backward), "backward");
    if ((caps & DLC_LAYER_POINTWISE) && (caps & DLC_LAYER_BINARY))
        suite_fail(run, "it cannot be both DLC_LAYER_POINTWISE and DLC_LAYER_BINARY");
    if ((caps & DLC_LAYER_POINTWISE) && (caps & (DLC_LAYER_METRIC | DLC_LAYER_LOSS)))
        suite_fail(run, "a metric cannot be DLC_LAYER_POINTWISE");
}

static void consistency_calls(suite_run *run) {
    const dlc_consistency_ops *ops = run->feature->ops;
    ALL_OR_NONE(run, CALL(save), CALL(load));
}

static void data_calls(suite_run *run) {
    const dlc_data_ops *ops = run->feature->ops;
    int reads = DLC_CAN(ops, read), reads_samples = DLC_CAN(ops, read_sample);
    if (reads && reads_samples)
        suite_fail(run, "it has both read and read_sample; a source has one of them");
}

/* Nothing selects a decoder in net.ini. */
static void decoder_calls(suite_run *run) {
    const dlc_option *options = run->feature->options;
    if (options && options->name)
        suite_fail(run, "it has the option %s, but a decoder has no settings",
                   options->name);
}

static void calls_fit(suite_run *run) {
    switch ((dlc_kind)run->feature->kind) {
    case DLC_KIND_DEVICE:
        device_calls(run);
        break;
    case DLC_KIND_TRANSPORT:
        transport_calls(run);
        break;
    case DLC_KIND_LAYER:
        layer_calls(run);
        break;
    case DLC_KIND_CONSISTENCY:
        consistency_calls(run);
        break;
    case DLC_KIND_DATA:
        data_calls(run);
        break;
    case DLC_KIND_DECODER:
        decoder_calls(run);
        break;
    case DLC_KIND_SOLVER:
        break;
    }
}

/* ---- Options ---------------------------------------------------------------- */

static void options_have_help(suite_run *run) {
    if (!run->feature->options)
        return;
    for (const dlc_option *row = run->feature->options; row->name; row = DLC_NEXT(row))
        if (!row->help || !*row->help || row->help[strlen(row->help) - 1] == '.')
            suite_fail(run, "option %s: its help must be one line without a full stop",
                       row->name);
}

static int has_option(const dlc_option *row, const char *name) {
    while (row && row->name && strcmp(row->name, name) != 0)
        row = DLC_NEXT(row);
    return row && row->name;
}

/* An option with the name of one of the core's keys in the same section would never be
 * read by the plugin. Only a solver's replaces a hyperparameter; see solver.keys. */
static void options_have_their_own_names(suite_run *run) {
    const dlc_section_keys *section = dlc_section_table;
    const dlc_option *row = run->feature->options;
    while (section->name && section->kind != run->feature->kind)
        section++;
    if (!section->name)
        return;
    for (; row && row->name; row = DLC_NEXT(row))
        for (size_t i = 0; i < DLC_SECTION_TABLES; i++)
            if (section->tables[i] != dlc_solver_options &&
                has_option(section->tables[i], row->name))
                suite_fail(run, "option %s has the name of one of the core's keys",
                           row->name);
}

/* A solver may give one of the core's keys another default, but the core still reads
 * it. */
static void solver_options_keep_types(suite_run *run) {
    const dlc_option *row = run->feature->options;
    for (; row && row->name; row = DLC_NEXT(row))
        for (const dlc_option *core = dlc_solver_options; core->name;
             core = DLC_NEXT(core))
            if (strcmp(row->name, core->name) == 0 && row->type != core->type)
                suite_fail(run, "option %s has another type than the core's",
                           row->name);
}

const suite_check suite_feature_checks[] = {
    {"feature.descriptor", "valid name, help, needs and options; required calls", 0, 1,
     SUITE_OPENED, 30, descriptor_is_valid},
    {"feature.calls", "calls match the capability bits and each other", 0, 1,
     SUITE_OPENED, 30, calls_fit},
    {"feature.help", "every option has one line of help", 0, 1, SUITE_OPENED, 30,
     options_have_help},
    {"feature.keys", "no option has the name of a key of the core", 0, 1, SUITE_OPENED,
     30, options_have_their_own_names},
    {"solver.keys", "keys of the core keep their types", DLC_KIND_SOLVER, 0,
     SUITE_OPENED, 30, solver_options_keep_types},
    {.name = NULL},
};
