/* Learning-rate schedules: the learning rate as a function of the iteration, from the
 * keys of [solver] (options.c). Called by solver.c. */
#ifndef DLC_SOLVER_SCHEDULE_H
#define DLC_SOLVER_SCHEDULE_H

#include <dlcore/plugin.h>

#include "solver/policies.h"

/* What the learning rates of a job depend on beside the settings. */
typedef struct dlc_lr_job {
    int64_t max_iterations;   /* its length; -1: unknown */
    int64_t epoch_iterations; /* at least 1 */
    int64_t batch;            /* [data] batch, for which learning_rate is set; >= 1 */
    int64_t effective_batch;  /* samples of an iteration, over all ranks */
    const dlc_lr_schedule *schedule; /* NULL: iterations count as they are */
} dlc_lr_job;

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
