/* Plugin entry of solver ssp, stochastic gradient descent with bounded staleness:
 * options, capabilities, and the calls that are only a few lines. ssp.h has the
 * overview. */
#include <math.h>

#include "ssp.h"

const dlc_host *host;

static dlc_status ssp_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static dlc_status check_settings(const dlc_settings *settings) {
    int64_t staleness;
    dlc_status status = policy_check(host, settings);
    if (status == DLC_OK)
        status = staleness_of(settings, &staleness);
    if (status != DLC_OK)
        return status;
    if (host->get_float(settings, "clip_gradients") > 0)
        return host->fail(DLC_ERR_CONFIG,
                          "%s: clip_gradients needs the length of the whole gradient, "
                          "which no rank has with solver ssp; use solver sgd",
                          host->where(settings, "clip_gradients"));
    return DLC_OK;
}

static dlc_status ssp_needs(const dlc_settings *settings, dlc_solver_needs *needs) {
    dlc_status status = check_settings(settings);
    if (status != DLC_OK)
        return status;
    if (!DLC_HAS(needs, servers))
        return host->fail(
            DLC_ERR_UNSUPPORTED,
            "solver ssp needs a p2p channel, which this version of dlcore "
            "doesn't give to solvers; use a newer one");
    needs->accumulation_steps = (int32_t)host->get_int(settings, "accumulation_steps");
    needs->slots = needs->accumulation_steps > 1 ? SLOTS : 1;
    needs->slot_name[SLOT_MOMENTUM] = "momentum";
    needs->slot_saved = 1u << SLOT_MOMENTUM;
    if (needs->accumulation_steps > 1)
        needs->slot_name[SLOT_SUM] = "sum"; /* not saved: empty between iterations */
    needs->deferred_update = 1;
    needs->p2p_channel = 1;
    needs->servers = (int32_t)host->get_int(settings, "servers");
    if (DLC_HAS(needs, allows_skew))
        needs->allows_skew = host->get_float(settings, "staleness") > 0;
    return DLC_OK;
}

static double ssp_learning_rate(dlc_solver *solver, int64_t iteration) {
    return policy_learning_rate(&solver->policy, iteration);
}

static dlc_status ssp_finish(dlc_solver *solver, int64_t iteration) {
    dlc_status status = DLC_OK;
    /* Forward reads the weights of the last buckets first. */
    for (int32_t b = solver->buckets - 1; status == DLC_OK && b >= 0; b--)
        status = worker_update(solver, iteration, b);
    return status;
}

/* Only staleness may change in a running job. */
static dlc_status ssp_configure(dlc_solver *solver, const dlc_settings *settings) {
    int64_t staleness;
    dlc_status status = staleness_of(settings, &staleness);
    if (status == DLC_OK)
        solver->staleness = staleness;
    return status;
}

static dlc_status ssp_stats(dlc_solver *solver, dlc_solver_stats *stats) {
    uint32_t size = stats->size;
    if (size < sizeof *stats)
        return host->fail(DLC_ERR_INTERNAL,
                          "a dlc_solver_stats of %u bytes is too small", size);
    *stats = solver->stats;
    stats->size = size;
    stats->slowest = -1;
    for (int32_t w = 0; w < solver->workers && !solver->alone; w++)
        if (solver->waited_for[w] > stats->slowest_wait_seconds) {
            stats->slowest = w;
            stats->slowest_wait_seconds = solver->waited_for[w];
        }
    return DLC_OK;
}

static const dlc_option options[] = {
    DLC_OPTION("staleness", DLC_OPT_FLOAT, DLC_OPT_LIVE, "0", 0, (double)INFINITY, NULL,
               "iterations that a rank may be ahead of the slowest rank's updates; "
               "0: synchronous, inf: no bound"),
    DLC_INT("servers", "0", 0, 4096,
            "how many ranks, the last ones, are dedicated parameter servers; "
            "0: every rank computes and serves its part of the weights"),
    DLC_INT("groups", NULL, 1, 4096,
            "how many groups of neighbouring ranks are synchronous inside and stale to "
            "each other; default: every rank is a group"),
    POLICY_OPTIONS,
    MOMENTUM_OPTIONS,
    DLC_FLOAT("clip_gradients", "0", 0, 1e30,
              "must be 0; accepted so that settings of sgd can be used"),
    DLC_PATH("trace", NULL,
             "each rank writes its updates, answers and reads to this file, with its "
             "rank appended to the name"),
    DLC_OPTIONS_END,
};

static dlc_status ssp_check_schedule(const dlc_settings *settings, int64_t iterations,
                                     int64_t epoch_iterations, char *warning,
                                     size_t bytes) {
    return policy_check_schedule(host, settings, iterations, epoch_iterations, warning,
                                 bytes);
}

static const dlc_solver_ops ops = {
    .size = sizeof ops,
    .needs = ssp_needs,
    .create = ssp_create,
    .destroy = ssp_destroy,
    .learning_rate = ssp_learning_rate,
    .ready = worker_ready,
    .finish = ssp_finish,
    .update = worker_update,
    .synchronize = ssp_synchronize,
    .configure = ssp_configure,
    .stats = ssp_stats,
    .check_schedule = ssp_check_schedule,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_SOLVER,
     .name = "ssp",
     .help = "stochastic gradient descent with momentum and bounded staleness",
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

const dlc_plugin dlc_plugin_v0 = {
    .size = sizeof(dlc_plugin),
    .abi_minor = DLC_ABI_MINOR,
    .name = "ssp",
    .version = DLC_VERSION,
    .license = "BSD-2-Clause",
    .features = features,
    .load = ssp_load,
};
