/* Asks the solver and the consistency model what they need, and opens them. */
#include "session/model.h"

#include "base/memory.h"
#include "plugin/answers.h"

/* ---- What they need ------------------------------------------------------------ */

dlc_status dlc_session_ask_solver(dlc_session *session) {
    dlc_setup *setup = session->setup;
    session->solver = setup->checked_solver;
    session->accumulation_steps = session->solver.accumulation_steps;
    session->consistency_ops = setup->consistency->ops;
    session->needs = (dlc_consistency_needs){.size = sizeof session->needs};
    DLC_TRY(
        session->consistency_ops->needs(setup->consistency_settings, &session->needs));
    DLC_TRY(dlc_answer_check_needs(setup->consistency, &session->needs));
    if (session->needs.servers < session->ranks)
        setup->servers = session->needs.servers;
    return DLC_OK;
}

static dlc_status set_schedule(dlc_session *session, const dlc_lr_schedule *schedule) {
    dlc_lr_job job = {.max_iterations = session->max_iterations,
                      .epoch_iterations = session->epoch_iterations,
                      .batch = session->setup->train.batch,
                      .effective_batch = dlc_session_samples(session),
                      .schedule = schedule};
    return dlc_solver_set_schedule(&session->solver, &job);
}

dlc_status dlc_session_count_iterations(dlc_session *session) {
    const dlc_setup *setup = session->setup;
    int64_t step = dlc_session_samples(session);
    session->epoch_iterations = (setup->train.info.samples + step - 1) / step;
    session->max_iterations = setup->iterations >= 0
                                  ? setup->iterations
                                  : setup->epochs * session->epoch_iterations;
    return set_schedule(session, NULL);
}

/* ---- Opening ------------------------------------------------------------------- */

/* NULL with deferred updates: they belong to the iteration before the one that the
 * control block describes. */
static const dlc_rule_values *values_at(const dlc_session *session) {
    return dlc_session_async_queue(session) && !session->deferred_update
               ? &session->control.on_device->values
               : NULL;
}

dlc_status dlc_session_open_slots(dlc_session *session) {
    const dlc_arenas *arenas = dlc_net_arenas(session->net);
    session->accumulator = (dlc_accumulator){
        .ops = session->device_ops,
        .device = session->device,
        .queue = session->queue,
        .steps = session->solver.accumulation_steps,
        .gradients = arenas->gradients,
        .count = arenas->count - arenas->control_words};
    DLC_TRY(dlc_slots_open(&session->solver, session->device_ops, session->device,
                           dlc_exchanger_slot_count(session->exchanger),
                           session->slot));
    return dlc_accumulator_open(&session->accumulator);
}

static dlc_status open_updater(dlc_session *session) {
    dlc_update_target target = dlc_session_update_target(session,
                                                         dlc_net_arenas(session->net));
    target.peers = &session->model_norms.shared;
    target.values_at = values_at(session);
    target.loss_scale = session->loss_scale.base;
    return dlc_solver_updater_open(&target, &session->updater);
}

dlc_consistency_args dlc_session_model_args(const dlc_session *session,
                                            const dlc_arenas *arenas,
                                            const dlc_memory *slot,
                                            const dlc_replicas *replicas) {
    dlc_consistency_args args = {.size = sizeof args,
                                 .settings = session->setup->consistency_settings,
                                 .device_ops = session->device_ops,
                                 .device = session->device,
                                 .queue = session->queue,
                                 .count = arenas->count,
                                 .control_words = arenas->control_words,
                                 .weights = arenas->weights,
                                 .gradients = arenas->gradients,
                                 .p2p = replicas->p2p ? dlc_p2p_table(replicas->p2p)
                                                      : NULL,
                                 .batch_split = replicas->samples,
                                 .job_rank = session->rank,
                                 .iteration = session->iteration};
    for (int32_t i = 0; i < session->solver.slots; i++)
        args.slots[i] = slot[i].base;
    return args;
}

/* Adds the memory of a model of these parameters, of which so many ranks have replicas.
 */
static dlc_status add_model_bytes(const dlc_session *session, const dlc_arenas *arenas,
                                  dlc_mesh_group replicas, double share,
                                  uint64_t *bytes) {
    const dlc_consistency_ops *ops = session->consistency_ops;
    dlc_consistency_extent extent = {.size = sizeof extent,
                                     .trained = arenas->count - arenas->control_words,
                                     .slots = session->solver.slots,
                                     .rank = (session->rank - replicas.first) /
                                             replicas.stride,
                                     .ranks = replicas.ranks,
                                     .share = share};
    uint64_t one = 0;
    for (int32_t i = 0; i < arenas->segments; i++)
        if (arenas->segment[i].count > extent.largest)
            extent.largest = arenas->segment[i].count;
    if (extent.trained > 0 && DLC_CAN(ops, memory))
        DLC_TRY(ops->memory(session->setup->consistency_settings, &extent, &one));
    *bytes += one;
    return DLC_OK;
}

dlc_status dlc_session_model_bytes(const dlc_session *session, uint64_t *bytes) {
    const dlc_mesh *mesh = &session->mesh;
    double share = (double)session->local_batch / (double)session->global_batch;
    *bytes = 0;
    if (session->ranks == 1)
        return DLC_OK;
    DLC_TRY(add_model_bytes(session, dlc_net_arenas(session->net),
                            dlc_mesh_stage_group(mesh, session->rank), share, bytes));
    return add_model_bytes(session, dlc_net_sharded_arenas(session->net),
                           dlc_mesh_data_group(mesh, session->rank),
                           share * mesh->tensor, bytes);
}

dlc_status dlc_session_open_model(dlc_session *session) {
    const dlc_consistency_ops *ops = session->consistency_ops;
    DLC_TRY(set_schedule(session, session->resumed_schedule));
    DLC_TRY(open_updater(session));
    dlc_consistency_args args = dlc_session_model_args(
        session, dlc_net_arenas(session->net), session->slot, &session->replicas);
    args.updater = dlc_solver_updater_table(session->updater);
    args.exchange = dlc_exchanger_table(session->exchanger);
    DLC_TRY(ops->create(&args, &session->consistency));
    if (session->model_state)
        DLC_TRY(ops->load(session->consistency, session->model_state,
                          session->model_state_bytes));
    return session->deferred_update
               ? dlc_updates_open(ops, session->consistency, session->bucket_begin,
                                  session->buckets, &session->ema, &session->updates)
               : DLC_OK;
}

void dlc_session_close_model(dlc_session *session) {
    dlc_updates_close(&session->updates);
    dlc_p2p_cancel(session->replicas.p2p); /* nobody waits for a peer that has left */
    if (session->consistency)
        session->consistency_ops->destroy(session->consistency);
    dlc_solver_updater_close(session->updater);
    dlc_replicas_close(&session->replicas);
    dlc_free(session->model_state);
}
