/* Solvers: how a reduced gradient changes the weights.
 *
 * A solver is an update rule (<dlcore/rule.h>) and its hyperparameters. It has no state
 * but slots, arenas laid out as the weights, which the core allocates, passes to the
 * rule, shards and saves. Learning-rate schedule, weight decay, clipping, accumulation,
 * loss scaling, the exchange of gradients and consistency are the core's, for every
 * rule alike.
 *
 *     call      needed             thread   may block
 *     needs     required           any      no
 *     values    optional           any      no
 *
 * The calls depend on their arguments alone: several threads may make them at once, and
 * all ranks get the same results. */
#ifndef DLCORE_SOLVER_H
#define DLCORE_SOLVER_H

#include <dlcore/rule.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Which norm of each tensor the rule reads (dlc_rule_step.norm), beside that of the
 * weights (weight_norm). */
typedef enum dlc_rule_norms {
    DLC_NORMS_NONE = 0,
    DLC_NORMS_GRADIENT =
        1,              /* the reduced gradient, scaled and clipped, without decay */
    DLC_NORMS_SLOT = 2, /* slot `norm_slot`, after dlc_solver_needs.direction */
} dlc_rule_norms;

/* What a solver with certain settings needs. The core sets `size` and all other fields
 * to 0; the solver changes what differs. */
typedef struct dlc_solver_needs {
    uint32_t size;
    uint32_t norms;    /* dlc_rule_norms */
    int32_t norm_slot; /* with DLC_NORMS_SLOT */

    /* Required. The rule that updates weights and slots. It may depend on the settings,
     * so that state which they don't need takes no memory. */
    const dlc_rule *rule;

    /* Optional, with DLC_NORMS_SLOT: a rule that runs before `rule` in each iteration
     * and changes slots only, so that the norm of a direction can be taken before the
     * step (LAMB). Both have the same slots. */
    const dlc_rule *direction;

    /* Optional. The option, a number, that is its momentum. A schedule may replace it:
     * `values` then reads what it is in this iteration. */
    const char *momentum;

    /* The state that is kept for each weight, for each of the rule's slots. */
    const char *slot_name[DLC_MAX_SLOTS]; /* constant; the name in a checkpoint */
    float slot_initial[DLC_MAX_SLOTS];    /* the value at the start */
    uint32_t slot_saved;                  /* bit i: slot i is saved in checkpoints */
} dlc_solver_needs;

/* The table of calls of a solver. */
typedef struct dlc_solver_ops {
    uint32_t size;

    /* Required. Fills in `needs` from the settings. DLC_ERR_CONFIG with a sentence if
     * settings contradict each other. */
    dlc_status (*needs)(const dlc_settings *settings, dlc_solver_needs *needs);

    /* Optional. Fills in `values->own` for an iteration (the first is 0). The other
     * fields are set; a solver whose weight decay is its own (decoupled) moves it to
     * `own` and sets weight_decay to 0. */
    dlc_status (*values)(const dlc_settings *settings, int64_t iteration,
                         dlc_rule_values *values);
} dlc_solver_ops;

#ifdef __cplusplus
}
#endif
#endif
