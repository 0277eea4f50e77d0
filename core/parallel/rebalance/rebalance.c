/* Measures throughput before and during training, and moves the state of a session over
 * to a new batch split. */
#include "parallel/rebalance/rebalance.h"

#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "parallel/rebalance/throughput.h"
#include "session/full_state.h"
#include "session/nets.h"
#include "session/param_sets.h"
#include "topology/quota.h"

/* The state of the axis: measurements since the last comparison. */
typedef struct rebalance {
    uint64_t began;     /* start of the current iteration, in ns */
    double cpu_began;   /* CPU seconds at that time */
    int32_t first;      /* iterations so far that are not measured */
    double spent;       /* seconds in measured iterations */
    double computed;    /* ... of these, on samples */
    double cpu;         /* CPU seconds in them */
    double waited;      /* seconds waited for others, up to the last comparison */
    int64_t iterations; /* how many were measured */
    int64_t passed;     /* iterations since the last comparison */
    int64_t interval;   /* iterations until the next comparison; 0: at first */
} rebalance;

/* ---- Before training ------------------------------------------------------------- */

/* Is the split to follow the measurements, or was it left open? The ranks of a tensor
 * group have equal parts of its samples, so there must be several groups, or ranks. */
static dlc_status plan(dlc_axis *axis) {
    const dlc_session *session = axis->session;
    const dlc_batch_split *split = &session->setup->batch_split;
    int is_open = split->is_default && session->needs.allows_skew;
    if (split->is_auto && session->mesh.tensor > 1 && session->rank == 0 &&
        dlc_mesh_data(&session->mesh) == 1)
        dlc_info(
            "batch_split = auto: the ranks of a tensor group wait for each other inside "
            "of its layers, and there is only one: they have equal parts");
    if (dlc_mesh_data(&session->mesh) == 1 || !(split->is_auto || is_open))
        return DLC_OK;
    axis->state = dlc_alloc(1, sizeof(rebalance));
    axis->in_use = axis->state != NULL;
    return axis->state ? DLC_OK : DLC_ERR_NOMEM;
}

/* A stage of a pipeline, or a rank of a tensor group, cannot run alone: they are
 * measured in the first iterations. */
static int runs_alone(const dlc_session *session) {
    return session->mesh.pipeline == 1 && session->mesh.tensor == 1;
}

/* Builds a training net, times it, and discards it. */
static dlc_status split_batch(dlc_axis *axis, int *is_split) {
    dlc_session *session = axis->session;
    dlc_net *net = NULL;
    dlc_status status = DLC_OK;
    if (!session->setup->batch_split.is_auto || !runs_alone(session))
        return DLC_OK;
    if (session->local_batch > 0)
        status = dlc_nets_build_train(session, &net);
    if (status == DLC_OK && net)
        status = dlc_net_allocate(net);
    if (status == DLC_OK)
        status = dlc_throughput_measure(session, net, session->local_batch);
    dlc_net_free(net);
    *is_split = status == DLC_OK;
    return status;
}

/* ---- Comparing ------------------------------------------------------------------- */

/* ENOUGH: iterations that make a measurement. MOST: the most between two comparisons if
 * ranks may be ahead of each other. FIRST: iterations that are not measured because
 * they set up memory and caches. */
enum { ENOUGH = 20, MOST = 320, FIRST = 3 };

/* Seconds that this rank has waited for others since the session was opened. */
static double waited_for_others(const dlc_session *session) {
    dlc_consistency_stats stats = {.size = sizeof stats};
    double waited = dlc_param_sets_exchanged(session).waited +
                    dlc_session_waited(session);
    if (DLC_CAN(session->consistency_ops, stats) &&
        session->consistency_ops->stats(session->set[DLC_PARAMS_WHOLE].model, &stats) ==
            DLC_OK)
        waited += stats.wait_seconds;
    return waited;
}

/* Where iterations are queued, only some are measured, and only if that was asked for:
 * they wait for the queue. */
