/* Collectives: NCCL's own, stream-ordered on the caller's queue, or on the endpoint's
 * queue and waited for.
 *
 * NCCL's reduce-scatter and all-gather need slices of equal size. Where the ranks'
 * slices differ, by one element, each slice is a reduce to its rank, or a broadcast
 * from it, all of them in one group: the same number of bytes over the links.
 */
#include "nccl_transport.h"

/* Slice r is [count*r/ranks, count*(r+1)/ranks); returns its beginning. */
static size_t slice(const dlc_endpoint *e, size_t count, int32_t r) {
    size_t ranks = (size_t)e->ranks, at = (size_t)r;
    return count / ranks * at + count % ranks * at / ranks;
}

typedef ncclResult_t collective(const dlc_endpoint *e, cudaStream_t stream,
                                float *buffer, size_t count);

static ncclResult_t reduce_all(const dlc_endpoint *e, cudaStream_t stream,
                               float *buffer, size_t count) {
    return nccl.AllReduce(buffer, buffer, count, ncclFloat32, ncclSum, e->comm, stream);
}

static ncclResult_t reduce_slices(const dlc_endpoint *e, cudaStream_t stream,
                                  float *buffer, size_t count) {
    size_t ranks = (size_t)e->ranks;
    if (count % ranks == 0)
        return nccl.ReduceScatter(buffer, buffer + slice(e, count, e->rank),
                                  count / ranks, ncclFloat32, ncclSum, e->comm, stream);
    ncclResult_t result = nccl.GroupStart();
    for (int32_t r = 0; result == ncclSuccess && r < e->ranks; r++) {
        float *at = buffer + slice(e, count, r);
        size_t n = slice(e, count, r + 1) - slice(e, count, r);
        if (n > 0)
            result = nccl.Reduce(at, at, n, ncclFloat32, ncclSum, r, e->comm, stream);
    }
    ncclResult_t ended = nccl.GroupEnd();
    return result == ncclSuccess || result == ncclInProgress ? ended : result;
}

static ncclResult_t gather_slices(const dlc_endpoint *e, cudaStream_t stream,
                                  float *buffer, size_t count) {
    size_t ranks = (size_t)e->ranks;
    if (count % ranks == 0)
        return nccl.AllGather(buffer + slice(e, count, e->rank), buffer, count / ranks,
                              ncclFloat32, e->comm, stream);
    ncclResult_t result = nccl.GroupStart();
    for (int32_t r = 0; result == ncclSuccess && r < e->ranks; r++) {
        float *at = buffer + slice(e, count, r);
        size_t n = slice(e, count, r + 1) - slice(e, count, r);
        if (n > 0)
            result = nccl.Broadcast(at, at, n, ncclFloat32, r, e->comm, stream);
    }
    ncclResult_t ended = nccl.GroupEnd();
    return result == ncclSuccess || result == ncclInProgress ? ended : result;
}

static dlc_status enqueue(dlc_endpoint *e, dlc_queue *queue, collective *call,
                          const char *what, float *buffer, size_t count) {
    cudaStream_t stream = NULL;
    dlc_status status = endpoint_check(e);
    if (status != DLC_OK || count == 0)
        return status;
    status = endpoint_stream(e, queue, &stream);
    return status == DLC_OK ? endpoint_await(e, call(e, stream, buffer, count), what)
                            : status;
}

dlc_status queue_all_reduce(dlc_endpoint *e, dlc_queue *queue, float *buffer,
                            size_t count) {
    return enqueue(e, queue, reduce_all, "all-reduce", buffer, count);
}

dlc_status queue_reduce_scatter(dlc_endpoint *e, dlc_queue *queue, float *buffer,
                                size_t count) {
    return enqueue(e, queue, reduce_slices, "reduce-scatter", buffer, count);
}

dlc_status queue_all_gather(dlc_endpoint *e, dlc_queue *queue, float *buffer,
                            size_t count) {
    return enqueue(e, queue, gather_slices, "all-gather", buffer, count);
}

/* ---- Blocking calls ------------------------------------------------------------- */

/* Blocks until the endpoint's queue has done its work. */
static dlc_status wait_here(dlc_endpoint *e, dlc_status queued, const char *what) {
    const dlc_transport_args *args = e->args;
    if (queued != DLC_OK)
        return queued;
    dlc_status status = args->device_ops->queues->event_record(args->device, e->queue,
                                                               e->event);
    return status == DLC_OK ? wait_for(e, e->event, what) : status;
}

dlc_status all_reduce(dlc_endpoint *e, float *buffer, size_t count) {
    return wait_here(e, queue_all_reduce(e, e->queue, buffer, count), "all-reduce");
}

dlc_status reduce_scatter(dlc_endpoint *e, float *buffer, size_t count) {
    return wait_here(e, queue_reduce_scatter(e, e->queue, buffer, count),
                     "reduce-scatter");
}

dlc_status all_gather(dlc_endpoint *e, float *buffer, size_t count) {
    return wait_here(e, queue_all_gather(e, e->queue, buffer, count), "all-gather");
}

dlc_status broadcast(dlc_endpoint *e, int32_t root, void *buffer, size_t bytes) {
    dlc_status status = endpoint_check(e);
    if (status != DLC_OK || bytes == 0)
        return status;
    ncclResult_t result = nccl.Broadcast(buffer, buffer, bytes, ncclUint8, root,
                                         e->comm, e->stream);
    return wait_here(e, endpoint_await(e, result, "broadcast"), "broadcast");
}
