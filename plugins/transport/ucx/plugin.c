/* The UCX transport: any interconnect that UCX supports, from shared memory and TCP to
 * RDMA. Declares its options and operations, and predicts. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "ucx.h"

const dlc_host *host;

static dlc_status load(const dlc_host *the_host) {
    host = the_host;
    return DLC_OK;
}

/* ---- Predictions -------------------------------------------------------------------
 */

static int32_t count_nodes(const dlc_transport_args *args) {
    const dlc_rank_info *place = args->rank_info;
    int32_t nodes = 0;

    for (int32_t r = 0; r < args->ranks; r++, place = DLC_NEXT(place)) {
        const dlc_rank_info *before = args->rank_info;
        int32_t k = 0;
        while (k < r && before->node != place->node) {
            before = DLC_NEXT(before);
            k++;
        }
        nodes += k == r;
    }
    return nodes;
}

/* Lists UCX's transports to other machines. Takes some 10 ms and does not change, so
 * the answer is cached. "": none, or see the error. */
static dlc_status external_transports(const dlc_transport_args *args, char *text,
                                      size_t bytes) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char known[192], of[192];
    ucp_context_h context;
    char key[192] = "";
    dlc_status status = DLC_OK;

    if (args->settings)
        (void)snprintf(key, sizeof key, "%s %s",
                       host->get_string(args->settings, "tls"),
                       host->get_string(args->settings, "net_devices"));
    (void)pthread_mutex_lock(&lock);
    if (known[0] == '\0' || strcmp(of, key) != 0) {
        known[0] = '\0';
        status = context_open(args->settings, "", 2, 1, &context);
        if (status == DLC_OK) {
            names_of_context(context, 1, known, sizeof known);
            ucx.cleanup(context);
            memcpy(of, key, sizeof of);
        }
    }
    (void)snprintf(text, bytes, "%s", known);
    (void)pthread_mutex_unlock(&lock);
    return status;
}

/* Measured on one machine (docs/results/comm.md), where device memory is staged, and
 * between machines: the software's time of a step, and what is reached of a link. */
static void predict_near(const dlc_transport_args *args,
                         dlc_transport_prediction *prediction) {
    static const double staged = 2e9;
    dlc_transport_args link = *args;
    *prediction = dlc_predict(args, 0.8e-6, 0.6, 0.3);
    if (!args->device_ops || !DLC_CAN(args->device_ops, queues))
        return;
    if (!(args->link_bandwidth < staged))
        link.link_bandwidth = staged;
    *prediction = dlc_predict(&link, 30e-6, 0.5, 1);
}

static dlc_status transport_predict(const dlc_transport_args *args,
                                    dlc_transport_prediction *prediction, char *reason,
                                    size_t reason_bytes) {
    int32_t nodes = count_nodes(args);
    char names[192];

    if (nodes <= 1) {
        (void)snprintf(reason, reason_bytes, "UCX, %d rank%s on one node", args->ranks,
                       args->ranks == 1 ? "" : "s");
        predict_near(args, prediction);
        return DLC_OK;
    }
    dlc_status status = external_transports(args, names, sizeof names);
    if (status != DLC_OK) {
        (void)snprintf(reason, reason_bytes, "UCX does not start here");
    } else if (names[0] == '\0') {
        (void)snprintf(reason, reason_bytes, "UCX finds no network here");
    } else {
        (void)snprintf(reason, reason_bytes, "UCX over %s, %d nodes", names, nodes);
        *prediction = dlc_predict(args, 5e-6, 0.6, 0.9);
    }
    return DLC_OK;
}

/* ---- The tables --------------------------------------------------------------- */

static const dlc_option options[] = {
    DLC_INT("spin_us", "20", 0, 1000000, "microseconds to poll before sleeping"),
    DLC_STRING("tls", "",
               "UCX's transports, in the syntax of UCX_TLS (tcp,self); empty: all"),
    DLC_STRING("net_devices", "",
               "network devices, in the syntax of UCX_NET_DEVICES; empty: all"),
    DLC_OPTION(
        "chunk_bytes", DLC_OPT_BYTES, 0, "512K", 64, 1 << 26, NULL,
        "size of chunks through host memory, for devices that UCX does not support"),
    DLC_OPTIONS_END,
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
    .describe = endpoint_describe,
    .wait_any = wait_any,
    .wakeup = wait_wakeup,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_TRANSPORT,
     .name = "ucx",
     .help = "UCX: RDMA, TCP or shared memory, between any machines",
     .caps = DLC_TRANSPORT_DEVICE_MEMORY,
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("ucx", DLC_VERSION, "BSD-2-Clause", features, load);
