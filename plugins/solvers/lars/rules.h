/* The rule of the solver lars. The gradient has the weight decay added. */
#include <dlcore/rule.h>

/* In dlc_rule_step.own. AHEAD: momentum if nesterov, or 0; UNDECAYED: 1 if parameters
 * without decay have a trust, too. */
enum { MOMENTUM, AHEAD, COEFFICIENT, EPSILON, UNDECAYED };
enum { VELOCITY };

/* How much longer or shorter the steps of a tensor are; the norm is the gradient's. */
DLC_RULE_INLINE float lars_trust(const dlc_rule_step *step) {
    int adapts = step->decay_mult > 0 || step->own[UNDECAYED] > 0;
    float norm = step->norm + step->weight_decay * step->weight_norm +
                 step->own[EPSILON];
    return adapts && step->weight_norm > 0 && step->norm > 0
               ? step->own[COEFFICIENT] * step->weight_norm / norm
               : 1;
}

DLC_RULE(lars, 1) {
    float old = slot[VELOCITY], rate = step->learning_rate * lars_trust(step);
    slot[VELOCITY] = step->own[MOMENTUM] * old + rate * gradient;
    *weight -= slot[VELOCITY] + step->own[AHEAD] * (slot[VELOCITY] - old);
}
