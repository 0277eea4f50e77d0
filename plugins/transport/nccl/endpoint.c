/* Opens and closes an endpoint: checks that the ranks agree, creates the communicator,
 * and registers memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nccl_transport.h"

enum { MAGIC = 0x6e63636c };

/* What the ranks exchange. */
typedef struct rank_check {
    uint32_t magic;
    char version[32];
    char host_id[64];  /* NCCL_HOSTID */
    char problem[256]; /* why NCCL cannot start on this rank; "": it can */
    ncclUniqueId id;   /* of rank 0 */
} rank_check;

/* ---- Agreement ----------------------------------------------------------- */

static void fill_check(const dlc_endpoint *e, rank_check *mine) {
    const char *problem = library_open(), *host_id = getenv("NCCL_HOSTID");
    *mine = (rank_check){.magic = MAGIC};
    if (host_id)
        (void)snprintf(mine->host_id, sizeof mine->host_id, "%s", host_id);
    if (!problem) {
        (void)snprintf(mine->version, sizeof mine->version, "%s", library_version());
        ncclResult_t made = e->rank == 0 ? nccl.GetUniqueId(&mine->id) : ncclSuccess;
        if (made != ncclSuccess)
            problem = nccl.GetErrorString(made);
    }
    if (problem)
        (void)snprintf(mine->problem, sizeof mine->problem, "%s", problem);
}

static dlc_status compare(const dlc_endpoint *e, const rank_check *checks) {
    for (int32_t r = 0; r < e->ranks; r++) {
        const rank_check *theirs = &checks[r];
        if (theirs->magic != MAGIC)
            return host->fail(DLC_ERR_PEER,
                              "rank %d speaks another protocol: do all ranks run the "
                              "same program?",
                              r);
        if (theirs->problem[0])
            return host->fail(DLC_ERR_UNAVAILABLE, "NCCL does not start on rank %d: %s",
                              r, theirs->problem);
        if (strcmp(theirs->version, checks[0].version) != 0)
            return host->fail(DLC_ERR_CONFIG,
                              "rank %d has NCCL %s, rank 0 has %s: give all the same "
                              "(LD_LIBRARY_PATH)",
                              r, theirs->version, checks[0].version);
    }
    return DLC_OK;
}

/* NCCL refuses two ranks on one GPU, unless NCCL_HOSTID makes it take them for two
 * machines. */
static dlc_status check_gpus(const dlc_endpoint *e, const rank_check *checks) {
    const dlc_rank_info *a = e->args->rank_info;
    for (int32_t r = 0; r < e->ranks; r++, a = DLC_NEXT(a)) {
        const dlc_rank_info *b = e->args->rank_info;
        for (int32_t k = 0; k < r; k++, b = DLC_NEXT(b))
            if (a->node == b->node && a->device_index == b->device_index &&
                strcmp(checks[r].host_id, checks[k].host_id) == 0)
                return host->fail(DLC_ERR_CONFIG,
                                  "ranks %d and %d share a GPU and NCCL_HOSTID (%s): "
                                  "give each process another one",
                                  k, r, checks[r].host_id);
    }
    return DLC_OK;
}

static dlc_status agree(const dlc_endpoint *e, ncclUniqueId *id) {
    const dlc_transport_args *args = e->args;
    rank_check mine, *checks = host->alloc((size_t)e->ranks * sizeof *checks);
    if (!checks)
        return DLC_ERR_NOMEM;
    fill_check(e, &mine);
    dlc_status status = args->oob_all_gather(args->job, &mine, sizeof mine, checks);
    if (status == DLC_OK)
        status = compare(e, checks);
    if (status == DLC_OK)
        status = check_gpus(e, checks);
    *id = checks[0].id;
    host->free(checks);
    return status;
}

/* ---- Opening -------------------------------------------------------------------- */

dlc_status endpoint_stream(dlc_endpoint *e, dlc_queue *queue, cudaStream_t *stream) {
    dlc_status status = dlc_cuda_stream(e->args->device_ops, e->args->device, queue,
                                        stream);
    return status == DLC_OK ? DLC_OK
                            : host->fail(status, "NCCL needs a device that runs CUDA");
}

/* The endpoint's queue and memory. The first work makes this thread's GPU current,
 * which NCCL then uses. */
