/* The nccl transport: GPUs of one or many machines, over NVLink, PCIe and networks,
 * reduced in NCCL's own order. Declares its options and operations, and computes its
 * predictions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_transport.h"

const dlc_host *host;

static dlc_status load(const dlc_host *the_host) {
    host = the_host;
    return DLC_OK;
}

/* ---- Predictions -------------------------------------------------------------------
 */

/* Do all ranks compute on GPUs, each on another one? */
static int has_gpus(const dlc_transport_args *args, char *reason, size_t reason_bytes) {
    const dlc_rank_info *a = args->rank_info;
    for (int32_t r = 0; r < args->ranks; r++, a = DLC_NEXT(a)) {
        if (strcmp(a->device, DLC_CUDA_DEVICE) != 0) {
            (void)snprintf(reason, reason_bytes,
                           "NCCL needs GPUs, and rank %d computes on %.31s", r,
                           a->device);
            return 0;
        }
        const dlc_rank_info *b = args->rank_info;
        for (int32_t k = 0; k < r; k++, b = DLC_NEXT(b)) {
            if (a->node != b->node || a->device_index != b->device_index ||
                getenv("NCCL_HOSTID"))
                continue;
            (void)snprintf(reason, reason_bytes,
                           "ranks %d and %d share GPU %d, which NCCL refuses (unless "
                           "each process has another NCCL_HOSTID)",
                           k, r, a->device_index);
            return 0;
        }
    }
    return 1;
}

static int32_t count_nodes(const dlc_transport_args *args) {
    const dlc_rank_info *place = args->rank_info;
    int32_t nodes = 0;
    for (int32_t r = 0; r < args->ranks; r++, place = DLC_NEXT(place)) {
        const dlc_rank_info *before = args->rank_info;
        int32_t k = 0;
        for (; k < r && before->node != place->node; k++)
            before = DLC_NEXT(before);
        nodes += k == r;
    }
    return nodes;
}

/* NCCL's own algorithms use all adapters of a machine at once, and send a byte between
 * machines once for all of its GPUs. */
static dlc_transport_prediction predict(const dlc_transport_args *args, int32_t nodes) {
    static const double overhead = 4e-6;
    dlc_transport_args link = *args;
    if (nodes > 1 && nodes < args->ranks)
        link.link_bandwidth *= (double)args->ranks / nodes;
    return dlc_predict(&link, overhead, 0.3, 0.85);
}

static dlc_status transport_predict(const dlc_transport_args *args,
                                    dlc_transport_prediction *prediction, char *reason,
                                    size_t reason_bytes) {
    if (!has_gpus(args, reason, reason_bytes))
        return DLC_OK;
    if (args->tagged_messages) {
        (void)snprintf(reason, reason_bytes,
                       "NCCL matches messages by their order, and ranks that are in "
                       "different iterations have none");
        return DLC_OK;
    }
    const char *problem = library_open();
    if (problem) {
        (void)snprintf(reason, reason_bytes, "NCCL cannot be used here: %s", problem);
        return DLC_OK;
    }
    int32_t nodes = count_nodes(args);
    (void)snprintf(reason, reason_bytes, "NCCL %s, %d GPU%s on %d node%s",
                   library_version(), args->ranks, args->ranks == 1 ? "" : "s", nodes,
                   nodes == 1 ? "" : "s");
    *prediction = predict(args, nodes);
    return DLC_OK;
}

/* ---- The tables -------------------------------------------------------------- */

static const dlc_option options[] = {
    DLC_INT("spin_us", "20", 0, 1000000, "microseconds to poll before sleeping"),
    DLC_OPTIONS_END,
};

static const dlc_transport_queue_ops queue_ops = {
    .size = sizeof queue_ops,
    .all_reduce = queue_all_reduce,
    .reduce_scatter = queue_reduce_scatter,
    .all_gather = queue_all_gather,
    .poll = endpoint_poll,
};

static const dlc_transport_ops ops = {
    .size = sizeof ops,
    .predict = transport_predict,
    .open = endpoint_open,
    .close = endpoint_close,
    .send = message_send,
    .recv = message_recv,
    .test = request_test,
    .wait = request_wait,
    .all_reduce = all_reduce,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .broadcast = broadcast,
    .register_buffer = endpoint_register,
    .describe = endpoint_describe,
    .queues = &queue_ops,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_TRANSPORT,
     .name = "nccl",
     .help = "NCCL: GPUs over NVLink, PCIe and networks",
     .caps = DLC_TRANSPORT_DEVICE_MEMORY | DLC_TRANSPORT_CAPTURABLE,
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("nccl", DLC_VERSION, "BSD-2-Clause", features, load);
