/* Checks the solver's settings and the learning rates over the whole job; called by
 * dlc_setup_open. */
#include "train/setup_checks.h"

/* Iterations of the job and of an epoch; 0: unknown, since no data is open. */
static int64_t iterations_of(const dlc_setup *setup, const dlc_solver_needs *needs,
                             int64_t *of_epoch) {
    dlc_setup with_servers = *setup;
    with_servers.servers = needs->servers < setup->ranks ? needs->servers : 0;
    int64_t step = dlc_setup_global_batch(&with_servers) * needs->accumulation_steps;
    int64_t samples = setup->train.source ? setup->train.info.samples : 0;
    *of_epoch = step > 0 ? (samples + step - 1) / step : 0;
    return setup->iterations >= 0 ? setup->iterations : setup->epochs * *of_epoch;
}

/* Checks the learning-rate schedule, if the solver can. */
static dlc_status check_schedule(const dlc_setup *setup, const dlc_solver_ops *ops,
                                 const dlc_solver_needs *needs,
                                 dlc_problems *problems) {
    const dlc_settings *settings = setup->solver_settings;
    char warning[512] = "";
    int64_t of_epoch, iterations = iterations_of(setup, needs, &of_epoch);
    if (!DLC_CAN(ops, check_schedule) || iterations < 1 || of_epoch < 1)
        return DLC_OK;
    DLC_TRY(
        ops->check_schedule(settings, iterations, of_epoch, warning, sizeof warning));
    if (warning[0])
        dlc_problems_warn_text(problems, setup->config,
                               dlc_settings_line(settings, "type"), "solver", warning);
    return DLC_OK;
}

dlc_status dlc_setup_check_solver(const dlc_setup *setup, dlc_problems *problems) {
    const dlc_settings *settings = setup->solver_settings;
    dlc_solver_needs needs = {.size = sizeof needs, .accumulation_steps = 1};
    if (!setup->solver || !settings || setup->solver_broken)
        return DLC_OK;
    const dlc_solver_ops *ops = setup->solver->ops;
    dlc_status status = ops->needs(settings, &needs);
    if (status == DLC_OK)
        status = check_schedule(setup, ops, &needs, problems);
    if (status == DLC_OK || status == DLC_ERR_NOMEM)
        return status;
    dlc_problems_add_failure(problems, setup->config,
                             dlc_settings_line(settings, "type"), "solver", status);
    return DLC_OK;
}
