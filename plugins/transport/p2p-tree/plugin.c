/* The p2p-tree transport: ranks of one machine that map each other's memory.
 * Collectives read and write registered memory in place; messages, and collectives in
 * other memory, go through the memory files of ../shm. */
#include <stdio.h>
#include <string.h>

#include "p2p.h"

static int can_share(const dlc_transport_args *args) {
    const dlc_device_ops *ops = args->device_ops;
    return DLC_HAS(ops, ipc_import) && ops->ipc_export && ops->ipc_import;
}

/* All ranks use one kind of device, and it can share memory. */
static int devices_can_share(const dlc_transport_args *args, char *reason,
                             size_t reason_bytes) {
    const dlc_rank_info *first = args->rank_info, *place = first;

    for (int32_t r = 0; r < args->ranks; r++, place = DLC_NEXT(place)) {
        if (strncmp(place->device, first->device, sizeof place->device) == 0)
            continue;
        (void)snprintf(reason, reason_bytes,
                       "rank %d computes on %.31s, rank 0 on %.31s", r, place->device,
                       first->device);
        return 0;
    }
    if (args->device_ops && !can_share(args)) {
        (void)snprintf(reason, reason_bytes,
                       "%.31s device of rank 0 cannot share memory", first->device);
        return 0;
    }
    return 1;
}

/* Can rank `from` read and write the memory of rank `to`? */
static dlc_status can_access(const dlc_transport_args *args, const dlc_rank_info *from,
                             const dlc_rank_info *to, int *can) {
    if (from->device_index == to->device_index) {
        *can = 1;
        return DLC_OK;
    }
    return args->device_ops->can_access_peer(args->device, from->device_index,
                                             to->device_index, can);
}

/* Can all pairs of ranks access each other's memory, both ways? */
static dlc_status all_can_access(const dlc_transport_args *args, char *reason,
                                 size_t reason_bytes, int *all) {
    const dlc_rank_info *from = args->rank_info, *to;

    *all = args->device || !args->no_peer_access;
    if (!*all)
        (void)snprintf(reason, reason_bytes,
                       "not all of the %.31s devices are linked directly or by PCIe "
                       "without the CPUs in between",
                       from->device);
    if (!args->device || !args->device_ops ||
        !DLC_CAN(args->device_ops, can_access_peer))
        return DLC_OK;
    for (int32_t i = 0; i < args->ranks; i++, from = DLC_NEXT(from)) {
        to = args->rank_info;
        for (int32_t k = 0; k < args->ranks; k++, to = DLC_NEXT(to)) {
            dlc_status status = can_access(args, from, to, all);
            if (status != DLC_OK)
                return status;
            if (*all)
                continue;
            (void)snprintf(
                reason, reason_bytes,
                "%.31s %d of rank %d cannot access the memory of %.31s %d of "
                "rank %d",
                from->device, from->device_index, i, to->device, to->device_index, k);
            return DLC_OK;
        }
    }
    return DLC_OK;
}

/* Between CPUs: measured, docs/results/comm.md. Steps of devices are kernels that wait
 * for each other. */
static const double overhead = 0.05e-6, device_overhead = 8e-6;

static dlc_status transport_predict(const dlc_transport_args *args,
                                    dlc_transport_prediction *prediction, char *reason,
                                    size_t reason_bytes) {
    int all = 0;

    if (!endpoint_same_node(args, reason, reason_bytes) ||
        !devices_can_share(args, reason, reason_bytes))
        return DLC_OK;
    dlc_status status = all_can_access(args, reason, reason_bytes, &all);
    if (status != DLC_OK || !all)
        return status;
    (void)snprintf(reason, reason_bytes,
                   "%d rank%s of one node map%s each other's memory", args->ranks,
                   args->ranks == 1 ? "" : "s", args->ranks == 1 ? "s" : "");
    *prediction = DLC_CAN(args->device_ops, queues)
                      ? dlc_predict(args, device_overhead, 0.5, 0.7)
                      : dlc_predict(args, overhead, 4, 1);
    return DLC_OK;
}

/* Are the ranks on several sockets or NUMA nodes? */
static int spans_sockets(const dlc_transport_args *args) {
    const dlc_rank_info *first = args->rank_info, *place = first;

    for (int32_t r = 0; r < args->ranks; r++, place = DLC_NEXT(place))
        if (DLC_HAS(place, numa) && DLC_HAS(first, numa) &&
            (place->package != first->package || place->numa != first->numa))
            return 1;
    return 0;
}

static void transport_close(dlc_endpoint *e) {
    if (e)
        arenas_close(e);
    endpoint_close(e);
}

static dlc_status transport_open(const dlc_transport_args *args,
                                 dlc_endpoint **endpoint) {
    const char *schedule = host->get_string(args->settings, "schedule");
    /* Among two ranks there is no nearer pair. */
    int tree = strcmp(schedule, "tree") == 0 ||
               (strcmp(schedule, "auto") == 0 && args->ranks > 2 &&
                spans_sockets(args));
    dlc_endpoint *e = NULL;

    if (!can_share(args))
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "the device of rank %d cannot share memory: use another "
                          "transport",
                          args->rank);
    dlc_status status = endpoint_open(args, &e);
    if (status == DLC_OK)
        status = arenas_open(e, tree);
    if (status == DLC_OK)
        status = bounce_open(e);
    if (status == DLC_OK)
        status = semaphores_open(e);
    if (status != DLC_OK) {
        transport_close(e);
        return status;
    }
    *endpoint = e;
    return DLC_OK;
}

