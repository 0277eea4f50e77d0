/* Solver rmsprop: Tieleman and Hinton 2012, "Neural Networks for Machine Learning",
 * lecture 6.5. The centered form and the momentum are those of Graves 2013, "Generating
 * Sequences With Recurrent Neural Networks" (equations 38-41), with epsilon outside of
 * the root, as in Caffe and PyTorch.
 *
 *     s = alpha s + (1 - alpha) g^2
 *     m = alpha m + (1 - alpha) g                     if centered; otherwise m is 0
 *     v = momentum v + g / (sqrt(s - m^2) + epsilon)
 *     weight -= learning_rate v */
#include <dlcore/solver.h>

#include "rules.h"

static const dlc_host *host;

static dlc_status rmsprop_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static const dlc_rule *choose_rule(int centered, int has_momentum) {
    if (centered)
        return has_momentum ? &rmsprop_centered_momentum : &rmsprop_centered;
    return has_momentum ? &rmsprop_momentum : &rmsprop;
}

static dlc_status rmsprop_needs(const dlc_settings *settings, dlc_solver_needs *found) {
    int centered = host->get_bool(settings, "centered");
    int has_momentum = host->get_float(settings, "momentum") > 0;
    found->rule = choose_rule(centered, has_momentum);
    found->slot_name[SQUARES] = "mean_of_squares";
    if (centered)
        found->slot_name[MEAN] = "mean";
    if (has_momentum) {
        found->slot_name[found->rule->slots - 1] = "momentum";
        found->momentum = "momentum";
    }
    found->slot_saved = (1u << found->rule->slots) - 1;
    return DLC_OK;
}

static dlc_status rmsprop_values(const dlc_settings *settings, int64_t iteration,
                                 dlc_rule_values *found) {
    (void)iteration;
    double alpha = host->get_float(settings, "alpha");
    found->own[ALPHA] = (float)alpha;
    found->own[ONE_MINUS_ALPHA] = (float)(1 - alpha);
    found->own[EPSILON] = (float)host->get_float(settings, "epsilon");
    found->own[MOMENTUM] = (float)host->get_float(settings, "momentum");
    return DLC_OK;
}

static const dlc_option options[] = {
    DLC_FLOAT("alpha", "0.99", 0, 0.9999999,
              "decay rate of the mean of squared gradients"),
    DLC_FLOAT("epsilon", "1e-8", 1e-30, 1e9,
              "added to the denominator, for numerical stability"),
    DLC_FLOAT("momentum", "0", 0, 1,
              "fraction of the last step that the next one keeps"),
    DLC_BOOL("centered", "no",
             "divide by the standard deviation of the gradient, not by its root mean "
             "square"),
    DLC_OPTIONS_END,
};

static const dlc_solver_ops ops = {
    .size = sizeof ops,
    .needs = rmsprop_needs,
    .values = rmsprop_values,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_SOLVER,
     .name = "rmsprop",
     .help = "RMSProp: steps are divided by the root mean square of recent gradients",
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("rmsprop", DLC_VERSION, "BSD-2-Clause", features, rmsprop_load);
