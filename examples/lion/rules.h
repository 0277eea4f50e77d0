/* The rule of the solver lion, for CPUs and GPUs. */
#include <dlcore/rule.h>

/* In dlc_rule_step.own. */
enum { BETA1, ONE_MINUS_BETA1, BETA2, ONE_MINUS_BETA2, DECAY };

DLC_RULE(lion, 1) {
    float mixed = step->own[BETA1] * slot[0] + step->own[ONE_MINUS_BETA1] * gradient;
    float sign = mixed > 0 ? 1.0f : mixed < 0 ? -1.0f : mixed; /* 0 or NaN stays */
    float decay = step->own[DECAY] * step->decay_mult;
    *weight -= step->learning_rate * (sign + decay * *weight);
    slot[0] = step->own[BETA2] * slot[0] + step->own[ONE_MINUS_BETA2] * gradient;
}
