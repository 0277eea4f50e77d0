/* normalize: the mean and the factor of each channel, applied where samples become
 * float32, on the CPU (transform_output.c) or by a device. */
#include "base/status.h"
#include "data/transform_kinds.h"

enum { MEAN, STD, SCALE };

dlc_status dlc_normalize_check(const dlc_transform_step *step) {
    if (step->given & 1u << STD && step->given & 1u << SCALE)
        return dlc_fail(DLC_ERR_CONFIG, "takes std or scale, not both");
    return DLC_OK;
}

/* The list's normalize; NULL if it has none. */
static const dlc_transform_step *find(const dlc_transforms *list) {
    const dlc_transform_step *last = list->count ? &list->step[list->count - 1] : NULL;
    return last && last->kind->check == dlc_normalize_check ? last : NULL;
}

/* The value of a channel; `otherwise` if none was given. */
static double value_of(const dlc_transform_step *step, int option, int64_t channel,
                       double otherwise) {
    size_t count = step ? step->value[option].list.count : 0;
    const double *values = count ? step->value[option].list.memory : NULL;
    return values ? values[count > 1 ? channel : 0] : otherwise;
}

float dlc_transforms_mean(const dlc_transforms *list, int64_t channel) {
    return (float)value_of(find(list), MEAN, channel, 0);
}

float dlc_transforms_scale(const dlc_transforms *list, int64_t channel) {
    const dlc_transform_step *step = find(list);
    if (step && step->given & 1u << SCALE)
        return (float)step->value[SCALE].f;
    return (float)(1 / value_of(step, STD, channel, 1));
}
