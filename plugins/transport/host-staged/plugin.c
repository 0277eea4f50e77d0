/* The host-staged transport: ranks of one machine, through shared memory that both
 * sides copy to and from. Works between any devices that can copy to host memory. */
#include <stdio.h>

#include "../shm/shm.h"

/* Between CPUs: measured, docs/results/comm.md. What devices exchange is copied to host
 * memory and back, at most at this bandwidth. */
static const double overhead = 0.1e-6, device_overhead = 20e-6, staged = 4e9;

static dlc_status transport_predict(const dlc_transport_args *args,
                                    dlc_transport_prediction *prediction, char *reason,
                                    size_t reason_bytes) {
    dlc_transport_args link = *args;
    if (!endpoint_same_node(args, reason, reason_bytes))
        return DLC_OK;
    (void)snprintf(reason, reason_bytes, "shared memory, %d rank%s on one node",
                   args->ranks, args->ranks == 1 ? "" : "s");
    *prediction = dlc_predict(args, overhead, 1.7, 0.7);
    if (!args->device_ops || !DLC_CAN(args->device_ops, queues))
        return DLC_OK;
    if (!(args->link_bandwidth < staged))
        link.link_bandwidth = staged;
    *prediction = dlc_predict(&link, device_overhead, 0.5, 1);
    return DLC_OK;
}

static dlc_status transport_open(const dlc_transport_args *args,
                                 dlc_endpoint **endpoint) {
    dlc_status status = endpoint_open(args, endpoint);
    if (status == DLC_OK)
        endpoint_pin(*endpoint);
    return status;
}

static const dlc_option options[] = {
    SHM_OPTIONS,
    DLC_OPTIONS_END,
};

static const dlc_transport_ops ops = {
    .size = sizeof ops,
    .predict = transport_predict,
    .open = transport_open,
    .close = endpoint_close,
    .send = messages_send,
    .recv = messages_recv,
    .test = messages_test,
    .wait = messages_wait,
    .all_reduce = staged_all_reduce,
    .reduce_scatter = staged_reduce_scatter,
    .all_gather = staged_all_gather,
    .broadcast = staged_broadcast,
    .wait_any = wait_any,
    .wakeup = wait_wakeup,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_TRANSPORT,
     .name = "host-staged",
     .help = "shared memory between the ranks of one machine",
     .caps = DLC_TRANSPORT_PAIRWISE | DLC_TRANSPORT_DEVICE_MEMORY,
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("host-staged", DLC_VERSION, "BSD-2-Clause", features, endpoint_load);