static dlc_status open_queue(dlc_endpoint *e) {
    enum { TOKEN_BYTES = 64 };
    const dlc_device_ops *ops = e->args->device_ops;
    dlc_device *device = e->args->device;
    dlc_status status = ops->queues->queue_open(device, &e->queue);
    if (status == DLC_OK)
        status = endpoint_stream(e, e->queue, &e->stream);
    if (status == DLC_OK)
        status = ops->queues->event_open(device, &e->event);
    e->token = (dlc_memory){.size = sizeof e->token};
    if (status == DLC_OK)
        status = ops->alloc(device, TOKEN_BYTES, 0, &e->token);
    if (status == DLC_OK)
        status = ops->fill(device, e->queue, e->token.base, 0, TOKEN_BYTES);
    if (status == DLC_OK)
        status = ops->queues->queue_sync(device, e->queue);
    return status;
}

static dlc_status open_comm(dlc_endpoint *e, ncclUniqueId id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    return endpoint_await(
        e, nccl.CommInitRankConfig(&e->comm, e->ranks, id, e->rank, &config),
        "start a communicator");
}

dlc_status endpoint_open(const dlc_transport_args *args, dlc_endpoint **endpoint) {
    ncclUniqueId id;
    dlc_endpoint *e = host->alloc(sizeof *e);
    if (!e)
        return DLC_ERR_NOMEM;
    e->args = args;
    e->rank = args->rank;
    e->ranks = args->ranks;
    e->spin_ns = (uint64_t)host->get_int(args->settings, "spin_us") * 1000;
    dlc_status status = agree(e, &id);
    if (status == DLC_OK)
        status = open_queue(e);
    if (status == DLC_OK)
        status = open_comm(e, id);
    if (status != DLC_OK) {
        endpoint_close(e);
        return status;
    }
    *endpoint = e;
    return DLC_OK;
}

/* ---- Closing -------------------------------------------------------------------- */

/* Lets the last messages to other ranks complete, if nothing failed: for LIMIT_NS at
 * most, since the others have to close as well. Returns 1 if it did. */
static int finish(dlc_endpoint *e) {
    enum { LIMIT_NS = 1000000000 };
    const struct timespec nap = {0, 200000L};
    uint64_t start = host->now_ns();
    ncclResult_t state = nccl.CommFinalize(e->comm);
    while (state == ncclInProgress && host->now_ns() - start < LIMIT_NS &&
           e->args->check(e->args->job) == DLC_OK) {
        (void)nanosleep(&nap, NULL);
        if (nccl.CommGetAsyncError(e->comm, &state) != ncclSuccess)
            return 0;
    }
    return state == ncclSuccess;
}

static void deregister_all(dlc_endpoint *e) {
    while (e->registered) {
        registration *first = e->registered;
        if (e->comm)
            (void)nccl.CommDeregister(e->comm, first->handle);
        e->registered = first->next;
        host->free(first);
    }
}

void endpoint_close(dlc_endpoint *e) {
    if (!e)
        return;
    const dlc_device_ops *ops = e->args->device_ops;
    dlc_device *device = e->args->device;
    int idle = e->failed == DLC_OK && !e->requests;
    deregister_all(e);
    if (e->comm && idle && finish(e))
        (void)nccl.CommDestroy(e->comm);
    else if (e->comm)
        (void)nccl.CommAbort(e->comm);
    messages_close(e);
    if (e->event)
        ops->queues->event_close(device, e->event);
    if (e->queue)
        ops->queues->queue_close(device, e->queue);
    if (e->token.base)
        ops->free(device, &e->token);
    host->free(e);
}

/* ---- Registered memory --------------------------------------------------- */

/* Memory that NCCL does not register is copied through NCCL's buffers, like any other.
 */
dlc_status endpoint_register(dlc_endpoint *e, const dlc_memory *memory) {
    dlc_status status = endpoint_check(e);
    if (status != DLC_OK || !nccl.CommRegister)
        return status;
    registration *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    ncclResult_t result = nccl.CommRegister(e->comm, memory->base, memory->bytes,
                                            &made->handle);
    if (result != ncclSuccess && result != ncclInProgress) {
        host->log(DLC_LOG_DEBUG, "NCCL does not register %zu bytes: %s", memory->bytes,
                  nccl.GetErrorString(result));
        host->free(made);
        return DLC_OK;
    }
    status = endpoint_await(e, result, "register memory");
    if (status != DLC_OK) {
        host->free(made);
        return status;
    }
    made->next = e->registered;
    e->registered = made;
    return DLC_OK;
}

dlc_status endpoint_describe(dlc_endpoint *e, char *text, size_t text_bytes) {
    int count = 0;
    for (const registration *r = e->registered; r; r = r->next)
        count++;
    (void)snprintf(text, text_bytes, "NCCL %s, %s", library_version(),
                   count ? "registered memory" : "memory not registered");
    return DLC_OK;
}
