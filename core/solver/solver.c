/* Makes a solver from a plugin and settings, and computes the hyperparameters of an
 * iteration. */
#include "solver/solver.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "config/config.h"

static dlc_status fail_plugin(const dlc_solver *solver, const char *what) {
    return dlc_fail(DLC_ERR_PLUGIN, "solver '%s' %s", solver->name, what);
}

static int is_known_name(const char *name) {
    return name && name[0] && strlen(name) < 64 && !strpbrk(name, "/ \t\n");
}

static dlc_status check_slots(const dlc_solver *solver) {
    const dlc_solver_needs *needs = &solver->needs;
    for (int32_t i = 0; i < solver->slots; i++) {
        if (!is_known_name(needs->slot_name[i]))
            return fail_plugin(solver, "does not name all of its slots");
        if (strcmp(needs->slot_name[i], DLC_EMA_NAME) == 0)
            return fail_plugin(solver, "calls a slot " DLC_EMA_NAME
                                       ", as the average of the weights");
        if (!isfinite(needs->slot_initial[i]))
            return fail_plugin(solver, "begins with a slot that is not finite");
        for (int32_t j = 0; j < i; j++)
            if (strcmp(needs->slot_name[i], needs->slot_name[j]) == 0)
                return fail_plugin(solver, "gives two slots the same name");
    }
    return DLC_OK;
}

static int is_rule(const dlc_rule *rule) {
    return DLC_HAS(rule, run) && rule->run && rule->slots >= 0 &&
           rule->slots <= DLC_MAX_SLOTS;
}

static dlc_status check_norms(const dlc_solver *solver) {
    const dlc_solver_needs *needs = &solver->needs;
    if (needs->norms > DLC_NORMS_SLOT)
        return fail_plugin(solver, "asks for norms that this version does not know");
    if (needs->norms == DLC_NORMS_SLOT &&
        (needs->norm_slot < 0 || needs->norm_slot >= solver->slots))
        return fail_plugin(solver, "asks for the norm of a slot that it does not have");
    if (needs->norms == DLC_NORMS_SLOT && needs->slot_initial[needs->norm_slot] != 0)
        return fail_plugin(solver, "asks for the norm of a slot that begins with more "
                                   "than 0");
    if (needs->direction && needs->norms != DLC_NORMS_SLOT)
        return fail_plugin(solver, "has a direction but takes no norm of it");
    if (needs->direction &&
        (!is_rule(needs->direction) || needs->direction->slots != solver->slots))
        return fail_plugin(solver, "has a direction with other slots than its rule");
    return DLC_OK;
}

static int has_number(const dlc_option *option, const char *name) {
    for (; option && option->name; option++)
        if (strcmp(option->name, name) == 0)
            return option->type == DLC_OPT_FLOAT;
    return 0;
}

static dlc_status check_momentum_option(const dlc_solver *solver,
                                        const dlc_option *options) {
    const char *momentum = solver->needs.momentum;
    if (momentum && !has_number(options, momentum))
        return fail_plugin(solver, "has no number among its options that is called as "
                                   "it says its momentum is");
    if (momentum || !dlc_settings_get_bool(solver->settings, "cycle_momentum"))
        return DLC_OK;
    return dlc_fail(DLC_ERR_CONFIG,
                    "%s: solver '%s' has no momentum with these settings, which could "
                    "cycle; remove cycle_momentum",
                    dlc_settings_where(solver->settings, "cycle_momentum"),
                    solver->name);
}

static dlc_status check_needs(const dlc_solver *solver) {
    if (!is_rule(solver->needs.rule))
        return fail_plugin(solver, "has no rule for these settings");
    DLC_TRY(check_slots(solver));
    return check_norms(solver);
}

/* The norms of the gradient are those of the clipped one, which only clipping by norm
 * gives without another pass over all gradients. */
