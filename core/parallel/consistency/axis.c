/* Consistency models that let ranks be in different iterations: what they cannot be
 * combined with, the buckets that suit them, synchronization, statistics. */
#include "parallel/consistency/axis.h"

#include "base/log.h"
#include "base/memory.h"
#include "parallel/consistency/reload.h"
#include "parallel/consistency/staleness.h"
#include "plugin/answers.h"
#include "session/exchange_schedule.h"
#include "session/session.h"

/* The state of the axis. */
typedef struct consistency {
    int64_t synchronized; /* iteration after which all ranks last had equal weights */
    dlc_consistency_stats earlier; /* of models that were closed */
    dlc_staleness staleness;       /* of all ranks, once it is reported */
} consistency;

/* ---- Opening ------------------------------------------------------------------- */

static int is_wanted(const dlc_session *session) {
    return dlc_setup_has_consistency_plugin(session->setup);
}

static dlc_status check(const dlc_axis *axis) {
    const dlc_session *session = axis->session;
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

static dlc_status plan(dlc_axis *axis) {
    if (!is_wanted(axis->session))
        return DLC_OK;
    axis->state = dlc_alloc(1, sizeof(consistency));
    axis->in_use = axis->state != NULL;
    return axis->state ? DLC_OK : DLC_ERR_NOMEM;
}

/* With a p2p channel of its own, each rank goes on as soon as it may. Buckets are small
 * enough to be in flight while backward makes the next, and large enough that their
 * transfer takes longer than waking up the receiver. */
static int choose_exchange(const dlc_axis *axis, const dlc_param_set *set,
                           dlc_exchange_schedule *chosen) {
    enum { PARTS = 8, LEAST = 1 << 20, MOST = 4 << 20 };
    const dlc_session *session = axis->session;
    size_t part = set->arenas->count * sizeof(float) / PARTS;
    size_t bucket = (size_t)dlc_settings_get_int(session->setup->transport_settings,
                                                 "bucket_bytes");
    if (bucket == 0)
        bucket = part < LEAST ? LEAST : part > MOST ? MOST : part;
    int overlap_forward = dlc_session_may_defer(session);
    if (session->rank == 0)
        dlc_info(
            "%sbuckets of %.2f MB%s",
            session->needs.allows_skew ? "ranks may be in different iterations; " : "",
            (double)bucket / 1e6,
            overlap_forward ? "; forward overlaps the rest of the communication" : "");
    *chosen = (dlc_exchange_schedule){.bucket_bytes = bucket,
                                      .overlap_forward = overlap_forward};
    return 1;
}

static dlc_status start(dlc_axis *axis) {
    consistency *state = axis->state;
    state->synchronized = axis->session->iteration;
    return DLC_OK;
}

/* ---- Running ------------------------------------------------------------------- */

/* Waits until all ranks are after this iteration, with the same weights; nothing is in
 * flight then. */
static dlc_status synchronize(dlc_axis *axis) {
    dlc_session *session = axis->session;
    consistency *state = axis->state;
    if (state->synchronized == session->iteration)
        return DLC_OK;
    dlc_job_activity(session->job, "synchronization by",
                     session->setup->consistency->name, 0);
    DLC_EACH_PARAM_SET(session, set)
    DLC_TRY(
        DLC_ASK(session->consistency_ops, "synchronize",
                session->consistency_ops->synchronize(set->model, session->iteration)));
    state->synchronized = session->iteration;
    return DLC_OK;
}

static dlc_status keep(dlc_axis *axis) {
    consistency *state = axis->state;
    dlc_consistency_stats now;
    DLC_TRY(dlc_staleness_read(axis->session, &state->earlier, &now));
    state->earlier = now;
    return DLC_OK;
}

/* ---- Reporting ----------------------------------------------------------------- */

static void progress(const dlc_axis *axis, dlc_json *json) {
    const consistency *state = axis->state;
    dlc_consistency_stats now;
    if (dlc_staleness_is_known(axis->session) &&
        dlc_staleness_read(axis->session, &state->earlier, &now) == DLC_OK)
        dlc_staleness_rank_json(&now, json);
}

/* Each rank has its own throughput: that of the job is what all replicas process. */
static dlc_status sum_throughput(const dlc_session *session, double *images_per_s) {
    double mine = *images_per_s * (double)session->local_batch /
                  (double)session->global_batch;
    const dlc_replicas *replicas = &session->set[DLC_PARAMS_WHOLE].replicas;
    double *all = dlc_alloc((size_t)session->ranks, sizeof *all), sum = 0;
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_all_gather(session->job, &mine, sizeof mine, all);
    for (int32_t i = 0; status == DLC_OK && i < replicas->ranks.ranks; i++)
        sum += all[dlc_replicas_rank(replicas, i)];
    dlc_free(all);
    if (status == DLC_OK)
        *images_per_s = sum;
    return status;
}

static dlc_status report(dlc_axis *axis, double *images_per_s) {
    const dlc_session *session = axis->session;
    consistency *state = axis->state;
    dlc_consistency_stats mine;
    DLC_TRY(sum_throughput(session, images_per_s));
    if (!dlc_staleness_is_known(session))
        return DLC_OK;
    DLC_TRY(dlc_staleness_read(session, &state->earlier, &mine));
    DLC_TRY(dlc_staleness_gather(session, &mine, &state->staleness));
    if (session->rank == 0)
        dlc_staleness_log(&state->staleness);
    return DLC_OK;
}

static void json(const dlc_axis *axis, dlc_json *json) {
    const consistency *state = axis->state;
    if (state)
        dlc_staleness_json(&state->staleness, json);
}

static void close(dlc_axis *axis) {
    consistency *state = axis->state;
    if (state)
        dlc_staleness_free(&state->staleness);
    dlc_free(state);
}

/* Whose gradients and weights are in which iteration differs from rank to rank, so no
 * reduction can be split among them. */
const dlc_axis_ops dlc_consistency_axis = {
    .name = "consistency",
    .rules_out = DLC_ALLOW_SHARDS | DLC_ALLOW_COLLECTIVE,
    .capture_obstacle = "the ranks may be in different iterations",
    .check = check,
    .plan = plan,
    .start = start,
    .choose_exchange = choose_exchange,
    .synchronize = synchronize,
    .reload = dlc_consistency_reload,
    .progress = progress,
    .report = report,
    .json = json,
    .keep = keep,
    .close = close};
