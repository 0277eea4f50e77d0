/* Averages the running averages of batch norm over the ranks, weighted by their
 * samples. */
#include "session/averages.h"

#include "plugin/device_objects.h"
#include "session/digest.h"

static size_t arena_bytes(const dlc_session *session) {
    return dlc_net_arenas(session->net)->buffer_count * sizeof(float);
}

static int is_alone(const dlc_session *session) {
    return session->ranks == 1 || !session->net || !arena_bytes(session);
}

/* A rank without samples has weight 0. */
static dlc_status reduce_mean(const dlc_session *session) {
    const dlc_arenas *arenas = dlc_net_arenas(session->net);
    float weight = (float)((double)session->local_batch /
                           (double)session->global_batch);
    DLC_TRY(session->device_ops->scale(session->device, NULL, arenas->buffer_count,
                                       weight, arenas->buffers));
    return dlc_comm_all_reduce(session->connection.comm, arenas->buffers,
                               arenas->buffer_count);
}

/* All ranks compare, since stages of a pipeline may have running averages or not. */
dlc_status dlc_averages_mean(dlc_session *session) {
    if (!session->net)
        return DLC_OK;
    if (!is_alone(session))
        DLC_TRY(reduce_mean(session));
    return dlc_digest_compare(session, DLC_DIGEST_AVERAGES);
}

dlc_status dlc_averages_begin(dlc_session *session, dlc_memory *own) {
    const dlc_device_ops *ops = session->device_ops;
    *own = (dlc_memory){.size = sizeof *own};
    if (is_alone(session))
        return dlc_averages_mean(session);
    DLC_TRY(dlc_device_alloc(ops, session->device, arena_bytes(session), 0, own));
    DLC_TRY(ops->copy(session->device, NULL, own->base,
                      dlc_net_arenas(session->net)->buffers, arena_bytes(session)));
    return dlc_averages_mean(session);
}

dlc_status dlc_averages_end(dlc_session *session, dlc_memory *own) {
    const dlc_device_ops *ops = session->device_ops;
    if (!own->base)
        return DLC_OK;
    dlc_status status = ops->copy(session->device, NULL,
                                  dlc_net_arenas(session->net)->buffers, own->base,
                                  arena_bytes(session));
    dlc_device_free(ops, session->device, own);
    return status;
}
