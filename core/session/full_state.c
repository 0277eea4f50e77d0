/* Gathers a state from the shards of all ranks, and cuts this rank's shards out of a
 * state. */
#include "session/full_state.h"

#include "base/status.h"

static int has_shards(const dlc_param_set *set) {
    return set->arenas && dlc_exchanger_table(set->exchanger)->shard_begin;
}

int dlc_full_state_is_sharded(const dlc_session *session) {
    int any = 0;
    for (int32_t s = 0; s < DLC_PARAM_SETS; s++)
        any |= has_shards(&session->set[s]);
    return any;
}

void dlc_full_state_write(dlc_session *session, int from_rank_0) {
    session->full_state.writes = 1;
    session->full_state.from_rank_0 = from_rank_0;
}

/* Copies this rank's shards to the whole state, or from there. */
static dlc_status copy_shards(const dlc_session *session, const dlc_param_set *set,
                              int32_t state, int to_whole) {
    const dlc_exchange *exchange = dlc_exchanger_table(set->exchanger);
    float *shards = set->slot[state].base, *whole = set->arenas->gradients;
    for (int32_t b = 0; b < exchange->buckets; b++) {
        size_t begin = exchange->shard_begin[b], at = exchange->slot_begin[b];
        size_t bytes = (exchange->shard_end[b] - begin) * sizeof(float);
        float *to = to_whole ? whole + begin : shards + at;
        const float *from = to_whole ? shards + at : whole + begin;
        DLC_TRY(session->device_ops->copy(session->device, NULL, to, from, bytes));
    }
    return DLC_OK;
}

/* Keeps what was written to the state that was taken last. */
static dlc_status keep_state(const dlc_session *session, dlc_param_set *set) {
    int32_t state = set->taken - 1;
    set->taken = 0;
    if (state < 0 || !session->full_state.writes)
        return DLC_OK;
    if (session->full_state.from_rank_0)
        DLC_TRY(dlc_comm_broadcast(set->comm, 0, set->arenas->gradients,
                                   set->arenas->count * sizeof(float)));
    return copy_shards(session, set, state, 0);
}

static dlc_status take_state(const dlc_session *session, dlc_param_set *set,
                             int32_t state) {
    DLC_TRY(keep_state(session, set));
    DLC_TRY(copy_shards(session, set, state, 1));
    DLC_TRY(dlc_exchanger_all_gather(set->exchanger, set->arenas->gradients));
    /* Peers may still read this rank's shards, which the next state overwrites. */
    DLC_TRY(dlc_comm_barrier(set->comm));
    set->taken = state + 1;
    return DLC_OK;
}

dlc_status dlc_full_state_take(dlc_session *session, int32_t state) {
    DLC_EACH_PARAM_SET(session, set)
    if (has_shards(set) && set->taken != state + 1)
        DLC_TRY(take_state(session, set, state));
    return DLC_OK;
}

float *dlc_full_state_arena(const dlc_session *session, int32_t param, int32_t state) {
    const dlc_param_set *set =
        &session->set[dlc_net_param_at(session->net, param)->set];
    return has_shards(set) ? set->arenas->gradients : set->slot[state].base;
}

static dlc_status end(const dlc_session *session, dlc_param_set *set) {
    DLC_TRY(keep_state(session, set));
    return session->device_ops->fill(session->device, NULL, set->arenas->gradients, 0,
                                     set->arenas->count * sizeof(float));
}

dlc_status dlc_full_state_end(dlc_session *session) {
    dlc_status status = DLC_OK;
    DLC_EACH_PARAM_SET(session, set)
    if (has_shards(set) && status == DLC_OK)
        status = end(session, set);
    session->full_state.writes = session->full_state.from_rank_0 = 0;
    return status;
}
