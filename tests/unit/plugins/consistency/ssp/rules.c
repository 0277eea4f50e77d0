/* Rules of different numbers of slots, and the updater of a fake core. */
#include "rules.h"

DLC_RULE(plain, 0) {
    (void)slot;
    *weight -= step->learning_rate * gradient;
}

DLC_RULE(momentum, 1) {
    float old = slot[0];
    slot[0] = step->own[0] * old + step->learning_rate * gradient;
    *weight -= step->own[1] != 0 ? (1 + step->own[0]) * slot[0] - step->own[0] * old
                                 : slot[0];
}

DLC_RULE(adam, 2) {
    slot[0] = step->own[0] * slot[0] + (1 - step->own[0]) * gradient;
    slot[1] = step->own[1] * slot[1] + (1 - step->own[1]) * gradient * gradient;
    *weight -= step->learning_rate * slot[0] / (sqrtf(slot[1]) + step->own[2]);
}

DLC_RULE(four, 4) {
    float size = fabsf(gradient);
    slot[0] = 0.75f * slot[0] + gradient;
    slot[1] = size > slot[1] ? size : slot[1];
    slot[2] = slot[2] + gradient * gradient;
    slot[3] = 0.5f * slot[3] + size;
    *weight -= step->learning_rate * slot[0] / (sqrtf(slot[2]) + slot[1] + slot[3]);
}

const dlc_rule *const rules_plain = &plain;
const dlc_rule *const rules_momentum = &momentum;
const dlc_rule *const rules_adam = &adam;
const dlc_rule *const rules_four = &four;

static dlc_status get_values(void *context, int64_t iteration,
                             dlc_rule_values *values) {
    const rules_choice *choice = ((const rules_context *)context)->choice;
    *values = (dlc_rule_values){.learning_rate = choice->learning_rate *
                                                 powf(choice->gamma, (float)iteration),
                                .weight_decay = choice->weight_decay,
                                .clip_value = INFINITY};
    for (int i = 0; i < DLC_RULE_VALUES; i++)
        values->own[i] = choice->own[i];
    return DLC_OK;
}

/* Updates the part of one parameter that is in [begin, end). */
static void update_segment(const rules_segment *segment, const dlc_update *base,
                           size_t begin, size_t end, const float *gradient,
                           float *const *slots, float *weight) {
    size_t from = segment->offset > begin ? segment->offset : begin;
    size_t to = segment->offset + segment->count;
    to = to < end ? to : end;
    if (from >= to || segment->lr_mult == 0)
        return;
    dlc_update one = *base;
    dlc_rule_step step;
    float *at[DLC_MAX_SLOTS] = {NULL};
    one.lr_mult = segment->lr_mult;
    one.decay_mult = segment->decay_mult;
    for (int32_t i = 0; i < one.rule->slots; i++)
        at[i] = slots[i] + (from - begin);
    (void)dlc_rule_step_make(&one, &step);
    one.rule->run(&step, to - from, gradient + (from - begin), at,
                  weight + (from - begin));
}

static dlc_status update(void *context, dlc_queue *queue, const dlc_rule_values *values,
                         size_t begin, size_t count, float grad_scale,
                         const float *gradient, float *const *slots, float *weight) {
    (void)queue;
    const rules_context *rules = context;
    dlc_update base = {.size = sizeof base,
                       .rule = rules->choice->rule,
                       .grad_scale = grad_scale,
                       .values = *values};
    for (int32_t i = 0; i < rules->segments; i++)
        update_segment(&rules->segment[i], &base, begin, begin + count, gradient, slots,
                       weight);
    return DLC_OK;
}

dlc_updater rules_updater(rules_context *context) {
    return (dlc_updater){.size = sizeof(dlc_updater),
                         .context = context,
                         .slots = context->choice->rule->slots,
                         .values = get_values,
                         .update = update};
}
