/* Moves the state of a session over to a new batch split: weights, running averages and
 * the solver's state are kept. */
#include "base/memory.h"
#include "run/run.h"
#include "session/full_state.h"

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

dlc_status dlc_session_reopen(dlc_session *session) {
    saved_state state = {0};
    dlc_job_activity(session->job, "rebalancing the batch", NULL, 0);
    dlc_status status = save_state(session, &state);
    if (status == DLC_OK) /* no rank closes its transport while another needs it */
        status = dlc_job_barrier(session->job);
    if (status == DLC_OK)
        status = dlc_session_reopen_work(session);
    if (status == DLC_OK)
        status = restore_state(session, &state);
    state_free(&state);
    return status;
}
