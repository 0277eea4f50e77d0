/* Measures throughput in the training loop, and moves the state of a session over to a
 * new batch split. */
#include "parallel/rebalance/rebalance.h"

#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "parallel/rebalance/throughput.h"
#include "session/full_state.h"
#include "topology/quota.h"

/* ---- Comparing ------------------------------------------------------------------- */

/* ENOUGH: iterations that make a measurement. MOST: the most between two comparisons if
 * ranks may be ahead of each other. FIRST: iterations that are not measured because
 * they set up memory and caches. */
enum { ENOUGH = 20, MOST = 320, FIRST = 3 };

/* Seconds that this rank has waited for others since the session was opened. */
static double waited_for_others(const dlc_session *session) {
    dlc_consistency_stats stats = {.size = sizeof stats};
    double waited = dlc_exchanger_stats(session->exchanger).waited;
    if (DLC_CAN(session->consistency_ops, stats) &&
        session->consistency_ops->stats(session->consistency, &stats) == DLC_OK)
        waited += stats.wait_seconds;
    return waited;
}

/* Is the split to follow the measurements, or was it left open and may? */
static int is_wanted(const dlc_session *session) {
    const dlc_batch_split *split = &session->setup->batch_split;
    return split->is_auto || (split->is_default && session->needs.allows_skew &&
                              dlc_session_allows(session, DLC_ALLOW_REBALANCE));
}

/* The time that a rank computes can be measured only on devices without a queue. */
static int is_measured(const dlc_session *session) {
    return is_wanted(session) && session->ranks > 1 && !session->queue;
}

void dlc_rebalance_begin(dlc_rebalance *rebalance, const dlc_session *session) {
    if (!is_measured(session))
        return;
    rebalance->began = dlc_now_ns();
    rebalance->cpu_began = dlc_cpu_seconds();
}

void dlc_rebalance_end(dlc_rebalance *rebalance, const dlc_session *session,
                       double computed) {
    if (!is_measured(session))
        return;
    if (rebalance->first < FIRST) {
        if (++rebalance->first == FIRST)
            rebalance->waited = waited_for_others(session);
        return;
    }
    rebalance->spent += dlc_since(rebalance->began);
    rebalance->computed += computed;
    rebalance->cpu += dlc_cpu_seconds() - rebalance->cpu_began;
    rebalance->iterations++;
}

int dlc_rebalance_is_due(const dlc_rebalance *rebalance, const dlc_session *session) {
    if (!is_measured(session) || rebalance->iterations < ENOUGH ||
        session->iteration >= session->max_iterations)
        return 0;
    return session->needs.allows_skew
               ? rebalance->iterations >= rebalance->interval
               : session->iteration % session->epoch_iterations == 0;
}

/* How much longer work of `busy` seconds would take without idle time between: a cgroup
 * CPU quota that is not used while a rank waits for others is used afterwards, which
 * makes the rank look faster than it is when it never waits. */
static double quota_slowdown(const dlc_rebalance *rebalance, double busy) {
    double quota = dlc_quota_cores("");
    double needed = quota > 0 ? rebalance->cpu / quota : 0;
    return needed > busy ? needed / busy : 1;
}

/* Times are bounded below, so that no throughput is infinite. */
static dlc_rank_throughput throughput_of(const dlc_rebalance *rebalance,
                                         const dlc_session *session, double waited) {
    double iterations = (double)rebalance->iterations;
    double samples = (double)(session->local_batch * session->accumulation_steps) *
                     iterations;
    double computed = fmax(rebalance->computed, rebalance->spent / 1000);
    double beside = fmax(rebalance->spent - (waited - rebalance->waited) - computed, 0);
    double longer = quota_slowdown(rebalance, computed + beside);
    return (dlc_rank_throughput){.samples_per_s = samples / (longer * computed),
                                 .fixed_seconds = longer * beside / iterations};
}

dlc_status dlc_rebalance_compare(dlc_rebalance *rebalance, dlc_session *session,
                                 int *changed) {
    double waited = waited_for_others(session);
    DLC_TRY(dlc_throughput_balance(session, throughput_of(rebalance, session, waited),
                                   rebalance->spent / (double)rebalance->iterations,
                                   changed));
    int64_t interval = 2 *
                       (rebalance->interval > ENOUGH ? rebalance->interval : ENOUGH);
    *rebalance = (dlc_rebalance){.first = *changed ? 0 : FIRST,
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
    return part > 0 && dlc_solver_saves(&session->solver, part - 1) &&
                   !dlc_net_param_at(session->net, i)->is_buffer
               ? dlc_full_state_take(session, part - 1, arena)
               : DLC_OK;
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
    DLC_TRY(ops->save(session->consistency, NULL, &state->model_bytes));
    state->model = dlc_alloc(state->model_bytes, 1);
    return state->model
               ? ops->save(session->consistency, state->model, &state->model_bytes)
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

dlc_status dlc_rebalance_run(dlc_session *session) {
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
