/* The formulas of the learning-rate policies: one row each in a table. Called by
 * schedule.c. */
#ifndef DLC_SOLVER_POLICIES_H
#define DLC_SOLVER_POLICIES_H

#include "solver/schedule.h"

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
