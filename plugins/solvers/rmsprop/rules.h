/* The rules of the solver rmsprop: without and with momentum, centered or not, each
 * with the slots that it needs. */
#include <dlcore/rule.h>

enum { ALPHA, ONE_MINUS_ALPHA, EPSILON, MOMENTUM }; /* in dlc_rule_step.own */
enum { SQUARES, MEAN };                             /* the velocity is the last slot */

DLC_RULE_INLINE float rmsprop_mean(const dlc_rule_step *step, float x, float *mean) {
    return *mean = step->own[ALPHA] * *mean + step->own[ONE_MINUS_ALPHA] * x;
}

/* The gradient over the root of the mean of its squares. */
DLC_RULE_INLINE float rmsprop_scale(const dlc_rule_step *step, float g, float *slot) {
    float squares = rmsprop_mean(step, g * g, &slot[SQUARES]);
    return g / (sqrtf(squares) + step->own[EPSILON]);
}

/* The gradient over its standard deviation. */
DLC_RULE_INLINE float rmsprop_standardize(const dlc_rule_step *step, float g,
                                          float *slot) {
    float squares = rmsprop_mean(step, g * g, &slot[SQUARES]);
    float mean = rmsprop_mean(step, g, &slot[MEAN]);
    float variance = squares - mean * mean;
    variance = variance < 0 ? 0 : variance; /* by rounding; NaN stays NaN */
    return g / (sqrtf(variance) + step->own[EPSILON]);
}

DLC_RULE_INLINE float rmsprop_accelerate(const dlc_rule_step *step, float scaled,
                                         float *velocity) {
    return *velocity = step->own[MOMENTUM] * *velocity + scaled;
}

DLC_RULE(rmsprop, 1) {
    *weight -= step->learning_rate * rmsprop_scale(step, gradient, slot);
}

DLC_RULE(rmsprop_momentum, 2) {
    float scaled = rmsprop_scale(step, gradient, slot);
    *weight -= step->learning_rate * rmsprop_accelerate(step, scaled, &slot[1]);
}

DLC_RULE(rmsprop_centered, 2) {
    *weight -= step->learning_rate * rmsprop_standardize(step, gradient, slot);
}

DLC_RULE(rmsprop_centered_momentum, 3) {
    float scaled = rmsprop_standardize(step, gradient, slot);
    *weight -= step->learning_rate * rmsprop_accelerate(step, scaled, &slot[2]);
}