static int is_measured(const dlc_session *session, const rebalance *measured) {
    if (dlc_session_async_queue(session))
        return session->setup->batch_split.is_auto && measured->iterations < ENOUGH;
    return session->setup->batch_split.is_auto ||
           dlc_session_allows(session, DLC_ALLOW_REBALANCE);
}

static void begin_iteration(dlc_axis *axis) {
    dlc_session *session = axis->session;
    rebalance *measured = axis->state;
    session->is_timed = is_measured(session, measured);
    measured->began = dlc_now_ns();
    measured->cpu_began = dlc_cpu_seconds();
}

static void end_iteration(dlc_axis *axis, double computed) {
    rebalance *measured = axis->state;
    measured->passed++;
    if (!axis->session->is_timed)
        return;
    if (measured->first < FIRST) {
        if (++measured->first == FIRST)
            measured->waited = waited_for_others(axis->session);
        return;
    }
    measured->spent += dlc_since(measured->began);
    measured->computed += computed;
    measured->cpu += dlc_cpu_seconds() - measured->cpu_began;
    measured->iterations++;
}

/* Is it time to compare, after the session's iteration? Equal on all ranks. */
static int is_due(const rebalance *measured, const dlc_session *session) {
    if (measured->iterations < ENOUGH || session->iteration >= session->max_iterations)
        return 0;
    return session->needs.allows_skew || !runs_alone(session)
               ? measured->passed >= measured->interval
               : session->iteration % session->epoch_iterations == 0;
}

/* How much longer work of `busy` seconds would take without idle time between: a cgroup
 * CPU quota that is not used while a rank waits for others is used afterwards, which
 * makes the rank look faster than it is when it never waits. */
static double quota_slowdown(const rebalance *measured, double busy) {
    double quota = dlc_quota_cores("");
    double needed = quota > 0 ? measured->cpu / quota : 0;
    return needed > busy ? needed / busy : 1;
}

