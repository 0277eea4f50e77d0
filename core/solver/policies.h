/* Learning-rate policies, and their formulas: one row each in a table. Called by
 * schedule.c. */
#ifndef DLC_SOLVER_POLICIES_H
#define DLC_SOLVER_POLICIES_H

#include <stddef.h>
#include <stdint.h>

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

typedef struct dlc_lr_form dlc_lr_form;

/* A policy with its settings. */
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

/* What a policy needs to know. */
enum {
    DLC_LR_END = 1u << 0,         /* where it ends */
    DLC_LR_STEP_SIZE = 1u << 1,   /* step_size */
    DLC_LR_STEP_VALUES = 1u << 2, /* step_values */
};

/* What is true of a policy. */
enum {
    DLC_LR_NEGATIVE_GAMMA = 1u << 3, /* it may have one */
    DLC_LR_FALLS = 1u << 4,          /* gamma must be below 1 */
    DLC_LR_OWN_WARMUP = 1u << 5, /* it has a rise, which a warm-up would contradict */
    DLC_LR_CYCLE = 1u << 6,      /* momentum may cycle with it */
};

struct dlc_lr_form {
    const char *name;
    unsigned flags;

    /* The learning rate at iteration i, which may be fractional. */
    double (*rate)(const dlc_lr_policy *policy, double i);

    /* The first iteration from `from` on where the rate is at its highest. NULL: it
     * only rises or only falls. */
    double (*peak)(const dlc_lr_policy *policy, double from);
};

/* One cycle at iteration i: a value that goes from `begin` to `top` in the rise, and
 * then to `end`. */
double dlc_lr_cycle(const dlc_lr_policy *policy, double i, double begin, double top,
                    double end);

/* NULL: there is none of that name. */
const dlc_lr_form *dlc_lr_form_find(const char *name);

#endif
