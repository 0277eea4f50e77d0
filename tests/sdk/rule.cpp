// A solver in C++: gradient descent with momentum.
#include <dlcore/solver.h>

static const dlc_host *host;

DLC_RULE(descend, 1) {
    slot[0] = step->own[0] * slot[0] + gradient;
    *weight -= step->learning_rate * slot[0];
}

static dlc_status needs(const dlc_settings *, dlc_solver_needs *needs) {
    needs->rule = &descend;
    needs->slot_name[0] = "velocity";
    needs->slot_saved = 1;
    return DLC_OK;
}

static dlc_status values(const dlc_settings *settings, int64_t,
                         dlc_rule_values *values) {
    values->own[0] = static_cast<float>(host->get_float(settings, "momentum"));
    return DLC_OK;
}

static dlc_status load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static const dlc_option options[] = {
    DLC_FLOAT("momentum", "0.9", 0, 1, "the part of a step that the next one keeps"),
    DLC_OPTIONS_END};
static const dlc_solver_ops ops = {sizeof(dlc_solver_ops), needs, values};
static const dlc_feature features[] = {{sizeof(dlc_feature), DLC_KIND_SOLVER, "rule",
                                        "gradient descent with momentum", nullptr, 0, 0,
                                        options, &ops},
                                       DLC_FEATURES_END};

DLC_PLUGIN("rule", PLUGIN_VERSION, "BSD-2-Clause", features, load);
