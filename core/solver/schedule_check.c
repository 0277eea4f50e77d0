/* Checks the learning rates of a whole job, before it starts. */
#include <math.h>
#include <stdio.h>

#include "base/status.h"
#include "config/config.h"
#include "solver/schedule.h"

/* The first iteration after the warm-up where the policy is at its highest; for those
 * that only rise or only fall, the end of the warm-up. */
static int64_t turning_point(const dlc_lr_policy *policy, int64_t last) {
    double turn = policy->warmup;
    if (policy->form->peak)
        turn = ceil(policy->form->peak(policy, turn));
    return turn < (double)last ? (int64_t)turn : last;
}

/* The highest learning rate of a job: at the start, where the policy turns, or at the
 * last iteration. */
static double highest_rate(const dlc_lr_policy *policy, int64_t iterations) {
    int64_t last = iterations - 1, turn = turning_point(policy, last);
    return fmax(dlc_lr_policy_rate(policy, 0), fmax(dlc_lr_policy_rate(policy, turn),
                                                    dlc_lr_policy_rate(policy, last)));
}

static const char *warmup_option(const dlc_settings *settings) {
    return dlc_settings_get_int(settings, "warmup") ? "warmup" : "warmup_epochs";
}

static dlc_status fail_schedule(const dlc_settings *settings,
                                const dlc_lr_policy *policy, int64_t iterations) {
    const char *warmup = warmup_option(settings);
    if (policy->base_rate <= 0)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s: learning_rate = 0 throughout the job, so nothing "
                        "would be learned",
                        dlc_settings_where(settings, "learning_rate"));
    if (policy->warmup > 0)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s: %s: the warm-up takes %.0f iterations, and the job has "
                        "%lld: the learning rate would be 0 throughout; train longer "
                        "or shorten the warm-up",
                        dlc_settings_where(settings, warmup), warmup, policy->warmup,
                        (long long)iterations);
    return dlc_fail(DLC_ERR_CONFIG,
                    "%s: the learning rate would be 0 at each of the job's %lld "
                    "iterations",
                    dlc_settings_where(settings, "policy"), (long long)iterations);
}

dlc_status dlc_lr_policy_check_job(const dlc_settings *settings, const dlc_lr_job *job,
                                   char *warning, size_t bytes) {
    int64_t iterations = job->max_iterations;
    dlc_lr_policy policy;
    dlc_status status = dlc_lr_policy_make(settings, job, &policy);
    if (status != DLC_OK)
        return status;
    double highest = highest_rate(&policy, iterations);
    double wanted = policy.base_rate * policy.scale;
    const char *warmup = warmup_option(settings);
    if ((float)highest <= 0)
        return fail_schedule(settings, &policy, iterations);
    if (!isfinite((float)highest))
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s: the learning rate would grow to %g within the job's "
                        "%lld iterations",
                        dlc_settings_where(settings, "gamma"), highest,
                        (long long)iterations);
    if (policy.warmup >= (double)iterations)
        (void)snprintf(warning, bytes,
                       "%s: %s: the warm-up takes %.0f iterations, and the job has "
                       "%lld: it ends before the learning rate reaches the policy's",
                       dlc_settings_where(settings, warmup), warmup, policy.warmup,
                       (long long)iterations);
    else if (highest < wanted / 2)
        (void)snprintf(
            warning, bytes,
            "%s: learning_rate = %g is never reached: the highest learning rate of "
            "the job's %lld iterations is %g",
            dlc_settings_where(settings, "learning_rate"), wanted,
            (long long)iterations, highest);
    else if (policy.end < 0.99 * (double)iterations &&
             (float)dlc_lr_policy_rate(&policy, iterations - 1) <= 0)
        (void)snprintf(warning, bytes,
                       "%s: max_iterations = %.0f, and the job has %lld: the learning "
                       "rate is 0 from there on, so nothing more is learned",
                       dlc_settings_where(settings, "max_iterations"), policy.end,
                       (long long)iterations);
    return DLC_OK;
}
