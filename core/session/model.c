/* Asks the solver and the consistency model what they need. */
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
    DLC_TRY(DLC_ASK(
        session->consistency_ops, "needs",
        session->consistency_ops->needs(setup->consistency_settings, &session->needs)));
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

dlc_status dlc_session_set_schedule(dlc_session *session) {
    return set_schedule(session, session->resumed_schedule);
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

/* ---- Their memory -------------------------------------------------------------- */

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
    return add_model_bytes(session, dlc_net_arenas_of(session->net, DLC_PARAMS_ROWS),
                           dlc_mesh_data_group(mesh, session->rank),
                           share * mesh->tensor, bytes);
}
