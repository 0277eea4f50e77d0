/* Update rules for tests, and what they compute, without the code of <dlcore/rule.h>.
 */
#include "support/updates.h"

#include "support/update_rules.h"

const dlc_rule *const test_rules[TEST_RULES] = {&test_plain, &test_momentum,
                                                &test_moments, &test_four};

dlc_update test_update(int rule) {
    return (dlc_update){.size = sizeof(dlc_update),
                        .rule = test_rules[rule],
                        .lr_mult = 2,
                        .decay_mult = 0.5f,
                        .grad_scale = 0.25f,
                        .values = {.learning_rate = 0.05f,
                                   .weight_decay = 0.004f,
                                   .l1_decay = 0.003f,
                                   .clip_value = 0.3f,
                                   .own = {0.9f, 1, 0.8f, 0.99f, 1e-6f, 0.01f, 0.75f, 0,
                                           0, 0, 0, -0.125f}}};
}

dlc_update test_subtraction(void) {
    return (dlc_update){.size = sizeof(dlc_update),
                        .rule = &test_plain,
                        .lr_mult = 1,
                        .decay_mult = 1,
                        .grad_scale = 1,
                        .values = {.learning_rate = 1, .clip_value = INFINITY}};
}

/* The reduced gradient, scaled, clipped, with both decays added. */
static float gradient_of(const dlc_update *update, const dlc_rule_values *values,
                         float gradient, float weight) {
    float scale = update->grad_scale;
    if (update->loss_scale)
        scale = scale * update->loss_scale->inverse;
    gradient = scale * gradient;
    if (fabsf(gradient) > values->clip_value)
        gradient = copysignf(values->clip_value, gradient);
    float decay = values->weight_decay * update->decay_mult;
    float l1 = values->l1_decay * update->decay_mult;
    gradient = gradient + decay * weight;
    if (weight > 0)
        gradient = gradient + l1;
    else if (weight < 0)
        gradient = gradient - l1;
    return gradient;
}

static void plain(float rate, float gradient, float *weight) {
    *weight = *weight - rate * gradient;
}

static void momentum(const float *own, float rate, float gradient, float *slot,
                     float *weight) {
    float kept = own[0] * *slot;
    *slot = kept + rate * gradient;
    if (own[1] > 0)
        *weight = *weight - ((1.0f + own[0]) * *slot - kept);
    else
        *weight = *weight - *slot;
}

static void moments(const float *own, float rate, float decay, float gradient,
                    float *first, float *second, float *weight) {
    *first = own[2] * *first + (1.0f - own[2]) * gradient;
    float square = gradient * gradient;
    *second = own[3] * *second + (1.0f - own[3]) * square;
    float step = *first / (sqrtf(*second) + own[4]) + decay * *weight;
    *weight = *weight - rate * step;
}

static void four(const float *own, float rate, float gradient, float *slot[4], size_t i,
                 float *weight) {
    slot[0][i] += gradient;
    slot[1][i] -= *weight;
    slot[2][i] *= own[0];
    if (!(fabsf(slot[3][i]) > 1))
        slot[3][i] = own[11];
    *weight -= rate * (slot[0][i] + slot[1][i] * slot[2][i]);
}

void test_update_reference(const dlc_update *update, size_t n, const float *gradient,
                           float *const *slots, float *weight) {
    const dlc_rule_values *values = update->values_at ? update->values_at
                                                      : &update->values;
    const float *own = values->own, rate = values->learning_rate * update->lr_mult;
    if (update->loss_scale && update->loss_scale->overflow)
        return;
    for (size_t i = 0; i < n; i++) {
        float g = gradient_of(update, values, gradient[i], weight[i]);
        if (update->rule == &test_plain)
            plain(rate, g, &weight[i]);
        else if (update->rule == &test_momentum)
            momentum(own, rate, g, &slots[0][i], &weight[i]);
        else if (update->rule == &test_moments)
            moments(own, rate * own[6], own[5] * update->decay_mult, g, &slots[0][i],
                    &slots[1][i], &weight[i]);
        else
            four(own, rate, g, (float *[]){slots[0], slots[1], slots[2], slots[3]}, i,
                 &weight[i]);
    }
}
