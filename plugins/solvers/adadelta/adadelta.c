/* Solver adadelta: Zeiler 2012, "ADADELTA: An Adaptive Learning Rate Method", algorithm
 * 1, with the learning rate of Caffe and PyTorch, which is 1 in the paper.
 *
 *     s = rho s + (1 - rho) g^2
 *     d = sqrt(u + epsilon) / sqrt(s + epsilon) g
 *     u = rho u + (1 - rho) d^2
 *     weight -= learning_rate d */
#include <dlcore/solver.h>

#include "rules.h"

static const dlc_host *host;

static dlc_status adadelta_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static dlc_status adadelta_needs(const dlc_settings *settings,
                                 dlc_solver_needs *found) {
    (void)settings;
    found->rule = &adadelta;
    found->slot_name[SQUARES] = "mean_of_squares";
    found->slot_name[STEPS] = "mean_of_squared_steps";
    found->slot_saved = 1u << SQUARES | 1u << STEPS;
    return DLC_OK;
}

static dlc_status adadelta_values(const dlc_settings *settings, int64_t iteration,
                                  dlc_rule_values *found) {
    (void)iteration;
    double rho = host->get_float(settings, "rho");
    found->own[RHO] = (float)rho;
    found->own[ONE_MINUS_RHO] = (float)(1 - rho);
    found->own[EPSILON] = (float)host->get_float(settings, "epsilon");
    return DLC_OK;
}

static const dlc_option options[] = {
    DLC_FLOAT("learning_rate", "1", 0, 1e9, "factor of the steps"),
    DLC_FLOAT("rho", "0.9", 0, 0.9999999,
              "decay rate of the means of squared gradients and steps"),
    DLC_FLOAT("epsilon", "1e-6", 1e-30, 1e9,
              "added to both means, for numerical stability; the first steps are small "
              "if it is"),
    DLC_OPTIONS_END,
};

static const dlc_solver_ops ops = {
    .size = sizeof ops,
    .needs = adadelta_needs,
    .values = adadelta_values,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_SOLVER,
     .name = "adadelta",
     .help = "AdaDelta: the length of a step follows from recent gradients and steps",
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("adadelta", DLC_VERSION, "BSD-2-Clause", features, adadelta_load);
