/* Makes the learning-rate policy of a job from its settings. */
#include "solver/schedule.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "config/config.h"
#include "solver/policies.h"

static const dlc_lr_form *form_of(const dlc_settings *settings) {
    const dlc_lr_form *form = dlc_lr_form_find(
        dlc_settings_get_string(settings, "policy"));
    return form ? form
                : dlc_lr_form_find("fixed"); /* the option table knows them all */
}

static dlc_status check_values(const dlc_settings *settings) {
    const int64_t *values;
    size_t count = dlc_settings_get_ints(settings, "step_values", &values);
    if (!count)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s: policy = multistep needs step_values, the iterations "
                        "at which the learning rate falls",
                        dlc_settings_where(settings, "policy"));
    for (size_t i = 1; i < count; i++)
        if (values[i] <= values[i - 1])
            return dlc_fail(DLC_ERR_CONFIG,
                            "%s: step_values must increase, but %lld follows %lld",
                            dlc_settings_where(settings, "step_values"),
                            (long long)values[i], (long long)values[i - 1]);
    return DLC_OK;
}

static int has_warmup(const dlc_settings *settings) {
    return dlc_settings_get_int(settings, "warmup") > 0 ||
           dlc_settings_get_float(settings, "warmup_epochs") > 0;
}

static dlc_status check_warmup(const dlc_settings *settings, const dlc_lr_form *form) {
    if (dlc_settings_get_int(settings, "warmup") &&
        dlc_settings_get_float(settings, "warmup_epochs") != 0)
        return dlc_fail(DLC_ERR_CONFIG, "%s: give warmup or warmup_epochs, not both",
                        dlc_settings_where(settings, "warmup_epochs"));
    if (form->flags & DLC_LR_OWN_WARMUP && has_warmup(settings))
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s: policy = %s begins with a rise of its own (cycle_rise); "
                        "remove the warm-up",
                        dlc_settings_where(settings, "policy"), form->name);
    return DLC_OK;
}

static dlc_status check_momentum(const dlc_settings *settings,
                                 const dlc_lr_form *form) {
    if (!dlc_settings_get_bool(settings, "cycle_momentum"))
        return DLC_OK;
    if (!(form->flags & DLC_LR_CYCLE))
        return dlc_fail(DLC_ERR_CONFIG, "%s: cycle_momentum needs policy = one_cycle",
                        dlc_settings_where(settings, "cycle_momentum"));
    if (dlc_settings_get_float(settings, "base_momentum") >
        dlc_settings_get_float(settings, "max_momentum"))
        return dlc_fail(DLC_ERR_CONFIG, "%s: base_momentum is more than max_momentum",
                        dlc_settings_where(settings, "base_momentum"));
    return DLC_OK;
}

static dlc_status check_gamma(const dlc_settings *settings, const dlc_lr_form *form) {
    double gamma = dlc_settings_get_float(settings, "gamma");
    if (gamma < 0 && !(form->flags & DLC_LR_NEGATIVE_GAMMA))
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s: gamma may be negative only with policy = sigmoid",
                        dlc_settings_where(settings, "gamma"));
    if (gamma >= 1 && form->flags & DLC_LR_FALLS)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "%s: policy = %s needs a gamma below 1, as the learning rate is "
            "to fall",
            dlc_settings_where(settings, "gamma"), form->name);
    return DLC_OK;
}

dlc_status dlc_lr_policy_check(const dlc_settings *settings) {
    const dlc_lr_form *form = form_of(settings);
    DLC_TRY(check_warmup(settings, form));
    DLC_TRY(check_gamma(settings, form));
    DLC_TRY(check_momentum(settings, form));
    if (form->flags & DLC_LR_STEP_SIZE && !dlc_settings_get_int(settings, "step_size"))
        return dlc_fail(DLC_ERR_CONFIG, "%s: policy = %s needs step_size",
                        dlc_settings_where(settings, "policy"), form->name);
    return form->flags & DLC_LR_STEP_VALUES ? check_values(settings) : DLC_OK;
}

/* How the learning rate follows the batch: as a power of it. */
static const struct {
    const char *name;
    double exponent;
} scalings[] = {
    {"none", 0},
    {"linear", 1}, /* Goyal et al. 2017, "Accurate, Large Minibatch SGD", 2.1 */
    {"sqrt", 0.5}, /* Krizhevsky 2014, arXiv:1404.5997, 5 */
};

