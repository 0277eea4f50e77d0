/* Learning-rate schedules: the learning rate as a function of the iteration, from the
 * keys of [solver] (options.c). Called by solver.c. */
#ifndef DLC_SOLVER_SCHEDULE_H
#define DLC_SOLVER_SCHEDULE_H

#include <dlcore/plugin.h>

/* How iterations count in the schedule of a run that was resumed with another batch
 * size or length: the learning rate continues from where it was. */
typedef struct dlc_lr_schedule {
    /* Of the run as it began: use these in the schedule. */
    int64_t max_iterations, epoch_iterations;

    int64_t begin; /* the iteration at which the run was resumed */

    /* Iteration i counts as from + (i - begin) * step, in iterations of the batch size
     * that the run began with. */
    double from, step;

    /* In a schedule that ends with the run (and so depends on max_iterations),
     * iteration i counts as from_to_end + (i - begin) * step_to_end instead, so that
     * the rest of the schedule fits the rest of the run. */
    double from_to_end, step_to_end;
} dlc_lr_schedule;

/* What the learning rates of a job depend on beside the settings. */
typedef struct dlc_lr_job {
    int64_t max_iterations;   /* its length; -1: unknown */
    int64_t epoch_iterations; /* at least 1 */
    int64_t batch;            /* [data] batch, for which learning_rate is set; >= 1 */
    int64_t effective_batch;  /* samples of an iteration, over all ranks */
    const dlc_lr_schedule *schedule; /* NULL: iterations count as they are */
} dlc_lr_job;

typedef struct dlc_lr_form dlc_lr_form; /* the formula of a policy, see policies.h */

typedef struct dlc_lr_policy {
    const dlc_lr_form *form;
    double base_rate, gamma, power, min_rate;
    double scale; /* factor of the rate, from scale_learning_rate; 1: none */
    double step;  /* the length of a step or of the first period; sigmoid: its centre */
    double period_mult;               /* length of a period over that of the last one */
    double cycle_rise, cycle_divisor; /* one_cycle: its rise, where it begins */
    int cycles_momentum;
    double base_momentum, max_momentum;
    const int64_t
        *values; /* multistep: iterations of the steps; owned by the settings */
    size_t nvalues;
    double end;    /* iterations until the last value; -1: unknown */
    double warmup; /* in iterations; 0: none */
    double warmup_rate;
    int is_resumed; /* `schedule` maps iterations to those of the policy */
    int ends;       /* at the job's last iteration, not at one that the settings give */
    dlc_lr_schedule schedule;
} dlc_lr_policy;

/* Checks the settings as far as possible without the length of the job. DLC_ERR_CONFIG
 * with a sentence where they contradict each other. */
dlc_status dlc_lr_policy_check(const dlc_settings *settings);

/* Makes the policy from settings that dlc_lr_policy_check has accepted and that must
 * outlive it. */
dlc_status dlc_lr_policy_make(const dlc_settings *settings, const dlc_lr_job *job,
                              dlc_lr_policy *made);

/* The learning rate of an iteration; the first iteration is 0. */
double dlc_lr_policy_rate(const dlc_lr_policy *policy, int64_t iteration);

/* The momentum of an iteration; for policies that cycle it (cycles_momentum). */
double dlc_lr_policy_momentum(const dlc_lr_policy *policy, int64_t iteration);

/* Checks the learning rates of a job of at least 1 iteration.
 * DLC_ERR_CONFIG with a sentence if nothing can be learned (the learning rate is always
 * 0). If something is merely suspicious, writes a sentence to `warning` (of `bytes`
 * bytes, empty at first) and returns DLC_OK. */
dlc_status dlc_lr_policy_check_job(const dlc_settings *settings, const dlc_lr_job *job,
                                   char *warning, size_t bytes);

#endif
