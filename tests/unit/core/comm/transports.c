/* A plugin of transports that only predict, for test_choose: good and better
 * connect any ranks, near those of one node, far none; broken fails; elsewhere needs
 * another device. */
#include <stdio.h>

#include <dlcore/transport.h>

static const dlc_host *host;

static dlc_status load(const dlc_host *the_host) {
    host = the_host;
    return DLC_OK;
}

/* What it reaches of the link, in percent. */
static dlc_status reach(const dlc_transport_args *args, int32_t base,
                        const char *because, dlc_transport_prediction *prediction,
                        char *reason, size_t reason_bytes) {
    /* The settings must have been made for this transport. */
    int32_t bonus = 0;
    if (args->settings)
        bonus = (int32_t)host->get_int(args->settings, "bonus");
    double part = (double)(base + bonus) / 100;
    *prediction = dlc_predict(args, 1e-6, part, part);
    (void)snprintf(reason, reason_bytes, "%s, %d ranks", because, args->ranks);
    return DLC_OK;
}

static dlc_status predict_good(const dlc_transport_args *args,
                               dlc_transport_prediction *prediction, char *reason,
                               size_t reason_bytes) {
    return reach(args, 20, "slow but sure", prediction, reason, reason_bytes);
}

static dlc_status predict_better(const dlc_transport_args *args,
                                 dlc_transport_prediction *prediction, char *reason,
                                 size_t reason_bytes) {
    return reach(args, 60, "fast", prediction, reason, reason_bytes);
}

static dlc_status predict_far(const dlc_transport_args *args,
                              dlc_transport_prediction *prediction, char *reason,
                              size_t reason_bytes) {
    (void)args;
    (void)prediction;
    (void)snprintf(reason, reason_bytes, "rank 1 is out of reach");
    return DLC_OK;
}

static dlc_status predict_broken(const dlc_transport_args *args,
                                 dlc_transport_prediction *prediction, char *reason,
                                 size_t reason_bytes) {
    (void)args;
    (void)prediction;
    (void)reason;
    (void)reason_bytes;
    return host->fail(DLC_ERR_IO, "the adapter does not answer");
}

/* Connects ranks of one node whose packages are known. */
static dlc_status predict_near(const dlc_transport_args *args,
                               dlc_transport_prediction *prediction, char *reason,
                               size_t reason_bytes) {
    const dlc_rank_info *info = args->rank_info;
    for (int32_t r = 0; r < args->ranks; r++, info = DLC_NEXT(info)) {
        if (info->package < 0) {
            (void)snprintf(reason, reason_bytes, "package of rank %d not known", r);
            return DLC_OK;
        }
        if (info->node != args->rank_info->node) {
            (void)snprintf(reason, reason_bytes, "rank %d is on another node", r);
            return DLC_OK;
        }
    }
    return reach(args, 80, "one node", prediction, reason, reason_bytes);
}

static dlc_status never_open(const dlc_transport_args *args, dlc_endpoint **endpoint) {
    (void)args;
    (void)endpoint;
    return DLC_ERR_UNSUPPORTED;
}

static void never_close(dlc_endpoint *endpoint) {
    (void)endpoint;
}

static dlc_status never_send(dlc_endpoint *endpoint, int32_t peer, dlc_tag tag,
                             const void *buffer, size_t bytes, dlc_request **request) {
    (void)endpoint;
    (void)peer;
    (void)tag;
    (void)buffer;
    (void)bytes;
    (void)request;
    return DLC_ERR_UNSUPPORTED;
}

static dlc_status never_recv(dlc_endpoint *endpoint, int32_t peer, dlc_tag tag,
                             void *buffer, size_t bytes, dlc_request **request) {
    return never_send(endpoint, peer, tag, buffer, bytes, request);
}

static dlc_status never_test(dlc_endpoint *endpoint, dlc_request *request, int *done) {
    (void)endpoint;
    (void)request;
    (void)done;
    return DLC_ERR_UNSUPPORTED;
}

static dlc_status never_wait(dlc_endpoint *endpoint, dlc_request *request) {
    (void)endpoint;
    (void)request;
    return DLC_ERR_UNSUPPORTED;
}

#define OPS(predict_) \
    { \
        .size = sizeof(dlc_transport_ops), .predict = (predict_), .open = never_open, \
        .close = never_close, .send = never_send, .recv = never_recv, \
        .test = never_test, .wait = never_wait \
    }

static const dlc_transport_ops good = OPS(predict_good), better = OPS(predict_better),
                               far_off = OPS(predict_far), broken = OPS(predict_broken),
                               near_by = OPS(predict_near);

static const dlc_option options[] = {
    DLC_INT("bonus", "0", 0, 100, "added to the percentage"),
    DLC_OPTIONS_END,
};

#define FEATURE(name_, device_, ops_) \
    { \
        .size = sizeof(dlc_feature), .kind = DLC_KIND_TRANSPORT, .name = (name_), \
        .help = "for tests", .device = (device_), .options = options, .ops = (ops_) \
    }

static const dlc_feature features[] = {
    FEATURE("good", NULL, &good),
    FEATURE("better", NULL, &better),
    FEATURE("far", NULL, &far_off),
    FEATURE("broken", NULL, &broken),
    FEATURE("near", NULL, &near_by),
    FEATURE("elsewhere", "abacus", &better),
    DLC_FEATURES_END,
};

DLC_PLUGIN("comm-test-transports", "1", "BSD-2-Clause", features, load);
