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

/* NULL: there is none of that name. */
const dlc_lr_form *dlc_lr_form_find(const char *name);

#endif
