/* A solver as the core uses it: the plugin's rule, its settings, and what the core adds
 * to every rule: learning-rate schedule, decay, clipping, accumulation. A session has
 * one and gives it to the updater (updater.h).
 *
 * Threads: any, once it is made. Only policy plateau has state, which changes between
 * iterations. */
#ifndef DLC_SOLVER_SOLVER_H
#define DLC_SOLVER_SOLVER_H

#include <dlcore/solver.h>

#include "solver/plateau.h"
#include "solver/schedule.h"

typedef struct dlc_solver {
    const char *name;
    const dlc_solver_ops *ops;
    const dlc_settings *settings; /* of [solver]; they outlive it */
    dlc_solver_needs needs;       /* complete and checked */
    int32_t slots;                /* of the rule */
    double ema;                   /* decay of the average of the weights; 0: none */
    int32_t accumulation_steps;   /* micro-batches of an iteration */
    double clip_norm;             /* of the whole gradient; 0: not clipped */
    double weight_decay, l1_decay;
    double clip_value; /* INFINITY: not clipped */
    dlc_lr_policy policy;
    dlc_lr_plateau plateau;
} dlc_solver;

/* The arenas of state that the core keeps for a solver: the rule's slots and, after
 * them, the average of the weights (ema.h), if there is one. */
enum { DLC_MAX_STATES = DLC_MAX_SLOTS + 1 };

static inline int32_t dlc_solver_states(const dlc_solver *solver) {
    return solver->slots + (solver->ema > 0);
}

/* The prefix of the average's tensors in checkpoints. */
#define DLC_EMA_NAME "ema"

static inline const char *dlc_solver_state_name(const dlc_solver *solver,
                                                int32_t state) {
    return state < solver->slots ? solver->needs.slot_name[state] : DLC_EMA_NAME;
}

/* The core's keys of [solver]. */
extern const dlc_option dlc_solver_options[];

/* Asks the plugin what it needs with these settings, and checks its answer and the
 * settings: DLC_ERR_CONFIG or DLC_ERR_PLUGIN with a sentence. `feature` and `settings`
 * must outlive the solver. The schedule is not set yet. */
dlc_status dlc_solver_make(const dlc_feature *feature, const dlc_settings *settings,
                           dlc_solver *solver);

/* Sets the schedule of a job, see dlc_lr_policy_make. */
dlc_status dlc_solver_set_schedule(dlc_solver *solver, const dlc_lr_job *job);

/* The learning rate and all hyperparameters of an iteration; the first one is 0. The
 * schedule must be set. */
double dlc_solver_learning_rate(const dlc_solver *solver, int64_t iteration);
dlc_status dlc_solver_values(const dlc_solver *solver, int64_t iteration,
                             dlc_rule_values *values);

/* Must the gradient of whole tensors be known before any weight is updated? Then
 * updates cannot be fused with the reduction or deferred: the first update would need
 * the last gradient. Clipping by norm (solver->clip_norm) also needs those of all
 * tensors on one rank. */
int dlc_solver_needs_whole_tensors(const dlc_solver *solver);

/* What is known about it, in words: "clip_gradients". NULL if it needs no whole
 * tensors. */
const char *dlc_solver_whole_reason(const dlc_solver *solver);

/* Is the state part of a checkpoint? */
static inline int dlc_solver_saves(const dlc_solver *solver, int32_t state) {
    return state == solver->slots || (solver->needs.slot_saved >> state & 1) != 0;
}

#endif
