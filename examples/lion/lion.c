/* The solver "lion": Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms",
 * program 1.
 *
 *     c = beta1 m + (1 - beta1) g
 *     weight -= learning_rate (sign(c) + weight_decay weight)
 *     m = beta2 m + (1 - beta2) g */
#include <dlcore/solver.h>

#include "rules.h"

static const dlc_host *host;

static dlc_status lion_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

/* One slot, the momentum, which starts from 0 and is saved in checkpoints. */
static dlc_status lion_needs(const dlc_settings *settings, dlc_solver_needs *needs) {
    (void)settings;
    needs->rule = &lion;
    needs->slot_name[0] = "momentum";
    needs->slot_saved = 1u << 0;
    needs->momentum = "beta1";
    return DLC_OK;
}

/* What the rule reads in `own`. The weight decay is not a part of the gradient. */
static dlc_status lion_values(const dlc_settings *settings, int64_t iteration,
                              dlc_rule_values *values) {
    double beta1 = host->get_float(settings, "beta1");
    double beta2 = host->get_float(settings, "beta2");
    (void)iteration;
    values->own[BETA1] = (float)beta1;
    values->own[ONE_MINUS_BETA1] = (float)(1 - beta1);
    values->own[BETA2] = (float)beta2;
    values->own[ONE_MINUS_BETA2] = (float)(1 - beta2);
    values->own[DECAY] = values->weight_decay;
    values->weight_decay = 0;
    return DLC_OK;
}

/* Beside the options that every solver has. One of those may be repeated with another
 * default. */
static const dlc_option options[] = {
    DLC_FLOAT("learning_rate", "0.0001", 0, 1e9, "base learning rate"),
    DLC_FLOAT("beta1", "0.9", 0, 1, "share of the momentum in the direction"),
    DLC_FLOAT("beta2", "0.99", 0, 1, "decay rate of the momentum"),
    DLC_OPTIONS_END,
};

static const dlc_solver_ops ops = {
    .size = sizeof ops,
    .needs = lion_needs,
    .values = lion_values,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_SOLVER,
     .name = "lion",
     .help = "Lion: the sign of a momentum, with decoupled weight decay",
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("lion", PLUGIN_VERSION, "BSD-2-Clause", features, lion_load);
