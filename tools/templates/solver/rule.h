/* The rule of the solver "@NAME@", and nothing else: it is compiled for CPUs and, if
 * nvcc is found, for GPUs. */
#include <dlcore/rule.h>

enum { MOMENTUM }; /* in dlc_rule_step.own */
enum { VELOCITY }; /* the slot */

/* Updates one weight. `gradient` has the gradient, reduced over all ranks, with the
 * weight decay added; step->learning_rate has the lr_mult of the parameter. */
DLC_RULE(update, 1) {
    slot[VELOCITY] = step->own[MOMENTUM] * slot[VELOCITY] + gradient;
    *weight -= step->learning_rate * slot[VELOCITY];
}
