/* The rule of the solver adadelta. */
#include <dlcore/rule.h>

enum { RHO, ONE_MINUS_RHO, EPSILON }; /* in dlc_rule_step.own */
enum { SQUARES, STEPS };

DLC_RULE(adadelta, 2) {
    float rho = step->own[RHO], other = step->own[ONE_MINUS_RHO];
    float epsilon = step->own[EPSILON];
    slot[SQUARES] = rho * slot[SQUARES] + other * gradient * gradient;
    float delta = sqrtf(slot[STEPS] + epsilon) / sqrtf(slot[SQUARES] + epsilon) *
                  gradient;
    slot[STEPS] = rho * slot[STEPS] + other * delta * delta;
    *weight -= step->learning_rate * delta;
}
