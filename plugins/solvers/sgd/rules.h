/* The rules of solver sgd: with the usual and with Nesterov's momentum, each in Caffe's
 * and in PyTorch's form. */
#include <dlcore/rule.h>

enum { MOMENTUM, UNDAMPED }; /* in dlc_rule_step.own; the latter in PyTorch's form */
enum { VELOCITY };           /* the slot */

DLC_RULE(momentum, 1) {
    slot[VELOCITY] = step->own[MOMENTUM] * slot[VELOCITY] +
                     step->learning_rate * gradient;
    *weight -= slot[VELOCITY];
}

DLC_RULE(nesterov, 1) {
    float before = slot[VELOCITY];
    slot[VELOCITY] = step->own[MOMENTUM] * before + step->learning_rate * gradient;
    *weight -= (1.0f + step->own[MOMENTUM]) * slot[VELOCITY] -
               step->own[MOMENTUM] * before;
}

DLC_RULE(torch_momentum, 1) {
    slot[VELOCITY] = step->own[MOMENTUM] * slot[VELOCITY] +
                     step->own[UNDAMPED] * gradient;
    *weight -= step->learning_rate * slot[VELOCITY];
}

DLC_RULE(torch_nesterov, 1) {
    slot[VELOCITY] = step->own[MOMENTUM] * slot[VELOCITY] + gradient;
    *weight -= step->learning_rate * (gradient + step->own[MOMENTUM] * slot[VELOCITY]);
}
