// A plugin in C++ that uses every macro of the headers: none of them may warn, in any
// standard since C++11. Compiled by headers.sh.
#include <dlcore/dlcore.h>

static const dlc_host *host;

static dlc_status load(const dlc_host *services) {
    host = services;
    return DLC_CAN(host, now_ns) && DLC_HAS(host, abi_minor) ? DLC_OK
                                                             : DLC_ERR_INTERNAL;
}

static const dlc_option options[] = {
    DLC_OPTION("any", DLC_OPT_INT, DLC_OPT_LIVE, "1", 0, 2, nullptr, "every field"),
    DLC_INT("side", "16", 1, 4096, "an integer"),
    DLC_INT_REQUIRED("depth", 1, 9, "an integer without a default"),
    DLC_FLOAT("rate", "0.1", 0, 1e6, "a number"),
    DLC_BOOL("fast", "yes", "a switch"),
    DLC_STRING("label", nullptr, "a text"),
    DLC_CHOICE("kind", "max", "max|average", "one of several"),
    DLC_PATH("folder", nullptr, "a path"),
    DLC_PATH_REQUIRED("file", "a path without a default"),
    DLC_INTS("sizes", "1,2", 1, 9, "integers"),
    DLC_FLOATS("rates", "0.1,0.2", 0, 1, "numbers"),
    DLC_BYTES("room", "64K", 0, 1e9, "a size"),
    DLC_FILLER("weights", "xavier", "initial values"),
    DLC_OPTIONS_END,
};

DLC_RULE(momentum, 1) {
    slot[0] = step->own[0] * slot[0] + gradient;
    *weight -= step->learning_rate * slot[0];
}

static dlc_status needs(const dlc_settings *settings, dlc_solver_needs *asked) {
    (void)settings;
    asked->rule = &momentum;
    return DLC_OK;
}

static const dlc_solver_ops solver_ops = {sizeof(dlc_solver_ops), needs, nullptr};

static const dlc_data_ops ops = {
    sizeof(dlc_data_ops), nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};

static const dlc_feature features[] = {
    {sizeof(dlc_feature), DLC_KIND_DATA, "sample", "a source", nullptr, 0, 0, options,
     &ops},
    {sizeof(dlc_feature), DLC_KIND_SOLVER, "sample", "a rule", nullptr, 0, 0, nullptr,
     &solver_ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("sample", "1.0", "BSD-2-Clause", features, load);

const dlc_option *second_option() {
    const dlc_option *first = options;
    return DLC_NEXT(first);
}
