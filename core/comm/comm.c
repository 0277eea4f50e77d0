/* Opening, closing, and who does a collective: the transport or its messages. */
#include "comm/internal.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

/* The transport's way of asking whether to go on. */
static dlc_status check(void *context) {
    dlc_comm *comm = context;
    if (atomic_load_explicit(&comm->cancelled, memory_order_relaxed))
        return dlc_fail(DLC_ERR_CANCELLED, "the exchange was stopped");
    return comm->check(comm->job);
}

static dlc_status allgather(void *context, const void *mine, size_t bytes, void *all) {
    dlc_comm *comm = context;
    return comm->gather(comm->job, mine, bytes, all);
}

static dlc_status copy_places(dlc_comm *comm, const dlc_comm_args *args) {
    const dlc_place *from = args->places;

    comm->places = dlc_alloc((size_t)args->ranks, sizeof *comm->places);
    if (!comm->places)
        return DLC_ERR_NOMEM;
    for (int32_t r = 0; r < args->ranks; r++, from = DLC_NEXT(from)) {
        size_t bytes = from->size < sizeof *from ? from->size : sizeof *from;
        memcpy(&comm->places[r], from, bytes);
        comm->places[r].size = sizeof *from;
    }
    return DLC_OK;
}

static dlc_status open_endpoint(dlc_comm *comm, const dlc_comm_args *args) {
    dlc_device_args device = args->device;

    device.threads = 1; /* the caller's, whichever that is */
    device.cpus = NULL;
    DLC_TRY(copy_places(comm, args));
    DLC_TRY(args->device_ops->open(&device, &comm->args.device));
    return comm->ops->open(&comm->args, &comm->endpoint);
}

dlc_status dlc_comm_open(const dlc_comm_args *args, dlc_comm **comm) {
    if (args->ranks < 1 || args->rank < 0 || args->rank >= args->ranks)
        return dlc_fail(DLC_ERR_INTERNAL, "there is no rank %d among %d", args->rank,
                        args->ranks);
    if (args->ranks > 1 && !args->feature)
        return dlc_fail(DLC_ERR_INTERNAL, "%d ranks and no transport", args->ranks);
    dlc_comm *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->job = args->job;
    made->check = args->check;
    made->gather = args->allgather;
    made->args = (dlc_transport_args){.size = sizeof made->args,
                                      .rank = args->rank,
                                      .ranks = args->ranks,
                                      .settings = args->settings,
                                      .device_ops = args->device_ops,
                                      .job = made,
                                      .allgather = allgather,
                                      .check = check};
    if (args->ranks > 1) {
        made->feature = args->feature;
        made->ops = args->feature->ops;
        dlc_status status = open_endpoint(made, args);
        if (status != DLC_OK) {
            dlc_comm_close(made);
            return status;
        }
    }
    *comm = made;
    return DLC_OK;
}

void dlc_comm_close(dlc_comm *comm) {
    if (!comm)
        return;
    if (comm->endpoint)
        comm->ops->close(comm->endpoint);
    dlc_messages_free(comm);
    if (comm->args.device)
        comm->args.device_ops->close(comm->args.device);
    dlc_free(comm->places);
    dlc_free(comm);
}

dlc_status dlc_comm_attach(dlc_comm *comm, const dlc_memory *memory) {
    if (comm->args.ranks == 1 || !DLC_CAN(comm->ops, attach))
        return DLC_OK;
    return comm->ops->attach(comm->endpoint, memory);
}

void dlc_comm_cancel(dlc_comm *comm) {
    atomic_store(&comm->cancelled, 1);
}

int32_t dlc_comm_rank(const dlc_comm *comm) {
    return comm->args.rank;
}

int32_t dlc_comm_ranks(const dlc_comm *comm) {
    return comm->args.ranks;
}

/* ---- Collectives ----------------------------------------------------------- */

/* Is there anything to do? DLC_OK and *go = 1, or the error of before. */
static dlc_status begin(dlc_comm *comm, size_t count, int *go) {
    *go = comm->failed == DLC_OK && comm->args.ranks > 1 && count > 0;
    if (comm->failed != DLC_OK)
        return dlc_fail(comm->failed, "this communicator ended with an earlier error");
    return DLC_OK;
}

