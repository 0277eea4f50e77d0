/* The rules of the solvers adam and adamw: without and with AMSGrad. */
#include <dlcore/rule.h>

/* In dlc_rule_step.own. The corrections of the bias are factors of `first` and of the
 * root of `second`. */
enum {
    BETA1,
    ONE_MINUS_BETA1,
    BETA2,
    ONE_MINUS_BETA2,
    FIRST_CORRECTION,
    SECOND_CORRECTION,
    EPSILON,
    DECAY
};
enum { FIRST, SECOND, LARGEST }; /* moments, and the largest second moment */

DLC_RULE_INLINE void adam_moments(const dlc_rule_step *step, float g, float *slot) {
    slot[FIRST] = step->own[BETA1] * slot[FIRST] + step->own[ONE_MINUS_BETA1] * g;
    slot[SECOND] = step->own[BETA2] * slot[SECOND] + step->own[ONE_MINUS_BETA2] * g * g;
}

DLC_RULE_INLINE void adam_step(const dlc_rule_step *step, float first, float second,
                               float *weight) {
    float root = sqrtf(second) * step->own[SECOND_CORRECTION];
    float direction = first * step->own[FIRST_CORRECTION] / (root + step->own[EPSILON]);
    float decay = step->own[DECAY] * step->decay_mult;
    *weight -= step->learning_rate * (direction + decay * *weight);
}

DLC_RULE(adam, 2) {
    adam_moments(step, gradient, slot);
    adam_step(step, slot[FIRST], slot[SECOND], weight);
}

DLC_RULE(amsgrad, 3) {
    adam_moments(step, gradient, slot);
    slot[LARGEST] = slot[SECOND] <= slot[LARGEST] ? slot[LARGEST] : slot[SECOND];
    adam_step(step, slot[FIRST], slot[LARGEST], weight);
}