static double scale_of(const dlc_settings *settings, const dlc_lr_job *job) {
    const char *name = dlc_settings_get_string(settings, "scale_learning_rate");
    double batches = (double)job->effective_batch / (double)job->batch;
    for (size_t i = 0; name && i < sizeof scalings / sizeof *scalings; i++)
        if (strcmp(name, scalings[i].name) == 0)
            return pow(batches, scalings[i].exponent);
    return 1;
}

dlc_status dlc_lr_policy_make(const dlc_settings *settings, const dlc_lr_job *job,
                              dlc_lr_policy *made) {
    const dlc_lr_schedule *schedule = job->schedule;
    int64_t max_iterations = schedule ? schedule->max_iterations : job->max_iterations;
    int64_t epoch_iterations = schedule ? schedule->epoch_iterations
                                        : job->epoch_iterations;
    int64_t end = dlc_settings_get_int(settings, "max_iterations");
    int64_t warmup = dlc_settings_get_int(settings, "warmup");
    *made = (dlc_lr_policy){
        .form = form_of(settings),
        .base_rate = dlc_settings_get_float(settings, "learning_rate"),
        .scale = scale_of(settings, job),
        .gamma = dlc_settings_get_float(settings, "gamma"),
        .power = dlc_settings_get_float(settings, "power"),
        .min_rate = dlc_settings_get_float(settings, "min_learning_rate"),
        .step = (double)dlc_settings_get_int(settings, "step_size"),
        .period_mult = dlc_settings_get_float(settings, "period_mult"),
        .cycle_rise = dlc_settings_get_float(settings, "cycle_rise"),
        .cycle_divisor = dlc_settings_get_float(settings, "cycle_divisor"),
        .cycles_momentum = dlc_settings_get_bool(settings, "cycle_momentum"),
        .base_momentum = dlc_settings_get_float(settings, "base_momentum"),
        .max_momentum = dlc_settings_get_float(settings, "max_momentum"),
        .end = (double)(end > 0 ? end : max_iterations),
        .warmup = warmup ? (double)warmup
                         : round(dlc_settings_get_float(settings, "warmup_epochs") *
                                 (double)epoch_iterations),
        .warmup_rate = dlc_settings_get_float(settings, "warmup_learning_rate"),
    };
    if (schedule) {
        made->is_resumed = 1;
        made->schedule = *schedule;
    }
    int has_end = (made->form->flags & DLC_LR_END) != 0;
    made->ends = has_end && end <= 0;
    made->nvalues = dlc_settings_get_ints(settings, "step_values", &made->values);
    if (has_end && made->end < 0)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "%s: policy = %s needs to know where it ends: set max_iterations",
            dlc_settings_where(settings, "policy"), made->form->name);
    return DLC_OK;
}

static double scaled_rate(const dlc_lr_policy *policy, double i) {
    return policy->scale * policy->form->rate(policy, i);
}

/* Where an iteration is in the policy's formula, and in the warm-up. */
static double position_of(const dlc_lr_policy *policy, int64_t iteration,
                          double *warm) {
    const dlc_lr_schedule *schedule = &policy->schedule;
    *warm = (double)iteration;
    if (!policy->is_resumed || iteration < schedule->begin)
        return *warm;
    double since = (double)(iteration - schedule->begin);
    *warm = schedule->from + since * schedule->step;
    return policy->ends ? schedule->from_to_end + since * schedule->step_to_end : *warm;
}

double dlc_lr_policy_momentum(const dlc_lr_policy *policy, int64_t iteration) {
    double warm, i = position_of(policy, iteration, &warm);
    return dlc_lr_cycle(policy, i, policy->max_momentum, policy->base_momentum,
                        policy->max_momentum);
}

/* Gradual warm-up: Goyal et al., "Accurate, Large Minibatch SGD", 2017, 2.2. It ends at
 * the policy's value of that iteration; the policy counts from iteration 0 all the
 * same. */
double dlc_lr_policy_rate(const dlc_lr_policy *policy, int64_t iteration) {
    double warm, i = position_of(policy, iteration, &warm);
    if (warm >= policy->warmup)
        return scaled_rate(policy, i);
    return policy->warmup_rate +
           (scaled_rate(policy, policy->warmup) - policy->warmup_rate) * warm /
               policy->warmup;
}
