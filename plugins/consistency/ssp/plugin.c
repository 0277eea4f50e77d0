/* Plugin entry of consistency model ssp, bounded staleness: options, and the calls that
 * are only a few lines. ssp.h has the overview. */
#include <math.h>

#include "ssp.h"

const dlc_host *host;

static dlc_status ssp_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static dlc_status ssp_needs(const dlc_settings *settings,
                            dlc_consistency_needs *needs) {
    int64_t staleness;
    dlc_status status = staleness_of(settings, &staleness);
    if (status != DLC_OK)
        return status;
    needs->p2p_channel = 1;
    needs->servers = (int32_t)host->get_int(settings, "servers");
    needs->deferred_update = 1;
    needs->allows_skew = staleness > 0;
    return DLC_OK;
}

static dlc_status ssp_finish(dlc_consistency *model, int64_t iteration) {
    dlc_status status = DLC_OK;
    if (lockstep_is_used(model))
        return lockstep_finish(model, iteration);
    /* Forward reads the weights of the last buckets first. */
    for (int32_t b = model->buckets - 1; status == DLC_OK && b >= 0; b--)
        status = worker_update(model, iteration, b);
    return status;
}

/* Only staleness may change in a running job. */
static dlc_status ssp_configure(dlc_consistency *model, const dlc_settings *settings) {
    int64_t staleness;
    dlc_status status = staleness_of(settings, &staleness);
    if (status == DLC_OK && model->updater->needs_norms &&
        (staleness == 0) != (model->staleness == 0))
        return host->fail(
            DLC_ERR_CONFIG,
            "%s: with a solver that takes norms, staleness cannot change to "
            "or from 0 while the job runs; stop it, and resume it with the "
            "new value",
            host->where(settings, "staleness"));
    if (status == DLC_OK)
        status = steps_alloc(model, staleness);
    if (status == DLC_OK)
        model->staleness = staleness;
    return status;
}

static dlc_status ssp_stats(dlc_consistency *model, dlc_consistency_stats *stats) {
    uint32_t size = stats->size;
    if (size < sizeof *stats)
        return host->fail(DLC_ERR_INTERNAL,
                          "a dlc_consistency_stats of %u bytes is too small", size);
    *stats = model->stats;
    stats->size = size;
    stats->slowest = -1;
    for (int32_t w = 0; w < model->workers && !model->alone; w++)
        if (model->waited_for[w] > stats->slowest_wait_seconds) {
            stats->slowest = w;
            stats->slowest_wait_seconds = model->waited_for[w];
        }
    return DLC_OK;
}

/* As create.c and steps.c allocate it. */
static dlc_status ssp_memory(const dlc_settings *settings,
                             const dlc_consistency_extent *extent, uint64_t *bytes) {
    int32_t servers = (int32_t)host->get_int(settings, "servers");
    int is_worker = extent->share > 0, owns = servers == 0 || !is_worker;
    double part = !owns ? 0 : servers ? 1.0 / servers : extent->share;
    double trained = (double)extent->trained, own = part * trained, floats = trained;
    int64_t staleness = 0, groups = 0;
    dlc_status status = staleness_of(settings, &staleness);
    if (status == DLC_OK)
        status = groups_of(settings, extent->ranks - servers, &groups);
    if (status != DLC_OK)
        return status;
    if (staleness > 0 && is_worker)
        floats += trained; /* steps */
    /* Messages of the others, the owner's weights and slots; a sum. */
    floats += own * (extent->ranks + extent->slots);
    floats += part * (double)extent->largest;
    *bytes = extent->ranks > 1 ? (uint64_t)(floats * sizeof(float)) : 0;
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
    DLC_PATH("trace", NULL,
             "each rank writes its updates, answers and reads to this file, with its "
             "rank appended to the name"),
    DLC_OPTIONS_END,
};

static const dlc_consistency_ops ops = {
    .size = sizeof ops,
    .needs = ssp_needs,
    .create = ssp_create,
    .destroy = ssp_destroy,
    .ready = worker_ready,
    .finish = ssp_finish,
    .update = worker_update,
    .synchronize = ssp_synchronize,
    .configure = ssp_configure,
    .stats = ssp_stats,
    .memory = ssp_memory,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_CONSISTENCY,
     .name = "ssp",
     .help = "bounded staleness: a rank computes with weights that may lack the newest "
             "updates of other ranks",
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("ssp", DLC_VERSION, "BSD-2-Clause", features, ssp_load);
