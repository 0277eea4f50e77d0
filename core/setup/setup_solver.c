/* Checks the solver and the consistency model with their settings, and the learning
 * rates over the whole job; called by dlc_setup_open. */
#include "plugin/answers.h"
#include "setup/setup_checks.h"
#include "solver/solver.h"
#include "solver/synchronous.h"

/* What the learning rates depend on; lengths of 0 are unknown, since no data is open.
 */
static dlc_lr_job job_of(const dlc_setup *setup, int32_t servers,
                         int32_t accumulation_steps) {
    dlc_setup with_servers = *setup;
    with_servers.servers = servers < setup->ranks ? servers : 0;
    int64_t step = dlc_setup_global_batch(&with_servers) * accumulation_steps;
    int64_t samples = setup->train.source ? setup->train.info.samples : 0;
    int64_t of_epoch = step > 0 ? (samples + step - 1) / step : 0;
    return (dlc_lr_job){.max_iterations = setup->iterations >= 0
                                              ? setup->iterations
                                              : setup->epochs * of_epoch,
                        .epoch_iterations = of_epoch,
                        .batch = setup->train.batch,
                        .effective_batch = step};
}

static dlc_status check_schedule(const dlc_setup *setup, const dlc_solver *solver,
                                 int32_t servers, dlc_problems *problems) {
    const dlc_settings *settings = setup->solver_settings;
    char warning[512] = "";
    dlc_lr_job job = job_of(setup, servers, solver->accumulation_steps);
    if (job.max_iterations < 1 || job.epoch_iterations < 1)
        return DLC_OK;
    DLC_TRY(dlc_lr_policy_check_job(settings, &job, warning, sizeof warning));
    if (warning[0])
        dlc_problems_warn_text(problems, setup->config,
                               dlc_settings_line(settings, "type"), "solver", warning);
    return DLC_OK;
}

/* Reports a failure, which is one of the settings unless memory ran out. */
static dlc_status report_solver_mistake(const dlc_setup *setup,
                                        const dlc_settings *settings,
                                        const char *section, dlc_status status,
                                        dlc_problems *problems) {
    if (status == DLC_OK || status == DLC_ERR_NOMEM)
        return status;
    dlc_problems_add_failure(problems, setup->config,
                             dlc_settings_line(settings, "type"), section, status);
    return DLC_OK;
}

static dlc_status check_consistency_section(const dlc_setup *setup,
                                            dlc_problems *problems, int32_t *servers) {
    dlc_consistency_needs needs = {.size = sizeof needs};
    if (setup->consistency_broken)
        return DLC_OK;
    const dlc_consistency_ops *ops = setup->consistency->ops;
    dlc_status status = DLC_ASK(ops, "needs",
                                ops->needs(setup->consistency_settings, &needs));
    if (status == DLC_OK)
        *servers = needs.servers;
    return report_solver_mistake(setup, setup->consistency_settings, "consistency",
                                 status, problems);
}

/* The results of tests decide on the learning rate. */
static void check_plateau(const dlc_setup *setup, const dlc_solver *solver,
                          dlc_problems *problems) {
    if (solver->plateau.is_used && !setup->test.present)
        dlc_problems_add(
            problems, setup->config,
            dlc_settings_line(setup->solver_settings, "policy"),
            "[solver] policy = plateau follows the loss of tests, and there "
            "is no [data.test]");
}

int dlc_setup_has_consistency_plugin(const dlc_setup *setup) {
    return setup->consistency != &dlc_synchronous_feature;
}

/* With bounded staleness the ranks have different weights. */
static void check_average(const dlc_setup *setup, const dlc_solver *solver,
                          dlc_problems *problems) {
    const dlc_settings *run = setup->train_settings;
    if (solver->ema > 0 && !setup->consistency_broken &&
        dlc_setup_has_consistency_plugin(setup))
        dlc_problems_add(problems, setup->config,
                         dlc_settings_line(setup->solver_settings, "ema"),
                         "[solver] ema needs ranks that have the same weights; set "
                         "[consistency] type = synchronous");
    if (solver->ema <= 0 && run && dlc_settings_get_bool(run, "test_ema"))
        dlc_problems_add(problems, setup->config, dlc_settings_line(run, "test_ema"),
                         "[train] test_ema = yes needs an average of the weights; set "
                         "[solver] ema");
}

static void check_overlap(const dlc_setup *setup, const dlc_solver *solver,
                          dlc_problems *problems) {
    const dlc_settings *transport = setup->transport_settings;
    const char *reason = dlc_solver_whole_reason(solver);
    if (reason && transport && dlc_settings_is(transport, "overlap_forward", "yes"))
        dlc_problems_add(problems, setup->config,
                         dlc_settings_line(transport, "overlap_forward"),
                         "[transport] overlap_forward = yes doesn't work with [solver] "
                         "type = %s, which needs %s: the first update needs the last "
                         "gradient; leave it out",
                         solver->name, reason);
}

dlc_status dlc_setup_check_solver(dlc_setup *setup, dlc_problems *problems) {
    int32_t servers = 0;
    dlc_solver *solver = &setup->checked_solver;
    DLC_TRY(check_consistency_section(setup, problems, &servers));
    if (!setup->solver || !setup->solver_settings || setup->solver_broken)
        return DLC_OK;
    dlc_status status = DLC_ASK(
        setup->solver->ops, "needs",
        dlc_solver_make(setup->solver, setup->solver_settings, solver));
    if (status == DLC_OK) {
        check_plateau(setup, solver, problems);
        check_average(setup, solver, problems);
        check_overlap(setup, solver, problems);
    }
    if (status == DLC_OK)
        status = check_schedule(setup, solver, servers, problems);
    return report_solver_mistake(setup, setup->solver_settings, "solver", status,
                                 problems);
}
