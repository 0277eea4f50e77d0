/* Solver adagrad: Duchi, Hazan and Singer 2011, "Adaptive Subgradient Methods for
 * Online Learning and Stochastic Optimization", with diagonal matrices.
 *
 *     h += g^2
 *     weight -= learning_rate g / (sqrt(h) + epsilon)
 *
 * The learning rate may fall as 1 / (1 + learning_rate_decay * iteration) beside its
 * schedule, as in PyTorch. */
#include <dlcore/solver.h>

#include "rules.h"

static const dlc_host *host;

static dlc_status adagrad_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static dlc_status adagrad_needs(const dlc_settings *settings, dlc_solver_needs *found) {
    found->rule = &adagrad;
    found->slot_name[SQUARES] = "sum_of_squares";
    found->slot_initial[SQUARES] = (float)host->get_float(settings,
                                                          "initial_accumulator");
    found->slot_saved = 1u << SQUARES;
    return DLC_OK;
}

static dlc_status adagrad_values(const dlc_settings *settings, int64_t iteration,
                                 dlc_rule_values *found) {
    double decay = host->get_float(settings, "learning_rate_decay");
    found->own[EPSILON] = (float)host->get_float(settings, "epsilon");
    found->learning_rate = (float)(found->learning_rate /
                                   (1 + decay * (double)iteration));
    return DLC_OK;
}

static const dlc_option options[] = {
    DLC_FLOAT("initial_accumulator", "0", 0, 1e30,
              "what the sum of squared gradients starts from"),
    DLC_FLOAT("learning_rate_decay", "0", 0, 1e9,
              "the learning rate is divided by 1 + learning_rate_decay * iteration"),
    DLC_FLOAT("epsilon", "1e-10", 1e-30, 1e9,
              "added to the denominator, for numerical stability"),
    DLC_OPTIONS_END,
};

static const dlc_solver_ops ops = {
    .size = sizeof ops,
    .needs = adagrad_needs,
    .values = adagrad_values,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_SOLVER,
     .name = "adagrad",
     .help = "AdaGrad: steps are divided by the root of the sum of squared gradients",
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("adagrad", DLC_VERSION, "BSD-2-Clause", features, adagrad_load);
