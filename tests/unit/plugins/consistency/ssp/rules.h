/* Update rules for the tests of ssp, and the updater that applies them as the core
 * does: each parameter with its multipliers, padding and frozen ones not at all. */
#ifndef TEST_SSP_RULES_H
#define TEST_SSP_RULES_H

#include <dlcore/consistency.h>

/* One parameter tensor in the arenas. */
typedef struct rules_segment {
    size_t offset, count;
    float lr_mult, decay_mult;
} rules_segment;

/* A rule with its hyperparameters. */
typedef struct rules_choice {
    const dlc_rule *rule;
    float learning_rate, gamma; /* learning_rate * gamma^iteration */
    float weight_decay;
    float own[DLC_RULE_VALUES];
    float initial[DLC_MAX_SLOTS]; /* of the slots */
} rules_choice;

/* No slots: weight -= learning_rate * gradient. */
extern const dlc_rule *const rules_plain;

/* One slot, linear: momentum own[0]; of Nesterov's kind if own[1] is not 0. */
extern const dlc_rule *const rules_momentum;

/* Two slots, nonlinear: Adam without correction of the bias; own: beta1, beta2,
 * epsilon. */
extern const dlc_rule *const rules_adam;

/* Four slots, nonlinear in all of them. */
extern const dlc_rule *const rules_four;

/* An updater for parameters in ascending order; all pointers stay valid as long as it
 * is used. */
typedef struct rules_context {
    const rules_choice *choice;
    const rules_segment *segment;
    int32_t segments;
} rules_context;

dlc_updater rules_updater(rules_context *context);

#endif