static dlc_status check_clipping(const dlc_solver *solver) {
    const dlc_settings *settings = solver->settings;
    if (solver->needs.norms != DLC_NORMS_GRADIENT || isinf(solver->clip_value))
        return DLC_OK;
    return dlc_fail(
        DLC_ERR_CONFIG,
        "%s: clip_value doesn't work with solver '%s', which takes the norm "
        "of each tensor's gradient; use clip_gradients",
        dlc_settings_where(settings, "clip_value"), solver->name);
}

static void take_settings(dlc_solver *solver) {
    const dlc_settings *settings = solver->settings;
    solver->plateau = dlc_lr_plateau_make(settings);
    double clip_value = dlc_settings_get_float(settings, "clip_value");
    solver->clip_value = clip_value > 0 ? clip_value : (double)INFINITY;
    solver->clip_norm = dlc_settings_get_float(settings, "clip_gradients");
    solver->weight_decay = dlc_settings_get_float(settings, "weight_decay");
    solver->ema = dlc_settings_get_float(settings, "ema");
    solver->l1_decay = dlc_settings_get_float(settings, "l1_decay");
    solver->accumulation_steps = (int32_t)dlc_settings_get_int(settings,
                                                               "accumulation_steps");
}

dlc_status dlc_solver_make(const dlc_feature *feature, const dlc_settings *settings,
                           dlc_solver *solver) {
    dlc_solver made = {.name = feature->name,
                       .ops = feature->ops,
                       .settings = settings,
                       .needs = {.size = sizeof made.needs}};
    DLC_TRY(dlc_lr_policy_check(settings));
    DLC_TRY(made.ops->needs(settings, &made.needs));
    made.slots = made.needs.rule ? made.needs.rule->slots : 0;
    DLC_TRY(check_needs(&made));
    DLC_TRY(check_momentum_option(&made, feature->options));
    take_settings(&made);
    DLC_TRY(check_clipping(&made));
    *solver = made;
    return DLC_OK;
}

dlc_status dlc_solver_set_schedule(dlc_solver *solver, const dlc_lr_job *job) {
    return dlc_lr_policy_make(solver->settings, job, &solver->policy);
}

double dlc_solver_learning_rate(const dlc_solver *solver, int64_t iteration) {
    return dlc_lr_policy_rate(&solver->policy, iteration) * solver->plateau.factor;
}

/* Momentum that cycles takes the place of the setting. */
static dlc_status ask_values(const dlc_solver *solver, int64_t iteration,
                             dlc_rule_values *values) {
    if (!DLC_CAN(solver->ops, values))
        return DLC_OK;
    if (!solver->policy.cycles_momentum)
        return solver->ops->values(solver->settings, iteration, values);
    double momentum = dlc_lr_policy_momentum(&solver->policy, iteration);
    dlc_settings *settings = dlc_settings_with(solver->settings, solver->needs.momentum,
                                               momentum);
    dlc_status status = settings ? solver->ops->values(settings, iteration, values)
                                 : DLC_ERR_NOMEM;
    dlc_free(settings);
    return status;
}

dlc_status dlc_solver_values(const dlc_solver *solver, int64_t iteration,
                             dlc_rule_values *values) {
    dlc_rule_values made = {
        .learning_rate = (float)dlc_solver_learning_rate(solver, iteration),
        .weight_decay = (float)solver->weight_decay,
        .l1_decay = (float)solver->l1_decay,
        .clip_value = (float)solver->clip_value};
    DLC_TRY(ask_values(solver, iteration, &made));
    *values = made;
    return DLC_OK;
}

int dlc_solver_needs_whole_tensors(const dlc_solver *solver) {
    return solver->clip_norm > 0 || solver->needs.norms != DLC_NORMS_NONE;
}

const char *dlc_solver_whole_reason(const dlc_solver *solver) {
    if (solver->clip_norm > 0)
        return "clip_gradients";
    return solver->needs.norms ? "the norm of each tensor" : NULL;
}
