/* The rules of the solver lamb: the direction, whose norm is taken, and the step. */
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
enum { FIRST, SECOND, DIRECTION }; /* moments, and the direction of this iteration */

DLC_RULE(lamb_direction, 3) {
    slot[FIRST] = step->own[BETA1] * slot[FIRST] +
                  step->own[ONE_MINUS_BETA1] * gradient;
    slot[SECOND] = step->own[BETA2] * slot[SECOND] +
                   step->own[ONE_MINUS_BETA2] * gradient * gradient;
    float root = sqrtf(slot[SECOND]) * step->own[SECOND_CORRECTION];
    slot[DIRECTION] = slot[FIRST] * step->own[FIRST_CORRECTION] /
                          (root + step->own[EPSILON]) +
                      step->own[DECAY] * step->decay_mult * *weight;
}

DLC_RULE(lamb, 3) {
    (void)gradient;
    *weight -= step->learning_rate * step->trust * slot[DIRECTION];
}