/* Times are bounded below, so that no throughput is infinite. */
static dlc_rank_throughput throughput_of(const rebalance *measured,
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

static dlc_status needs_reopen(dlc_axis *axis, int *reopens) {
    dlc_session *session = axis->session;
    rebalance *measured = axis->state;
    if (!is_due(measured, session))
        return DLC_OK;
    dlc_job_activity(session->job, "comparing throughput", NULL, 0);
    double waited = waited_for_others(session);
    DLC_TRY(dlc_throughput_balance(session, throughput_of(measured, session, waited),
                                   measured->spent / (double)measured->iterations,
                                   reopens));
    int64_t interval = 2 * (measured->interval > ENOUGH ? measured->interval : ENOUGH);
    *measured = (rebalance){.first = *reopens ? 0 : FIRST,
                            .waited = waited,
                            .interval = interval < MOST ? interval : MOST};
    return DLC_OK;
}

/* ---- Moving the state ------------------------------------------------------------ */

/* Every parameter, and every saved state of it, in plain form: state s of parameter i
 * is at i * (states + 1) + 1 + s. */
typedef struct saved_state {
    float **plain;
    size_t count;
    void *model; /* opaque state of the consistency model */
    size_t model_bytes;
} saved_state;

static void state_free(saved_state *state) {
    for (size_t i = 0; state->plain && i < state->count; i++)
        dlc_free(state->plain[i]);
    dlc_free(state->plain);
    dlc_free(state->model);
}

static int32_t parts(const dlc_session *session) {
    return dlc_solver_states(&session->solver) + 1;
}

/* The arena of a parameter: part 0 is the parameter, parts from 1 are its states. NULL:
 * not to be moved. Collective. */
static dlc_status find_arena(dlc_session *session, int32_t i, int32_t part,
                             float **arena) {
    *arena = part == 0 ? dlc_net_param_arena(session->net, i) : NULL;
    if (part == 0 || !dlc_solver_saves(&session->solver, part - 1) ||
        dlc_net_param_at(session->net, i)->is_buffer)
        return DLC_OK;
    *arena = dlc_full_state_arena(session, i, part - 1);
    return dlc_full_state_take(session, part - 1);
}

static dlc_status save_one(dlc_session *session, int32_t i, int32_t part,
                           float **plain) {
    const dlc_net_param *param = dlc_net_param_at(session->net, i);
    float *arena = NULL;
    DLC_TRY(find_arena(session, i, part, &arena));
    if (!arena)
        return DLC_OK;
    *plain = dlc_alloc((size_t)dlc_shape_count(&param->shape), sizeof **plain);
    return *plain ? dlc_net_param_export(session->net, i, arena, *plain)
                  : DLC_ERR_NOMEM;
}

static dlc_status save_model(const dlc_session *session, saved_state *state) {
    const dlc_consistency_ops *ops = session->consistency_ops;
    if (!DLC_CAN(ops, save) || !DLC_CAN(ops, load))
        return DLC_OK;
    dlc_consistency *model = session->set[DLC_PARAMS_WHOLE].model;
    DLC_TRY(ops->save(model, NULL, &state->model_bytes));
    state->model = dlc_alloc(state->model_bytes, 1);
    return state->model ? ops->save(model, state->model, &state->model_bytes)
                        : DLC_ERR_NOMEM;
}

/* Each rank keeps its own running averages, unlike in a checkpoint. */
static dlc_status save_state(dlc_session *session, saved_state *state) {
    int32_t params = dlc_net_params(session->net);
    state->count = (size_t)params * (size_t)parts(session);
    state->plain = dlc_alloc(state->count, sizeof *state->plain);
    if (!state->plain)
        return DLC_ERR_NOMEM;
    for (int32_t part = 0; part < parts(session); part++)
        for (int32_t i = 0; i < params; i++)
            DLC_TRY(
                save_one(session, i, part, &state->plain[i * parts(session) + part]));
    DLC_TRY(dlc_full_state_end(session));
    return save_model(session, state);
}

static dlc_status restore_state(dlc_session *session, saved_state *state) {
    dlc_full_state_write(session, 0);
    for (int32_t part = 0; part < parts(session); part++)
        for (int32_t i = 0; i < dlc_net_params(session->net); i++) {
            const float *plain = state->plain[i * parts(session) + part];
            float *arena = NULL;
            DLC_TRY(find_arena(session, i, part, &arena));
            if (plain)
                DLC_TRY(dlc_net_param_import(session->net, i, plain, arena));
        }
    DLC_TRY(dlc_full_state_end(session));
    session->model_state = state->model; /* now owned by the session */
    session->model_state_bytes = state->model_bytes;
    state->model = NULL;
    if (session->feed)
        DLC_TRY(dlc_feed_seek(session->feed,
                              session->iteration * session->accumulation_steps));
    return dlc_session_start(session);
}

/* Reopens the session with the new split. */
static dlc_status reopen(dlc_axis *axis) {
    dlc_session *session = axis->session;
    saved_state state = {0};
    dlc_job_activity(session->job, "rebalancing the batch", NULL, 0);
    dlc_status status = save_state(session, &state);
    if (status ==
        DLC_OK) /* no rank closes its transport while another still needs it */
        status = dlc_job_barrier(session->job);
    if (status == DLC_OK)
        status = dlc_session_reopen(session);
    if (status == DLC_OK)
        status = restore_state(session, &state);
    state_free(&state);
    return status;
}

/* ---- The axis -------------------------------------------------------------------- */

static void close(dlc_axis *axis) {
    dlc_free(axis->state);
}

const dlc_axis_ops dlc_batch_split_axis = {.name = "batch_split",
                                           .plan = plan,
                                           .split_batch = split_batch,
                                           .begin_iteration = begin_iteration,
                                           .end_iteration = end_iteration,
                                           .needs_reopen = needs_reopen,
                                           .reopen = reopen,
                                           .close = close};
