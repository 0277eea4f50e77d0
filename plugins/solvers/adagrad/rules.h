/* The rule of the solver adagrad. */
#include <dlcore/rule.h>

enum { EPSILON }; /* in dlc_rule_step.own */
enum { SQUARES };

DLC_RULE(adagrad, 1) {
    slot[SQUARES] += gradient * gradient;
    *weight -= step->learning_rate * gradient /
               (sqrtf(slot[SQUARES]) + step->own[EPSILON]);
}
