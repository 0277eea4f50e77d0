/* Solver lamb, for large batches: You et al. 2020, "Large Batch Optimization for Deep
 * Learning: Training BERT in 76 minutes", algorithm 2.
 *
 *     m = beta1 m + (1 - beta1) g                  m' = m / (1 - beta1^t)
 *     v = beta2 v + (1 - beta2) g^2                v' = v / (1 - beta2^t)
 *     d = m' / (sqrt(v') + epsilon) + weight_decay weight
 *     trust = min(max(|weight|, min_weight_norm), max_weight_norm) / |d|
 *     weight -= learning_rate trust d
 *
 * Without bias_correction m' = m and v' = v. The norms are those of a whole parameter
 * tensor. Where one is 0 the trust is 1. max_trust = 1 makes it the LAMBC of Fong, Chen
 * and Yoo 2020, "Improving Layer-wise Adaptive Rate Methods using Trust Ratio
 * Clipping". */
#include <dlcore/solver.h>
#include <float.h>

#include "rules.h"

static const dlc_host *host;

static dlc_status lamb_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static dlc_status lamb_needs(const dlc_settings *settings, dlc_solver_needs *found) {
    double least = host->get_float(settings, "min_weight_norm");
    double most = host->get_float(settings, "max_weight_norm");
    if (least > most)
        return host->fail(DLC_ERR_CONFIG,
                          "%s: min_weight_norm = %g is more than max_weight_norm = %g",
                          host->where(settings, "min_weight_norm"), least, most);
    found->rule = &lamb;
    found->direction = &lamb_direction;
    found->norms = DLC_NORMS_SLOT;
    found->norm_slot = DIRECTION;
    found->slot_name[FIRST] = "first_moment";
    found->slot_name[SECOND] = "second_moment";
    found->slot_name[DIRECTION] = "direction"; /* not saved: of one iteration */
    found->slot_saved = 1u << FIRST | 1u << SECOND;
    found->momentum = "beta1";
    return DLC_OK;
}

/* Values are finite: no bound is the largest number. */
static float bound(const dlc_settings *settings, const char *key) {
    return (float)fmin(host->get_float(settings, key), FLT_MAX);
}

static dlc_status lamb_values(const dlc_settings *settings, int64_t iteration,
                              dlc_rule_values *found) {
    double beta1 = host->get_float(settings, "beta1");
    double beta2 = host->get_float(settings, "beta2");
    double t = host->get_bool(settings, "bias_correction") ? (double)iteration + 1
                                                           : INFINITY;
    found->own[BETA1] = (float)beta1;
    found->own[ONE_MINUS_BETA1] = (float)(1 - beta1);
    found->own[BETA2] = (float)beta2;
    found->own[ONE_MINUS_BETA2] = (float)(1 - beta2);
    found->own[FIRST_CORRECTION] = (float)(1 / (1 - pow(beta1, t)));
    found->own[SECOND_CORRECTION] = (float)(1 / sqrt(1 - pow(beta2, t)));
    found->own[EPSILON] = (float)host->get_float(settings, "epsilon");
    found->own[DECAY] = found->weight_decay;
    found->own[LEAST] = (float)host->get_float(settings, "min_weight_norm");
    found->own[MOST] = bound(settings, "max_weight_norm");
    found->own[MOST_TRUST] = bound(settings, "max_trust");
    found->own[UNDECAYED] = host->get_bool(settings, "trust_undecayed") ? 1 : 0;
    found->weight_decay = 0;
    return DLC_OK;
}

static const dlc_option options[] = {
    DLC_FLOAT("learning_rate", "0.001", 0, 1e9,
              "base learning rate: length of a step relative to the weights"),
    DLC_FLOAT("beta1", "0.9", 0, 0.9999999, "decay rate of the mean of gradients"),
    DLC_FLOAT("beta2", "0.999", 0, 0.9999999,
              "decay rate of the mean of squared gradients"),
    DLC_FLOAT("epsilon", "1e-6", 1e-30, 1e9,
              "added to the denominator, for numerical stability"),
    DLC_FLOAT("weight_decay", "0.01", 0, 1e9,
              "decoupled weight decay, a part of the step's direction; multiplied by "
              "the parameter's own decay_mult"),
    DLC_BOOL("bias_correction", "yes",
             "correct the means for their start from 0, as Adam does"),
    DLC_FLOAT("min_weight_norm", "0", 0, 1e30,
              "smaller norms of the weights count as this one"),
    DLC_FLOAT("max_weight_norm", "inf", 0, INFINITY,
              "larger norms of the weights count as this one"),
    DLC_FLOAT("max_trust", "inf", 0, INFINITY,
              "largest ratio of the norms of weights and direction"),
    DLC_BOOL("trust_undecayed", "no",
             "also adapt parameters whose decay_mult is 0; no: they take the steps of "
             "adamw"),
    DLC_OPTIONS_END,
};

static const dlc_solver_ops ops = {
    .size = sizeof ops,
    .needs = lamb_needs,
    .values = lamb_values,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_SOLVER,
     .name = "lamb",
     .help = "LAMB: adamw whose steps are relative to the weights, for large batches",
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("lamb", DLC_VERSION, "BSD-2-Clause", features, lamb_load);
