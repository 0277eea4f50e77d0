/* The rule of the solver lars. The gradient has the weight decay added. */
#include <dlcore/rule.h>

enum { MOMENTUM, AHEAD }; /* in dlc_rule_step.own; AHEAD: momentum if nesterov, or 0 */
enum { VELOCITY };

DLC_RULE(lars, 1) {
    float old = slot[VELOCITY], rate = step->learning_rate * step->trust;
    slot[VELOCITY] = step->own[MOMENTUM] * old + rate * gradient;
    *weight -= slot[VELOCITY] + step->own[AHEAD] * (slot[VELOCITY] - old);
}