static dlc_status transport_describe(dlc_endpoint *e, char *text, size_t text_bytes) {
    const char *steps = e->host_memory || e->ranks == 1 ? ""
                        : e->arenas->semaphores
                            ? ", stream-ordered"
                            : ", the CPU waits between steps: the "
                              "device has no semaphores for its queues";
    (void)snprintf(text, text_bytes, "%s schedule%s",
                   e->arenas->tree ? "tree" : "direct", steps);
    return DLC_OK;
}

/* ---- Collectives ----------------------------------------------------------- */

typedef dlc_status collective(dlc_endpoint *endpoint, float *buffer, size_t count);

/* Runs in place in registered memory; otherwise staged where the CPU can read it, else
 * through the bounce buffer. Small buffers are staged as well: that takes one step. */
static dlc_status run(dlc_endpoint *e, call_kind kind, float *buffer, size_t count,
                      collective *in_host_memory, collective *in_any) {
    call c = {.kind = kind, .count = count};

    if (e->ranks == 1 || count == 0)
        return DLC_OK;
    if (kind == ALL_REDUCE && staged_is_small(e, count))
        return in_host_memory(e, buffer, count);
    if (arenas_find(e, buffer, count * sizeof *buffer, &c))
        return call_run(e, &c);
    return e->host_memory ? in_host_memory(e, buffer, count) : in_any(e, buffer, count);
}

static dlc_status all_reduce(dlc_endpoint *e, float *buffer, size_t count) {
    return run(e, ALL_REDUCE, buffer, count, staged_all_reduce, bounce_all_reduce);
}

static dlc_status reduce_scatter(dlc_endpoint *e, float *buffer, size_t count) {
    return run(e, REDUCE_SCATTER, buffer, count, staged_reduce_scatter,
               bounce_all_reduce);
}

static dlc_status all_gather(dlc_endpoint *e, float *buffer, size_t count) {
    return run(e, ALL_GATHER, buffer, count, staged_all_gather, staged_all_gather);
}

static dlc_status broadcast(dlc_endpoint *e, int32_t root, void *buffer, size_t bytes) {
    call c = {.kind = BROADCAST, .count = bytes};

    if (e->ranks > 1 && bytes > 0 && root >= 0 && root < e->ranks &&
        arenas_find(e, buffer, bytes, &c))
        return direct_broadcast(e, &c, root);
    return staged_broadcast(e, root, buffer, bytes);
}

/* Where ranks are far apart, the tree reduces the gradients first. */
static dlc_status reduce_first(dlc_endpoint *e, update *u) {
    call sum = u->gradients;
    sum.kind = REDUCE_SCATTER;
    u->is_reduced = 1;
    return tree_run(e, &sum);
}

static dlc_status run_update(dlc_endpoint *e, float *gradients, float *weights,
                             size_t count, const dlc_update_range *steps,
                             int32_t step_count) {
    update u = {.gradients = {.kind = UPDATE, .count = count},
                .weights = {.kind = UPDATE, .count = count},
                .steps = steps,
                .count = step_count};

    if (!e->host_memory)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "the fused update needs memory that the CPU "
                          "can read");
    if (!arenas_find(e, gradients, count * sizeof *gradients, &u.gradients) ||
        !arenas_find(e, weights, count * sizeof *weights, &u.weights))
        return host->fail(DLC_ERR_INTERNAL, "an update outside of registered memory");
    dlc_status status = e->arenas->tree ? reduce_first(e, &u) : DLC_OK;
    return status == DLC_OK ? direct_update(e, &u) : status;
}

static const dlc_option options[] = {
    SHM_OPTIONS,
    DLC_CHOICE("schedule", "auto", "auto|direct|tree",
               "auto: tree where ranks are on several sockets or NUMA nodes"),
    DLC_OPTIONS_END,
};

static const dlc_transport_queue_ops queue_ops = {
    .size = sizeof queue_ops,
    .all_reduce = queue_all_reduce,
    .reduce_scatter = queue_reduce_scatter,
    .all_gather = queue_all_gather,
    .poll = semaphores_poll,
    .supported = supports_queues,
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
    .all_reduce = all_reduce,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .broadcast = broadcast,
    .wait_any = wait_any,
    .wakeup = wait_wakeup,
    .register_buffer = arenas_register,
    .describe = transport_describe,
    .queues = &queue_ops,
    .fused_update = run_update,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_TRANSPORT,
     .name = "p2p-tree",
     .help = "the ranks of one machine map each other's memory",
     .caps = DLC_TRANSPORT_PAIRWISE | DLC_TRANSPORT_DEVICE_MEMORY |
             DLC_TRANSPORT_CAPTURABLE,
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("p2p-tree", DLC_VERSION, "BSD-2-Clause", features, endpoint_load);
