/* Solver lars, for large batches: You, Gitman and Ginsburg 2017, "Large Batch Training
 * of Convolutional Networks", algorithm 1.
 *
 *     trust = trust_coefficient |weight| / (|g| + weight_decay |weight| + epsilon)
 *     v = momentum v + learning_rate trust (g + weight_decay weight)
 *     weight -= v                      nesterov: (1 + momentum) v - momentum v_old
 *
 * The norms are those of a whole parameter tensor. Where one is 0 the trust is 1. */
#include <dlcore/solver.h>

#include "rules.h"

static const dlc_host *host;

static dlc_status lars_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static dlc_status lars_needs(const dlc_settings *settings, dlc_solver_needs *found) {
    (void)settings;
    found->rule = &lars;
    found->norms = DLC_NORMS_GRADIENT;
    found->slot_name[VELOCITY] = "momentum";
    found->slot_saved = 1u << VELOCITY;
    found->momentum = "momentum";
    return DLC_OK;
}

static dlc_status lars_values(const dlc_settings *settings, int64_t iteration,
                              dlc_rule_values *found) {
    (void)iteration;
    float momentum = (float)host->get_float(settings, "momentum");
    found->own[MOMENTUM] = momentum;
    found->own[AHEAD] = host->get_bool(settings, "nesterov") ? momentum : 0;
    found->own[COEFFICIENT] = (float)host->get_float(settings, "trust_coefficient");
    found->own[EPSILON] = (float)host->get_float(settings, "epsilon");
    found->own[UNDECAYED] = host->get_bool(settings, "trust_undecayed") ? 1 : 0;
    return DLC_OK;
}

static const dlc_option options[] = {
    DLC_FLOAT("momentum", "0.9", 0, 1,
              "fraction of the last step that the next one keeps"),
    DLC_BOOL("nesterov", "no", "look ahead along the momentum (Nesterov)"),
    DLC_FLOAT("trust_coefficient", "0.001", 0, 1e9,
              "length of a step relative to the weights, at learning rate 1"),
    DLC_FLOAT("epsilon", "1e-8", 0, 1e9,
              "added to the denominator, for numerical stability"),
    DLC_BOOL("trust_undecayed", "no",
             "also adapt parameters whose decay_mult is 0; no: they take the steps of "
             "sgd"),
    DLC_OPTIONS_END,
};

static const dlc_solver_ops ops = {
    .size = sizeof ops,
    .needs = lars_needs,
    .values = lars_values,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_SOLVER,
     .name = "lars",
     .help = "LARS: sgd whose steps are relative to the weights, for large batches",
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("lars", DLC_VERSION, "BSD-2-Clause", features, lars_load);
