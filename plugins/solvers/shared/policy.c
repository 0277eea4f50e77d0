/* Learning rate policies and warm-up. All but cosine and the warm-up are defined as in
 * Caffe (Jia et al., "Caffe: Convolutional Architecture for Fast Feature Embedding",
 * 2014; SolverParameter.lr_policy in its caffe.proto). */
#include "policy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    policy_kind kind;
} kinds[] = {
    {"fixed", POLICY_FIXED},
    {"step", POLICY_STEP},
    {"multistep", POLICY_MULTISTEP},
    {"exp", POLICY_EXP},
    {"inv", POLICY_INV},
    {"poly", POLICY_POLY},
    {"sigmoid", POLICY_SIGMOID},
    {"cosine", POLICY_COSINE},
};

static policy_kind kind_of(const dlc_host *host, const dlc_settings *settings) {
    const char *name = host->get_string(settings, "policy");
    for (size_t i = 0; name && i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(name, kinds[i].name))
            return kinds[i].kind;
    return POLICY_FIXED; /* the option table lets no other name pass */
}

static dlc_status check_values(const dlc_host *host, const dlc_settings *settings) {
    const int64_t *values;
    size_t count = host->get_ints(settings, "step_values", &values);
    if (!count)
        return host->fail(DLC_ERR_CONFIG,
                          "%s: policy = multistep needs step_values, the iterations "
                          "at which the learning rate falls",
                          host->where(settings, "policy"));
    for (size_t i = 1; i < count; i++)
        if (values[i] <= values[i - 1])
            return host->fail(DLC_ERR_CONFIG,
                              "%s: step_values must increase, but %lld follows %lld",
                              host->where(settings, "step_values"),
                              (long long)values[i], (long long)values[i - 1]);
    return DLC_OK;
}

dlc_status policy_check(const dlc_host *host, const dlc_settings *settings) {
    policy_kind kind = kind_of(host, settings);
    if (host->get_int(settings, "warmup") &&
        host->get_float(settings, "warmup_epochs") != 0)
        return host->fail(DLC_ERR_CONFIG, "%s: give warmup or warmup_epochs, not both",
                          host->where(settings, "warmup_epochs"));
    if (host->get_float(settings, "gamma") < 0 && kind != POLICY_SIGMOID)
        return host->fail(DLC_ERR_CONFIG,
                          "%s: gamma may be negative only with policy = sigmoid",
                          host->where(settings, "gamma"));
    if ((kind == POLICY_STEP || kind == POLICY_SIGMOID) &&
        !host->get_int(settings, "step_size"))
        return host->fail(DLC_ERR_CONFIG, "%s: policy = %s needs step_size",
                          host->where(settings, "policy"),
                          host->get_string(settings, "policy"));
    return kind == POLICY_MULTISTEP ? check_values(host, settings) : DLC_OK;
}

dlc_status policy_make(const dlc_host *host, const dlc_settings *settings,
                       int64_t max_iterations, int64_t epoch_iterations,
                       lr_policy *made) {
    int64_t end = host->get_int(settings, "max_iterations");
    int64_t warmup = host->get_int(settings, "warmup");
    *made = (lr_policy){
        .kind = kind_of(host, settings),
        .base_rate = host->get_float(settings, "learning_rate"),
        .gamma = host->get_float(settings, "gamma"),
        .power = host->get_float(settings, "power"),
        .min_rate = host->get_float(settings, "min_learning_rate"),
        .step = (double)host->get_int(settings, "step_size"),
        .end = (double)(end > 0 ? end : max_iterations),
        .warmup = warmup ? (double)warmup
                         : round(host->get_float(settings, "warmup_epochs") *
                                 (double)epoch_iterations),
        .warmup_rate = host->get_float(settings, "warmup_learning_rate"),
    };
    made->ends = end <= 0 && (made->kind == POLICY_POLY || made->kind == POLICY_COSINE);
    made->nvalues = host->get_ints(settings, "step_values", &made->values);
    if ((made->kind == POLICY_POLY || made->kind == POLICY_COSINE) && made->end < 0)
        return host->fail(
            DLC_ERR_CONFIG,
            "%s: policy = %s needs to know where it ends: set max_iterations",
            host->where(settings, "policy"), host->get_string(settings, "policy"));
    return DLC_OK;
}

dlc_status policy_from_args(const dlc_host *host, const dlc_solver_args *args,
                            lr_policy *made) {
    const dlc_lr_schedule *schedule = DLC_HAS(args, schedule) ? args->schedule : NULL;
    if (!schedule)
        return policy_make(host, args->settings, args->max_iterations,
                           args->epoch_iterations, made);
    dlc_status status = policy_make(host, args->settings, schedule->max_iterations,
                                    schedule->epoch_iterations, made);
    made->is_resumed = 1;
    made->schedule = *schedule;
    return status;
}

/* The number of steps at or before iteration i. */
static double steps_done(const lr_policy *p, double i) {
    size_t done = 0;
    while (done < p->nvalues && i >= (double)p->values[done])
        done++;
    return (double)done;
}

/* From 0 at the start to 1 at the end and after it. */
static double progress(const lr_policy *p, double i) {
    return i < p->end ? i / p->end : 1;
}

