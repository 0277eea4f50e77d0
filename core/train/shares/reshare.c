/* See reshare.h. */
#include "train/shares/reshare.h"

#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "topo/quota.h"
#include "train/shares/speed.h"

/* ---- Comparing ------------------------------------------------------------------- */

/* Iterations that say enough; that go by between two looks, at most, where ranks may be
 * ahead of each other; that are not like the others. */
enum { ENOUGH = 20, MOST = 320, FIRST = 3 };

/* Seconds since the session was opened that this rank stood still for others. */
static double waited_for_others(const dlc_session *session) {
    dlc_solver_stats stats = {.size = sizeof stats};
    double waited = dlc_exchanger_stats(session->exchanger).waited;
    if (DLC_CAN(session->solver_ops, stats) &&
        session->solver_ops->stats(session->solver, &stats) == DLC_OK)
        waited += stats.waited;
    return waited;
}

/* Split layers' samples are dealt out otherwise: who wants both says so. */
static int is_wanted(const dlc_session *session) {
    const dlc_shares *shares = &session->setup->shares;
    return shares->measured ||
           (shares->open && session->needs.loose && !session->split.count);
}

/* How long a rank computes shows where nothing is computed behind the processor's
 * back. */
static int is_watched(const dlc_session *session) {
    return is_wanted(session) && session->ranks > 1 && !session->queue;
}

void dlc_reshare_begin(dlc_reshare *reshare, const dlc_session *session) {
    if (!is_watched(session))
        return;
    reshare->began = dlc_now_ns();
    reshare->cpu_began = dlc_cpu_seconds();
}

void dlc_reshare_end(dlc_reshare *reshare, const dlc_session *session,
                     double computed) {
    if (!is_watched(session))
        return;
    if (reshare->first < FIRST) {
        if (++reshare->first == FIRST)
            reshare->waited = waited_for_others(session);
        return;
    }
    reshare->spent += dlc_since(reshare->began);
    reshare->computed += computed;
    reshare->cpu += dlc_cpu_seconds() - reshare->cpu_began;
    reshare->iterations++;
}

int dlc_reshare_is_due(const dlc_reshare *reshare, const dlc_session *session) {
    if (!is_watched(session) || reshare->iterations < ENOUGH ||
        session->iteration >= session->max_iterations)
        return 0;
    return session->needs.loose ? reshare->iterations >= reshare->patience
                                : session->iteration % session->epoch_iterations == 0;
}

/* How much longer what took `busy` seconds would have taken without the time between.
 * A control group's quota that is not used while a rank waits for others is used
 * afterwards, so that the rank looks faster than it is when it doesn't wait. */
static double stretched(const dlc_reshare *reshare, double busy) {
    double quota = dlc_quota_read("");
    double needed = quota > 0 ? reshare->cpu / quota : 0;
    return needed > busy ? needed / busy : 1;
}

/* Nobody is infinitely fast, whatever the clocks say. */
static dlc_rank_pace pace_of(const dlc_reshare *reshare, const dlc_session *session,
                             double waited) {
    double iterations = (double)reshare->iterations;
    double samples = (double)(session->share * session->micro_batches) * iterations;
    double computed = fmax(reshare->computed, reshare->spent / 1000);
    double beside = fmax(reshare->spent - (waited - reshare->waited) - computed, 0);
    double longer = stretched(reshare, computed + beside);
    return (dlc_rank_pace){.speed = samples / (longer * computed),
                           .fixed = longer * beside / iterations};
}

dlc_status dlc_reshare_compare(dlc_reshare *reshare, dlc_session *session,
                               int *changed) {
    double waited = waited_for_others(session);
    DLC_TRY(dlc_speed_balance(session, pace_of(reshare, session, waited),
                              reshare->spent / (double)reshare->iterations, changed));
    int64_t patience = 2 * (reshare->patience > ENOUGH ? reshare->patience : ENOUGH);
    *reshare = (dlc_reshare){.first = *changed ? 0 : FIRST,
                             .waited = waited,
                             .patience = patience < MOST ? patience : MOST};
    return DLC_OK;
}

/* ---- Carrying over --------------------------------------------------------------- */

/* Every parameter, and every slot of it that is worth saving, in plain form: of
 * parameter i and slot s the one at i * (slots + 1) + 1 + s. */
