/* Update rules for tests, with each number of slots that has a loop of its own. */
#include <dlcore/rule.h>

DLC_RULE(test_plain, 0) {
    (void)slot;
    *weight -= step->learning_rate * gradient;
}

DLC_RULE(test_momentum, 1) {
    float old = slot[0], velocity = step->own[0] * old + step->learning_rate * gradient;
    slot[0] = velocity;
    *weight -= step->own[1] > 0 ? (1 + step->own[0]) * velocity - step->own[0] * old
                                : velocity;
}

DLC_RULE(test_moments, 2) {
    slot[0] = step->own[2] * slot[0] + (1 - step->own[2]) * gradient;
    slot[1] = step->own[3] * slot[1] + (1 - step->own[3]) * (gradient * gradient);
    float direction = slot[0] / (sqrtf(slot[1]) + step->own[4]);
    direction = direction + step->own[5] * step->decay_mult * *weight;
    *weight -= step->learning_rate * step->own[6] * direction;
}

DLC_RULE(test_four, 4) {
    slot[0] = slot[0] + gradient;
    slot[1] = slot[1] - *weight;
    slot[2] = slot[2] * step->own[0];
    slot[3] = fabsf(slot[3]) > 1 ? slot[3] : step->own[11];
    *weight = *weight - step->learning_rate * (slot[0] + slot[1] * slot[2]);
}
