/* The rules of the solver lamb: the direction, whose norm is taken, and the step. */
#include <dlcore/rule.h>

/* In dlc_rule_step.own. The corrections of the bias are factors of `first` and of the
 * root of `second`. LEAST, MOST: norms of the weights; UNDECAYED: 1 if parameters
 * without decay have a trust, too. */
enum {
    BETA1,
    ONE_MINUS_BETA1,
    BETA2,
    ONE_MINUS_BETA2,
    FIRST_CORRECTION,
    SECOND_CORRECTION,
    EPSILON,
    DECAY,
    LEAST,
    MOST,
    MOST_TRUST,
    UNDECAYED
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

/* How much longer or shorter the steps of a tensor are; the norm is the direction's. */
DLC_RULE_INLINE float lamb_trust(const dlc_rule_step *step) {
    int adapts = step->decay_mult > 0 || step->own[UNDECAYED] > 0;
    float norm = step->weight_norm > step->own[LEAST] ? step->weight_norm
                                                      : step->own[LEAST];
    norm = norm < step->own[MOST] ? norm : step->own[MOST];
    float trust = norm / step->norm;
    trust = trust < step->own[MOST_TRUST] ? trust : step->own[MOST_TRUST];
    return adapts && norm > 0 && step->norm > 0 ? trust : 1;
}

DLC_RULE(lamb, 3) {
    (void)gradient;
    *weight -= step->learning_rate * lamb_trust(step) * slot[DIRECTION];
}
