/* Checks of each feature's row: what it says must hold before anything of it runs. */
#include <string.h>

#include <dlcore/dlcore.h>

#include "base/status.h"
#include "plugin/check.h"
#include "suite.h"

static void row_is_sound(suite_run *run) {
    dlc_entry_state state;
    if (dlc_feature_check(run->feature, &state) != DLC_OK)
        suite_fail(run, "%s", dlc_detail());
}

/* ---- Calls that come together ------------------------------------------------ */

typedef struct together {
    const char *name;
    int there;
} together;

static void all_or_none(suite_run *run, const together *calls, size_t count) {
    for (size_t i = 1; i < count; i++)
        if (calls[i].there != calls[0].there)
            suite_fail(run, "it has %s but no %s: they come together",
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
        suite_fail(run, "its bits say %s, but it has no %s", bit_name, call);
}

static void device_calls(suite_run *run) {
    const dlc_device_ops *ops = run->feature->ops;
    uint64_t caps = run->feature->caps;
    ALL_OR_NONE(run, CALL(record_begin), CALL(record_end), CALL(record_run),
                CALL(record_close));
    ALL_OR_NONE(run, CALL(range_begin), CALL(range_end));
    must_have(run, (caps & DLC_DEVICE_ASYNC) != 0, "DLC_DEVICE_ASYNC",
              DLC_CAN(ops, event_sync), "event_sync");
}

static void transport_calls(suite_run *run) {
    const dlc_transport_ops *ops = run->feature->ops;
    uint64_t caps = run->feature->caps;
    ALL_OR_NONE(run, CALL(region_open), CALL(region_close), CALL(region_import));
    ALL_OR_NONE(run, CALL(wait_any), CALL(nudge));
    ALL_OR_NONE(run, CALL(queue_all_reduce), CALL(queue_reduce_scatter),
                CALL(queue_all_gather), CALL(poll));
    must_have(run, (caps & DLC_TRANSPORT_RECORDS) != 0, "DLC_TRANSPORT_RECORDS",
              DLC_CAN(ops, queue_all_reduce), "queue_all_reduce");
    must_have(run, (caps & DLC_TRANSPORT_PAIRWISE) != 0, "DLC_TRANSPORT_PAIRWISE",
              DLC_CAN(ops, all_reduce) || DLC_CAN(ops, reduce_scatter), "all_reduce");
    if ((DLC_CAN(ops, put) || DLC_CAN(ops, get)) && !DLC_CAN(ops, region_import))
        suite_fail(run, "it has put or get, but no region_import to aim them with");
}

static void layer_calls(suite_run *run) {
    const dlc_layer_ops *ops = run->feature->ops;
    uint64_t caps = run->feature->caps;
    ALL_OR_NONE(run, CALL(param_import), CALL(param_export));
    must_have(run, (caps & DLC_LAYER_LOSS) != 0, "DLC_LAYER_LOSS",
              DLC_CAN(ops, backward), "backward");
    if ((caps & DLC_LAYER_POINTWISE) && (caps & DLC_LAYER_JOIN))
        suite_fail(run, "it cannot be DLC_LAYER_POINTWISE and DLC_LAYER_JOIN at once");
    if ((caps & DLC_LAYER_POINTWISE) && (caps & (DLC_LAYER_METRIC | DLC_LAYER_LOSS)))
        suite_fail(run, "a metric is no DLC_LAYER_POINTWISE");
}

static void solver_calls(suite_run *run) {
    const dlc_solver_ops *ops = run->feature->ops;
    ALL_OR_NONE(run, CALL(save), CALL(load));
    int synchronous = (run->feature->caps & DLC_SOLVER_SYNCHRONOUS) != 0;
    must_have(run, !synchronous, "that it is not DLC_SOLVER_SYNCHRONOUS",
              DLC_CAN(ops, meet), "meet");
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
    case DLC_KIND_SOLVER:
        solver_calls(run);
        break;
    case DLC_KIND_DATA:
        break;
    }
}

/* ---- Options ----------------------------------------------------------------- */

static void options_are_told(suite_run *run) {
    if (!run->feature->options)
        return;
    for (const dlc_option *row = run->feature->options; row->name; row = DLC_NEXT(row))
        if (!row->help || !*row->help || row->help[strlen(row->help) - 1] == '.')
            suite_fail(run, "option %s: its help must be a line without full stop",
                       row->name);
}

/* Names that the core has in the same section would never reach the plugin. */
static void options_are_its_own(suite_run *run) {
    static const char *const taken[] = {"type",        "input",  "phase",
                                        "loss_weight", "source", "batch"};
    const dlc_option *row = run->feature->options;
    for (; row && row->name; row = DLC_NEXT(row))
        for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
            if (strcmp(row->name, taken[i]) == 0)
                suite_fail(run, "option %s has a name of the core's own keys",
                           row->name);
}

const suite_check suite_feature_checks[] = {
    {"feature.row", "name, help, needs, options, calls that must be there", 0, 1,
     SUITE_OPENED, 30, row_is_sound},
    {"feature.calls", "capability bits match the calls; calls that belong together", 0,
     1, SUITE_OPENED, 30, calls_fit},
    {"feature.help", "every option has a line of help", 0, 1, SUITE_OPENED, 30,
     options_are_told},
    {"feature.keys", "no option has a name of the core's", 0, 1, SUITE_OPENED, 30,
     options_are_its_own},
    {.name = NULL},
};
