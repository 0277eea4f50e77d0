/* Refuses, opens, synchronizes and closes the consistency of ranks in different
 * iterations. */
#include "parallel/staleness/staleness.h"

#include "base/memory.h"
#include "plugin/answers.h"

static int is_wanted(const dlc_session *session) {
    return dlc_setup_has_consistency_plugin(session->setup);
}

dlc_status dlc_staleness_check(const dlc_session *session) {
    int32_t servers = session->needs.servers;

    if (servers < 0 || servers >= session->ranks)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "[consistency] needs %d server%s, but there %s %d rank%s, and at least one "
            "must compute: start more ranks, or set fewer servers",
            servers, servers == 1 ? "" : "s", session->ranks == 1 ? "is" : "are",
            session->ranks, session->ranks == 1 ? "" : "s");
    if (is_wanted(session) &&
        dlc_settings_is(session->setup->transport_settings, "shard_optimizer", "yes"))
        return dlc_fail(
            DLC_ERR_CONFIG,
            "%s: with consistency '%s', whose staleness may change while the job runs, "
            "each rank makes steps of its own for all weights and needs all of the "
            "solver's state for that; remove shard_optimizer, or set [consistency] type "
            "= synchronous",
            dlc_settings_where(session->setup->transport_settings, "shard_optimizer"),
            session->setup->consistency->name);
    return DLC_OK;
}

/* Whose gradients and weights are in which iteration differs from rank to rank, so no
 * reduction can be split among them. */
dlc_status dlc_staleness_plan(dlc_session *session) {
    if (!is_wanted(session))
        return DLC_OK;
    dlc_staleness *staleness = dlc_alloc(1, sizeof *staleness);
    if (!staleness)
        return DLC_ERR_NOMEM;
    staleness->session = session;
    session->staleness = staleness; /* freed when the session is closed */
    session->rules_out |= DLC_ALLOW_SHARDS | DLC_ALLOW_COLLECTIVE;
    return DLC_OK;
}

void dlc_staleness_start(dlc_staleness *staleness) {
    staleness->synchronized = staleness->session->iteration;
}

dlc_status dlc_staleness_synchronize(dlc_staleness *staleness) {
    const dlc_session *session = staleness->session;
    if (staleness->synchronized == session->iteration)
        return DLC_OK;
    dlc_job_activity(session->job, "synchronization by",
                     session->setup->consistency->name, 0);
    DLC_EACH_PARAM_SET(session, set)
    DLC_TRY(
        DLC_ASK(session->consistency_ops, "synchronize",
                session->consistency_ops->synchronize(set->model, session->iteration)));
    staleness->synchronized = session->iteration;
    return DLC_OK;
}

dlc_status dlc_staleness_keep(dlc_staleness *staleness) {
    dlc_consistency_stats now;
    DLC_TRY(dlc_staleness_read(staleness, &now));
    staleness->earlier = now;
    return DLC_OK;
}

void dlc_staleness_close(dlc_staleness *staleness) {
    if (staleness)
        dlc_free(staleness->report.waited);
    dlc_free(staleness);
}
