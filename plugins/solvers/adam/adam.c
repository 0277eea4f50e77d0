/* Solvers adam and adamw.
 *
 * adam: Kingma and Ba 2015, "Adam: A Method for Stochastic Optimization", algorithm 1.
 * adamw: Loshchilov and Hutter 2019, "Decoupled Weight Decay Regularization", algorithm
 * 2, with the decay multiplied by the learning rate, as in PyTorch.
 * amsgrad: Reddi, Kale and Kumar 2018, "On the Convergence of Adam and Beyond",
 * algorithm 2, with the bias corrected, as in PyTorch.
 *
 *     m = beta1 m + (1 - beta1) g                  m' = m / (1 - beta1^t)
 *     v = beta2 v + (1 - beta2) g^2                v' = v / (1 - beta2^t)
 *     with amsgrad: the largest v so far instead of v in v'
 *     weight -= learning_rate (m' / (sqrt(v') + epsilon) + decay weight)
 *
 * The decay is that of adamw; adam's is a part of the gradient. */
#include <dlcore/solver.h>

#include "rules.h"

static const dlc_host *host;

static dlc_status adam_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static dlc_status adam_needs(const dlc_settings *settings, dlc_solver_needs *found) {
    found->rule = host->get_bool(settings, "amsgrad") ? &amsgrad : &adam;
    found->slot_name[FIRST] = "first_moment";
    found->slot_name[SECOND] = "second_moment";
    if (found->rule == &amsgrad)
        found->slot_name[LARGEST] = "largest_second_moment";
    found->slot_saved = (1u << found->rule->slots) - 1;
    found->momentum = "beta1";
    return DLC_OK;
}

static dlc_status adam_values(const dlc_settings *settings, int64_t iteration,
                              dlc_rule_values *found) {
    double beta1 = host->get_float(settings, "beta1");
    double beta2 = host->get_float(settings, "beta2");
    double t = (double)iteration + 1;
    found->own[BETA1] = (float)beta1;
    found->own[ONE_MINUS_BETA1] = (float)(1 - beta1);
    found->own[BETA2] = (float)beta2;
    found->own[ONE_MINUS_BETA2] = (float)(1 - beta2);
    found->own[FIRST_CORRECTION] = (float)(1 / (1 - pow(beta1, t)));
    found->own[SECOND_CORRECTION] = (float)(1 / sqrt(1 - pow(beta2, t)));
    found->own[EPSILON] = (float)host->get_float(settings, "epsilon");
    return DLC_OK;
}

static dlc_status adamw_values(const dlc_settings *settings, int64_t iteration,
                               dlc_rule_values *found) {
    found->own[DECAY] = found->weight_decay;
    found->weight_decay = 0;
    return adam_values(settings, iteration, found);
}

#define ADAM_OPTIONS \
    DLC_FLOAT("learning_rate", "0.001", 0, 1e9, "base learning rate"), \
        DLC_FLOAT("beta1", "0.9", 0, 0.9999999, \
                  "decay rate of the mean of gradients"), \
        DLC_FLOAT("beta2", "0.999", 0, 0.9999999, \
                  "decay rate of the mean of squared gradients"), \
        DLC_FLOAT("epsilon", "1e-8", 1e-30, 1e9, \
                  "added to the denominator, for numerical stability"), \
        DLC_BOOL("amsgrad", "no", \
                 "divide by the largest mean of squared gradients so far (AMSGrad)")

static const dlc_option adam_options[] = {
    ADAM_OPTIONS,
    DLC_OPTIONS_END,
};

static const dlc_option adamw_options[] = {
    ADAM_OPTIONS,
    DLC_FLOAT("weight_decay", "0.01", 0, 1e9,
              "each step takes learning_rate * weight_decay of the weight; multiplied "
              "by the parameter's own decay_mult"),
    DLC_OPTIONS_END,
};

static const dlc_solver_ops adam_ops = {
    .size = sizeof adam_ops,
    .needs = adam_needs,
    .values = adam_values,
};

static const dlc_solver_ops adamw_ops = {
    .size = sizeof adamw_ops,
    .needs = adam_needs,
    .values = adamw_values,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_SOLVER,
     .name = "adam",
     .help = "Adam: adaptive moment estimation",
     .options = adam_options,
     .ops = &adam_ops},
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_SOLVER,
     .name = "adamw",
     .help = "AdamW: Adam with decoupled weight decay",
     .options = adamw_options,
     .ops = &adamw_ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("adam", DLC_VERSION, "BSD-2-Clause", features, adam_load);