static double learning_rate_at(const lr_policy *p, double i) {
    switch (p->kind) {
    case POLICY_FIXED:
        break;
    case POLICY_STEP:
        return p->base_rate * pow(p->gamma, floor(i / p->step));
    case POLICY_MULTISTEP:
        return p->base_rate * pow(p->gamma, steps_done(p, i));
    case POLICY_EXP:
        return p->base_rate * pow(p->gamma, i);
    case POLICY_INV:
        return p->base_rate * pow(1 + p->gamma * i, -p->power);
    case POLICY_POLY:
        return p->base_rate * pow(1 - progress(p, i), p->power);
    case POLICY_SIGMOID:
        return p->base_rate / (1 + exp(-p->gamma * (i - p->step)));
    case POLICY_COSINE: /* Loshchilov and Hutter, "SGDR", 2017, eq. 5, one period */
        return p->min_rate +
               (p->base_rate - p->min_rate) * (1 + cos(M_PI * progress(p, i))) / 2;
    }
    return p->base_rate;
}

/* Gradual warm-up: Goyal et al., "Accurate, Large Minibatch SGD", 2017, 2.2. It ends at
 * the policy's value of that iteration; the policy counts from iteration 0 all the
 * same. */
double policy_learning_rate(const lr_policy *policy, int64_t iteration) {
    const dlc_lr_schedule *schedule = &policy->schedule;
    double i = (double)iteration, warm = i;
    if (policy->is_resumed && iteration >= schedule->begin) {
        double since = (double)(iteration - schedule->begin);
        warm = schedule->from + since * schedule->step;
        i = policy->ends ? schedule->from_to_end + since * schedule->step_to_end : warm;
    }
    if (warm >= policy->warmup)
        return learning_rate_at(policy, i);
    return policy->warmup_rate +
           (learning_rate_at(policy, policy->warmup) - policy->warmup_rate) * warm /
               policy->warmup;
}

/* ---- Checking a whole schedule ----------------------------------------------- */

/* The highest learning rate of a job. Warm-up and every policy are monotonic, so it is
 * at the start, at the end of the warm-up or at the last iteration. */
static double highest_rate(const lr_policy *policy, int64_t iterations) {
    int64_t last = iterations - 1;
    int64_t turn = policy->warmup < (double)last ? (int64_t)policy->warmup : last;
    return fmax(
        policy_learning_rate(policy, 0),
        fmax(policy_learning_rate(policy, turn), policy_learning_rate(policy, last)));
}

static const char *warmup_option(const dlc_host *host, const dlc_settings *settings) {
    return host->get_int(settings, "warmup") ? "warmup" : "warmup_epochs";
}

static dlc_status fail_schedule(const dlc_host *host, const dlc_settings *settings,
                                const lr_policy *policy, int64_t iterations) {
    const char *warmup = warmup_option(host, settings);
    if (policy->base_rate <= 0)
        return host->fail(DLC_ERR_CONFIG,
                          "%s: learning_rate = 0 throughout the job, so nothing "
                          "would be learned",
                          host->where(settings, "learning_rate"));
    if (policy->warmup > 0)
        return host->fail(DLC_ERR_CONFIG,
                          "%s: %s: the warm-up takes %.0f iterations, and the job has "
                          "%lld: the learning rate would be 0 throughout; train longer "
                          "or shorten the warm-up",
                          host->where(settings, warmup), warmup, policy->warmup,
                          (long long)iterations);
    return host->fail(DLC_ERR_CONFIG,
                      "%s: the learning rate would be 0 at each of the job's %lld "
                      "iterations",
                      host->where(settings, "policy"), (long long)iterations);
}

dlc_status policy_check_schedule(const dlc_host *host, const dlc_settings *settings,
                                 int64_t iterations, int64_t epoch_iterations,
                                 char *warning, size_t bytes) {
    lr_policy policy;
    dlc_status status = policy_make(host, settings, iterations, epoch_iterations,
                                    &policy);
    if (status != DLC_OK)
        return status;
    double highest = highest_rate(&policy, iterations);
    const char *warmup = warmup_option(host, settings);
    if ((float)highest <= 0)
        return fail_schedule(host, settings, &policy, iterations);
    if (!isfinite((float)highest))
        return host->fail(DLC_ERR_CONFIG,
                          "%s: the learning rate would grow to %g within the job's "
                          "%lld iterations",
                          host->where(settings, "gamma"), highest,
                          (long long)iterations);
    if (policy.warmup >= (double)iterations)
        (void)snprintf(warning, bytes,
                       "%s: %s: the warm-up takes %.0f iterations, and the job has "
                       "%lld: it ends before the learning rate reaches the policy's",
                       host->where(settings, warmup), warmup, policy.warmup,
                       (long long)iterations);
    else if (highest < policy.base_rate / 2)
        (void)snprintf(
            warning, bytes,
            "%s: learning_rate = %g is never reached: the highest learning rate of "
            "the job's %lld iterations is %g",
            host->where(settings, "learning_rate"), policy.base_rate,
            (long long)iterations, highest);
    else if (policy.end < 0.99 * (double)iterations &&
             (float)policy_learning_rate(&policy, iterations - 1) <= 0)
        (void)snprintf(warning, bytes,
                       "%s: max_iterations = %.0f, and the job has %lld: the learning "
                       "rate is 0 from there on, so nothing more is learned",
                       host->where(settings, "max_iterations"), policy.end,
                       (long long)iterations);
    return DLC_OK;
}
