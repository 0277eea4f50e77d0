/* The solver "@NAME@": gradient descent with momentum.
 *
 * rule.h says how one weight is updated. The rest is here: the slots, the settings and
 * the hyperparameters of an iteration. The core does everything else: learning-rate
 * schedule, weight decay, clipping, accumulation, loss scaling, the exchange of
 * gradients, sharded updates and checkpoints. */
#include <dlcore/solver.h>

#include "rule.h"

static const dlc_host *host;

static dlc_status solver_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

/* The rule, and a name for each of its slots, which checkpoints use. */
static dlc_status solver_needs(const dlc_settings *settings, dlc_solver_needs *needs) {
    (void)settings;
    needs->rule = &update;
    needs->slot_name[VELOCITY] = "velocity";
    needs->slot_saved = 1u << VELOCITY;
    needs->momentum = "momentum";
    return DLC_OK;
}

/* What the rule reads as step->own. */
static dlc_status solver_values(const dlc_settings *settings, int64_t iteration,
                                dlc_rule_values *values) {
    (void)iteration;
    values->own[MOMENTUM] = (float)host->get_float(settings, "momentum");
    return DLC_OK;
}

/* Beside the core's keys of [solver]. A row with the name of one of those replaces it:
 * to give another default. */
static const dlc_option options[] = {
    DLC_FLOAT("momentum", "0.9", 0, 1, "fraction of the velocity that a step keeps"),
    DLC_OPTIONS_END,
};

static const dlc_solver_ops ops = {
    .size = sizeof ops,
    .needs = solver_needs,
    .values = solver_values,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_SOLVER,
     .name = "@NAME@",
     .help = "gradient descent with momentum",
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("@NAME@", PLUGIN_VERSION, "BSD-2-Clause", features, solver_load);