typedef struct cargo_list {
    float **plain;
    size_t count;
    void *solver; /* bytes of its own */
    size_t solver_bytes;
} cargo_list;

static void cargo_free(cargo_list *cargo) {
    for (size_t i = 0; cargo->plain && i < cargo->count; i++)
        dlc_free(cargo->plain[i]);
    dlc_free(cargo->plain);
    dlc_free(cargo->solver);
}

static int32_t parts(const dlc_session *session) {
    return session->needs.slots + 1;
}

/* Of a parameter: 0, itself; from 1 on the slots. NULL: not to be carried. */
static float *arena_of(const dlc_session *session, int32_t i, int32_t part) {
    if (part == 0)
        return dlc_net_param_arena(session->net, i);
    int saved = (session->needs.slot_saved >> (part - 1) & 1) != 0;
    return saved && !dlc_net_param_at(session->net, i)->is_buffer
               ? session->slot[part - 1].base
               : NULL;
}

static dlc_status take_one(const dlc_session *session, int32_t i, int32_t part,
                           float **plain) {
    const dlc_net_param *param = dlc_net_param_at(session->net, i);
    const float *arena = arena_of(session, i, part);
    if (!arena)
        return DLC_OK;
    *plain = dlc_alloc((size_t)dlc_shape_count(&param->shape), sizeof **plain);
    return *plain ? dlc_net_param_export(session->net, i, arena, *plain)
                  : DLC_ERR_NOMEM;
}

static dlc_status take_solver(const dlc_session *session, cargo_list *cargo) {
    const dlc_solver_ops *ops = session->solver_ops;
    if (!DLC_CAN(ops, save) || !DLC_CAN(ops, load))
        return DLC_OK;
    DLC_TRY(ops->save(session->solver, NULL, &cargo->solver_bytes));
    cargo->solver = dlc_alloc(cargo->solver_bytes, 1);
    return cargo->solver
               ? ops->save(session->solver, cargo->solver, &cargo->solver_bytes)
               : DLC_ERR_NOMEM;
}

/* As a checkpoint would have it, where each rank's running averages are its own. */
static dlc_status take(dlc_session *session, cargo_list *cargo) {
    for (int32_t part = 1; part < parts(session); part++)
        if (session->needs.slot_saved >> (part - 1) & 1)
            DLC_TRY(
                dlc_exchanger_gather(session->exchanger, session->slot[part - 1].base));
    int32_t params = dlc_net_params(session->net);
    cargo->count = (size_t)params * (size_t)parts(session);
    cargo->plain = dlc_alloc(cargo->count, sizeof *cargo->plain);
    if (!cargo->plain)
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < params; i++)
        for (int32_t part = 0; part < parts(session); part++)
            DLC_TRY(
                take_one(session, i, part, &cargo->plain[i * parts(session) + part]));
    return take_solver(session, cargo);
}

static dlc_status put(dlc_session *session, cargo_list *cargo) {
    for (int32_t i = 0; i < dlc_net_params(session->net); i++)
        for (int32_t part = 0; part < parts(session); part++) {
            const float *plain = cargo->plain[i * parts(session) + part];
            if (plain)
                DLC_TRY(dlc_net_param_import(session->net, i, plain,
                                             arena_of(session, i, part)));
        }
    session->saved = cargo->solver; /* now the session's */
    session->saved_bytes = cargo->solver_bytes;
    cargo->solver = NULL;
    if (session->feed)
        DLC_TRY(
            dlc_feed_seek(session->feed, session->iteration * session->micro_batches));
    DLC_TRY(dlc_session_start(session));
    session->met = session->iteration;
    return DLC_OK;
}

dlc_status dlc_reshare_run(dlc_session *session) {
    cargo_list cargo = {0};
    dlc_job_doing(session->job, "sharing out anew", NULL, 0);
    dlc_status status = take(session, &cargo);
    if (status == DLC_OK) /* nobody leaves while another still needs it */
        status = dlc_job_barrier(session->job);
    if (status == DLC_OK)
        status = dlc_session_reopen(session);
    if (status == DLC_OK)
        status = put(session, &cargo);
    cargo_free(&cargo);
    return status;
}
