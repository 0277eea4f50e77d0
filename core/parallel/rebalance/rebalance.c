/* Measures throughput during training, and splits the batch by it. */
#include "parallel/rebalance/rebalance.h"

#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "parallel/rebalance/throughput.h"
#include "session/param_sets.h"
#include "topology/quota.h"

/* ---- Before training ------------------------------------------------------------- */

/* Is the split to follow the measurements, or was it left open? The ranks of a tensor
 * group have equal parts of its samples, so there must be several groups, or ranks. */
dlc_status dlc_rebalance_plan(dlc_session *session) {
    const dlc_batch_split *split = &session->setup->batch_split;
    int is_open = split->is_default && session->needs.allows_skew;
    if (split->is_auto && session->mesh.tensor > 1 && session->rank == 0 &&
        dlc_mesh_data(&session->mesh) == 1)
        dlc_info(
            "batch_split = auto: the ranks of a tensor group wait for each other inside "
            "of its layers, and there is only one: they have equal parts");
    if (dlc_mesh_data(&session->mesh) == 1 || !(split->is_auto || is_open))
        return DLC_OK;
    session->rebalance = dlc_alloc(1, sizeof *session->rebalance);
    if (!session->rebalance)
        return DLC_ERR_NOMEM;
    session->rebalance->session = session;
    return DLC_OK;
}

/* A stage of a pipeline, or a rank of a tensor group, cannot run alone: they are
 * measured in the first iterations. */
static int runs_alone(const dlc_session *session) {
    return session->mesh.pipeline == 1 && session->mesh.tensor == 1;
}

int dlc_rebalance_measures_first(const dlc_rebalance *rebalance) {
    const dlc_session *session = rebalance->session;
    return session->setup->batch_split.is_auto && runs_alone(session);
}

/* ---- Comparing ------------------------------------------------------------------- */

/* ENOUGH: iterations that make a measurement. MOST: the most between two comparisons if
 * ranks may be ahead of each other. FIRST: iterations that are not measured because
 * they set up memory and caches. */
enum { ENOUGH = 20, MOST = 320, FIRST = 3 };

/* Seconds that this rank has waited for others since the session was opened. */
static double waited_for_others(const dlc_session *session, double waited) {
    dlc_consistency_stats stats = {.size = sizeof stats};
    waited += dlc_param_sets_exchanged(session).waited;
    if (DLC_CAN(session->consistency_ops, stats) &&
        session->consistency_ops->stats(session->set[DLC_PARAMS_WHOLE].model, &stats) ==
            DLC_OK)
        waited += stats.wait_seconds;
    return waited;
}

/* Where iterations are queued, only some are measured, and only if that was asked for:
 * they wait for the queue. */
static int is_measured(const dlc_session *session, const dlc_rebalance *measured) {
    if (dlc_session_async_queue(session))
        return session->setup->batch_split.is_auto && measured->iterations < ENOUGH;
    return session->setup->batch_split.is_auto ||
           dlc_session_allows(session, DLC_ALLOW_REBALANCE);
}

void dlc_rebalance_begin_iteration(dlc_rebalance *measured) {
    dlc_session *session = measured->session;
    session->is_timed = is_measured(session, measured);
    measured->began = dlc_now_ns();
    measured->cpu_began = dlc_cpu_seconds();
}

void dlc_rebalance_end_iteration(dlc_rebalance *measured, double computed,
                                 double waited) {
    measured->passed++;
    if (!measured->session->is_timed)
        return;
    if (measured->first < FIRST) {
        if (++measured->first == FIRST)
            measured->waited = waited_for_others(measured->session, waited);
        return;
    }
    measured->spent += dlc_since(measured->began);
    measured->computed += computed;
    measured->cpu += dlc_cpu_seconds() - measured->cpu_began;
    measured->iterations++;
}

/* Is it time to compare, after the session's iteration? Equal on all ranks. */
static int is_rebalance_due(const dlc_rebalance *measured, const dlc_session *session) {
    if (measured->iterations < ENOUGH || session->iteration >= session->max_iterations)
        return 0;
    return session->needs.allows_skew || !runs_alone(session)
               ? measured->passed >= measured->interval
               : session->iteration % session->epoch_iterations == 0;
}

/* How much longer work of `busy` seconds would take without idle time between: a cgroup
 * CPU quota that is not used while a rank waits for others is used afterwards, which
 * makes the rank look faster than it is when it never waits. */
static double quota_slowdown(const dlc_rebalance *measured, double busy) {
    double quota = dlc_quota_cores("");
    double needed = quota > 0 ? measured->cpu / quota : 0;
    return needed > busy ? needed / busy : 1;
}

/* Times are bounded below, so that no throughput is infinite. */
static dlc_rank_throughput throughput_of(const dlc_rebalance *measured,
                                         const dlc_session *session, double waited) {
    double iterations = (double)measured->iterations;
    double samples = (double)(session->local_batch * session->accumulation_steps) *
                     iterations;
    double computed = fmax(measured->computed, measured->spent / 1000);
    double beside = fmax(measured->spent - (waited - measured->waited) - computed, 0);
    if (dlc_session_async_queue(session))
        beside = 0; /* most of it, the queue waits for others */
    double longer = quota_slowdown(measured, computed + beside);
    return (dlc_rank_throughput){.samples_per_s = samples / (longer * computed),
                                 .fixed_seconds = longer * beside / iterations};
}

dlc_status dlc_rebalance_compare(dlc_rebalance *measured, double waited, int *changed) {
    dlc_session *session = measured->session;
    *changed = 0;
    if (!is_rebalance_due(measured, session))
        return DLC_OK;
    dlc_job_activity(session->job, "comparing throughput", NULL, 0);
    waited = waited_for_others(session, waited);
    DLC_TRY(dlc_throughput_balance(session, throughput_of(measured, session, waited),
                                   measured->spent / (double)measured->iterations,
                                   changed));
    int64_t interval = 2 * (measured->interval > ENOUGH ? measured->interval : ENOUGH);
    *measured = (dlc_rebalance){.session = session,
                                .first = *changed ? 0 : FIRST,
                                .waited = waited,
                                .interval = interval < MOST ? interval : MOST};
    return DLC_OK;
}
