/* The mpi transport: ranks started by mpirun or srun communicate through the MPI
 * library, whose collectives reduce in an order of their own. Declares its options and
 * operations, and predicts. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "endpoint.h"

const dlc_host *host;

static dlc_status load(const dlc_host *the_host) {
    host = the_host;
    return DLC_OK;
}

/* The CPU reads and writes the memory of a device without queues. */
static int is_host_memory(const dlc_transport_args *args) {
    return !DLC_CAN(args->device_ops, queues);
}

static int is_one_node(const dlc_transport_args *args) {
    const dlc_rank_info *first = args->rank_info, *info = first;
    for (int32_t r = 0; r < args->ranks; r++, info = DLC_NEXT(info))
        if (info->node != first->node)
            return 0;
    return 1;
}

/* On one machine: measured, docs/results/comm.md. */
static dlc_transport_prediction predict(const dlc_transport_args *args) {
    static const double overhead = 7e-6;
    return is_one_node(args) ? dlc_predict(args, overhead, 0.12, 0.06)
                             : dlc_predict(args, overhead, 0.4, 0.6);
}

static dlc_status transport_predict(const dlc_transport_args *args,
                                    dlc_transport_prediction *prediction, char *reason,
                                    size_t reason_bytes) {
    int size = world_size();
    char library[64];

    world_library(library, sizeof library);
    if (size == 0) {
        (void)snprintf(reason, reason_bytes, "not started by mpirun");
    } else if (args->ranks > size) {
        (void)snprintf(reason, reason_bytes, "mpirun started %d process%s, not %d",
                       size, size == 1 ? "" : "es", args->ranks);
    } else if (!is_host_memory(args) && !world_is_cuda_aware()) {
        (void)snprintf(reason, reason_bytes, "%s cannot read the device's memory",
                       library);
    } else {
        *prediction = predict(args);
        (void)snprintf(reason, reason_bytes, "%s, %d of %d processes", library,
                       args->ranks, size);
    }
    return DLC_OK;
}

/* Polling slows nobody down where every rank of this machine has a core. */
static uint64_t spin_time(const dlc_transport_args *args) {
    int64_t us = host->get_int(args->settings, "spin_us");
    const dlc_rank_info *first = args->rank_info, *place = first;
    long cores = sysconf(_SC_NPROCESSORS_ONLN), ranks = 0;
    int32_t node = 0;

    if (us >= 0)
        return (uint64_t)us * 1000;
    for (int32_t r = 0; r < args->ranks; r++, place = DLC_NEXT(place))
        node = r == args->rank ? place->node : node;
    place = first;
    for (int32_t r = 0; r < args->ranks; r++, place = DLC_NEXT(place))
        ranks += place->node == node;
    return ranks > cores ? 0 : 50000;
}

static void transport_close(dlc_endpoint *e) {
    if (!e)
        return;
    if (e->has_comm) {
        messages_close(e);
        world_close(e);
    }
    for (int32_t r = 0; e->peers && r < e->args->ranks; r++) {
        tags_free(&e->peers[r].out);
        tags_free(&e->peers[r].in);
    }
    if (e->sum.base)
        e->args->device_ops->free(e->args->device, &e->sum);
    host->free(e->slices);
    host->free(e->peers);
    host->free(e);
}

static dlc_status transport_open(const dlc_transport_args *args,
                                 dlc_endpoint **endpoint) {
    dlc_status status = DLC_ERR_NOMEM;
    dlc_endpoint *e = host->alloc(sizeof *e);
    if (!e)
        return DLC_ERR_NOMEM;
    e->args = args;
    e->spin_ns = spin_time(args);
    e->peers = host->alloc((size_t)args->ranks * sizeof *e->peers);
    e->slices = host->alloc(2 * (size_t)args->ranks * sizeof *e->slices);
    if (e->peers && e->slices)
        status = world_open(e);
    if (status != DLC_OK) {
        e->failed = 1;
        transport_close(e);
        return status;
    }
    *endpoint = e;
    return DLC_OK;
}

static dlc_status transport_describe(dlc_endpoint *e, char *text, size_t text_bytes) {
    (void)e;
    world_library(text, text_bytes);
    return DLC_OK;
}

static const dlc_option options[] = {
    DLC_INT("spin_us", "-1", -1, 1000000,
            "microseconds to poll before sleeping; -1: 50, or 0 where ranks "
            "share cores"),
    DLC_OPTIONS_END,
};

static const dlc_transport_ops ops = {
    .size = sizeof ops,
    .predict = transport_predict,
    .open = transport_open,
    .close = transport_close,
    .send = messages_send,
    .recv = messages_recv,
    .test = messages_test,
    .wait = messages_wait,
    .all_reduce = collective_all_reduce,
    .reduce_scatter = collective_reduce_scatter,
    .all_gather = collective_all_gather,
    .broadcast = collective_broadcast,
    .describe = transport_describe,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_TRANSPORT,
     .name = "mpi",
     .help = "the MPI library, in jobs started by mpirun",
     .caps = DLC_TRANSPORT_DEVICE_MEMORY,
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("mpi", DLC_VERSION, "BSD-2-Clause", features, load);
