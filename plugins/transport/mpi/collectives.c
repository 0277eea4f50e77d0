/* Collectives: MPI's nonblocking ones, polled, so that the end of the job is noticed
 * while one is in progress. */
#include <limits.h>

#include "endpoint.h"

/* MPI counts in int. */
#define PIECE ((size_t)1 << 28)

/* All ranks come to the same result before anything is sent; the core then builds the
 * collective from messages. */
static dlc_status too_large(size_t count) {
    return host->fail(DLC_ERR_UNSUPPORTED, "MPI cannot count to %zu elements", count);
}

static dlc_status finish(dlc_endpoint *e, int code, MPI_Request *request,
                         const char *what) {
    return code == MPI_SUCCESS ? wait_for(e, request, what)
                               : world_failed(e, code, what);
}

dlc_status collective_all_reduce(dlc_endpoint *e, float *buffer, size_t count) {
    dlc_status status = DLC_OK;
    for (size_t at = 0; at < count && status == DLC_OK; at += PIECE) {
        size_t n = count - at < PIECE ? count - at : PIECE;
        MPI_Request request;
        int code = MPI_Iallreduce(MPI_IN_PLACE, buffer + at, (int)n, MPI_FLOAT, MPI_SUM,
                                  e->comm, &request);
        status = finish(e, code, &request, "all-reduce");
    }
    return status;
}

dlc_status collective_broadcast(dlc_endpoint *e, int32_t root, void *buffer,
                                size_t bytes) {
    dlc_status status = DLC_OK;
    for (size_t at = 0; at < bytes && status == DLC_OK; at += PIECE) {
        size_t n = bytes - at < PIECE ? bytes - at : PIECE;
        MPI_Request request;
        int code = MPI_Ibcast((unsigned char *)buffer + at, (int)n, MPI_BYTE, root,
                              e->comm, &request);
        status = finish(e, code, &request, "broadcast");
    }
    return status;
}

/* ---- Slices -------------------------------------------------------------- */

static size_t slice(size_t count, int32_t r, int32_t ranks) {
    size_t n = (size_t)ranks, i = (size_t)r;
    return count / n * i + count % n * i / n;
}

static void find_slices(const dlc_endpoint *e, size_t count) {
    int32_t ranks = e->args->ranks;
    for (int32_t r = 0; r < ranks; r++) {
        int begin = (int)slice(count, r, ranks);
        e->slices[ranks + r] = begin;
        e->slices[r] = (int)slice(count, r + 1, ranks) - begin;
    }
}

dlc_status collective_all_gather(dlc_endpoint *e, float *buffer, size_t count) {
    MPI_Request request;
    if (count > INT_MAX)
        return too_large(count);
    find_slices(e, count);
    int code = MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, buffer, e->slices,
                               e->slices + e->args->ranks, MPI_FLOAT, e->comm,
                               &request);
    return finish(e, code, &request, "all-gather");
}

static dlc_status reserve_sum(dlc_endpoint *e, size_t bytes) {
    const dlc_transport_args *args = e->args;
    if (e->sum.base && e->sum.bytes >= bytes)
        return DLC_OK;
    if (e->sum.base)
        args->device_ops->free(args->device, &e->sum);
    e->sum = (dlc_memory){.size = sizeof e->sum};
    return args->device_ops->alloc(args->device, bytes ? bytes : sizeof(float), 0,
                                   &e->sum);
}

/* MPI writes a rank's slice to the beginning of its output buffer, so it goes to
 * scratch memory and from there to its place. */
dlc_status collective_reduce_scatter(dlc_endpoint *e, float *buffer, size_t count) {
    const dlc_transport_args *args = e->args;
    MPI_Request request;
    if (count > INT_MAX)
        return too_large(count);
    find_slices(e, count);
    size_t bytes = (size_t)e->slices[args->rank] * sizeof(float);
    float *place = buffer + e->slices[args->ranks + args->rank];
    dlc_status status = reserve_sum(e, bytes);
    if (status != DLC_OK)
        return status;
    int code = MPI_Ireduce_scatter(buffer, e->sum.base, e->slices, MPI_FLOAT, MPI_SUM,
                                   e->comm, &request);
    status = finish(e, code, &request, "reduce-scatter");
    return status == DLC_OK && bytes
               ? args->device_ops->copy(args->device, NULL, place, e->sum.base, bytes)
               : status;
}
