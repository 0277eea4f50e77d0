/* Gathers a state from the shards of all ranks, and cuts this rank's shards out of a
 * state. */
#include "session/full_state.h"

#include "base/status.h"

static const dlc_exchange *exchange_of(const dlc_session *session) {
    return session->exchanger ? dlc_exchanger_table(session->exchanger) : NULL;
}

int dlc_full_state_is_sharded(const dlc_session *session) {
    const dlc_exchange *exchange = exchange_of(session);
    return exchange && exchange->shard_begin;
}

void dlc_full_state_write(dlc_session *session, int from_rank_0) {
    session->full_state.writes = 1;
    session->full_state.from_rank_0 = from_rank_0;
}

static float *gradients_of(const dlc_session *session) {
    return dlc_net_arenas(session->net)->gradients;
}

/* Copies this rank's shards to the whole state, or from there. */
static dlc_status copy_shards(const dlc_session *session, int32_t state, int to_whole) {
    const dlc_exchange *exchange = exchange_of(session);
    float *shards = session->slot[state].base, *whole = gradients_of(session);
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
static dlc_status keep(dlc_session *session) {
    int32_t state = session->full_state.taken - 1;
    session->full_state.taken = 0;
    if (state < 0 || !session->full_state.writes)
        return DLC_OK;
    if (session->full_state.from_rank_0)
        DLC_TRY(
            dlc_comm_broadcast(session->connection.comm, 0, gradients_of(session),
                               dlc_net_arenas(session->net)->count * sizeof(float)));
    return copy_shards(session, state, 0);
}

float *dlc_full_state_arena(const dlc_session *session, int32_t state) {
    return dlc_full_state_is_sharded(session) ? gradients_of(session)
                                              : session->slot[state].base;
}

dlc_status dlc_full_state_take(dlc_session *session, int32_t state, float **arena) {
    *arena = dlc_full_state_arena(session, state);
    if (!dlc_full_state_is_sharded(session) || session->full_state.taken == state + 1)
        return DLC_OK;
    DLC_TRY(keep(session));
    DLC_TRY(copy_shards(session, state, 1));
    DLC_TRY(dlc_exchanger_all_gather(session->exchanger, gradients_of(session)));
    /* Peers may still read this rank's shards, which the next state overwrites. */
    DLC_TRY(dlc_comm_barrier(session->connection.comm));
    session->full_state.taken = state + 1;
    return DLC_OK;
}

dlc_status dlc_full_state_end(dlc_session *session) {
    dlc_status status = DLC_OK;
    if (dlc_full_state_is_sharded(session)) {
        status = keep(session);
        if (status == DLC_OK)
            status = session->device_ops->fill(
                session->device, NULL, gradients_of(session), 0,
                dlc_net_arenas(session->net)->count * sizeof(float));
    }
    session->full_state.writes = session->full_state.from_rank_0 = 0;
    return status;
}
