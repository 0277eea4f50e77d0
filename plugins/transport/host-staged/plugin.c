/* The host-staged transport: ranks of one machine, through shared memory that both
 * sides copy to and from. Works between any devices that can copy to host memory. */
#include <stdio.h>

#include "../shm/shm.h"

static dlc_status transport_score(const dlc_transport_args *args, int32_t *score,
                                  char *reason, size_t reason_bytes) {
    int same_node = endpoint_same_node(args, reason, reason_bytes);
    if (same_node)
        (void)snprintf(reason, reason_bytes, "shared memory, %d rank%s on one node",
                       args->ranks, args->ranks == 1 ? "" : "s");
    *score = same_node ? 50 : 0;
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
    .score = transport_score,
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