static dlc_status end(dlc_comm *comm, dlc_status status) {
    comm->failed = status;
    return status;
}

/* The transport may say that its collectives don't serve this group, as long as
 * every rank's says so before anything moved. */
static int declined(dlc_comm *comm, dlc_status status) {
    if (status != DLC_ERR_UNSUPPORTED)
        return 0;
    comm->messages_only = 1;
    return 1;
}

#define MAY_CALL(comm, call) (!(comm)->messages_only && DLC_CAN((comm)->ops, call))

static int may_sum(const dlc_comm *comm) {
    return (comm->feature->caps & DLC_TRANSPORT_PAIRWISE) != 0;
}

static dlc_status reduce_scatter(dlc_comm *comm, float *buffer, size_t count) {
    if (MAY_CALL(comm, reduce_scatter) && may_sum(comm)) {
        dlc_status status = comm->ops->reduce_scatter(comm->endpoint, buffer, count);
        if (!declined(comm, status))
            return status;
    }
    return dlc_messages_reduce_scatter(comm, buffer, count);
}

static dlc_status all_gather(dlc_comm *comm, float *buffer, size_t count) {
    if (MAY_CALL(comm, all_gather)) {
        dlc_status status = comm->ops->all_gather(comm->endpoint, buffer, count);
        if (!declined(comm, status))
            return status;
    }
    return dlc_messages_all_gather(comm, buffer, count);
}

static dlc_status all_reduce(dlc_comm *comm, float *buffer, size_t count) {
    if (MAY_CALL(comm, all_reduce) && may_sum(comm)) {
        dlc_status status = comm->ops->all_reduce(comm->endpoint, buffer, count);
        if (!declined(comm, status))
            return status;
    }
    if (count <= DLC_COMM_SMALL)
        return dlc_messages_all_reduce_small(comm, buffer, count);
    DLC_TRY(reduce_scatter(comm, buffer, count));
    return all_gather(comm, buffer, count);
}

dlc_status dlc_comm_all_reduce(dlc_comm *comm, float *buffer, size_t count) {
    int go = 0;
    DLC_TRY(begin(comm, count, &go));
    return go ? end(comm, all_reduce(comm, buffer, count)) : DLC_OK;
}

dlc_status dlc_comm_reduce_scatter(dlc_comm *comm, float *buffer, size_t count) {
    int go = 0;
    DLC_TRY(begin(comm, count, &go));
    return go ? end(comm, reduce_scatter(comm, buffer, count)) : DLC_OK;
}

dlc_status dlc_comm_all_gather(dlc_comm *comm, float *buffer, size_t count) {
    int go = 0;
    DLC_TRY(begin(comm, count, &go));
    return go ? end(comm, all_gather(comm, buffer, count)) : DLC_OK;
}

static dlc_status broadcast(dlc_comm *comm, int32_t root, void *buffer, size_t bytes) {
    if (MAY_CALL(comm, broadcast)) {
        dlc_status status = comm->ops->broadcast(comm->endpoint, root, buffer, bytes);
        if (!declined(comm, status))
            return status;
    }
    return dlc_messages_broadcast(comm, root, buffer, bytes);
}

dlc_status dlc_comm_broadcast(dlc_comm *comm, int32_t root, void *buffer,
                              size_t bytes) {
    int go = 0;
    if (root < 0 || root >= comm->args.ranks)
        return dlc_fail(DLC_ERR_INTERNAL, "broadcast: there is no rank %d among %d",
                        root, comm->args.ranks);
    DLC_TRY(begin(comm, bytes, &go));
    return go ? end(comm, broadcast(comm, root, buffer, bytes)) : DLC_OK;
}

dlc_status dlc_comm_barrier(dlc_comm *comm) {
    int go = 0;
    DLC_TRY(begin(comm, 1, &go));
    return go ? end(comm, dlc_messages_barrier(comm)) : DLC_OK;
}
