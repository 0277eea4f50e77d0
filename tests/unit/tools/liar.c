/* A faulty transport for tests of `dlcore bench comm`: wraps another one (the file
 * named by TEST_WRAPPED) and gives rank 0 three wrong elements in an all-reduce. */
#include <dlfcn.h>
#include <stdlib.h>

#include <dlcore/transport.h>

static const dlc_transport_ops *inner;
static int lies; /* in this process: it is rank 0 */

static dlc_status predict(const dlc_transport_args *args,
                          dlc_transport_prediction *prediction, char *reason,
                          size_t reason_bytes) {
    return inner->predict(args, prediction, reason, reason_bytes);
}

static dlc_status open_endpoint(const dlc_transport_args *args,
                                dlc_endpoint **endpoint) {
    lies = args->rank == 0;
    return inner->open(args, endpoint);
}

static void close_endpoint(dlc_endpoint *endpoint) {
    inner->close(endpoint);
}

static dlc_status send(dlc_endpoint *endpoint, int32_t peer, dlc_tag tag,
                       const void *buffer, size_t bytes, dlc_request **request) {
    return inner->send(endpoint, peer, tag, buffer, bytes, request);
}

static dlc_status recv(dlc_endpoint *endpoint, int32_t peer, dlc_tag tag, void *buffer,
                       size_t bytes, dlc_request **request) {
    return inner->recv(endpoint, peer, tag, buffer, bytes, request);
}

static dlc_status test(dlc_endpoint *endpoint, dlc_request *request, int *done) {
    return inner->test(endpoint, request, done);
}

static dlc_status wait(dlc_endpoint *endpoint, dlc_request *request) {
    return inner->wait(endpoint, request);
}

static dlc_status all_reduce(dlc_endpoint *endpoint, float *buffer, size_t count) {
    dlc_status status = inner->all_reduce(endpoint, buffer, count);
    for (size_t i = 0; status == DLC_OK && lies && i < 3; i++)
        buffer[i * (count - 1) / 2] += 1;
    return status;
}

static const dlc_transport_ops ops = {.size = sizeof ops,
                                      .predict = predict,
                                      .open = open_endpoint,
                                      .close = close_endpoint,
                                      .send = send,
                                      .recv = recv,
                                      .test = test,
                                      .wait = wait,
                                      .all_reduce = all_reduce};

static dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_TRANSPORT,
     .name = "liar",
     .help = "another transport, with wrong sums",
     .caps = DLC_TRANSPORT_PAIRWISE,
     .ops = &ops},
    DLC_FEATURES_END,
};

static dlc_status load(const dlc_host *host) {
    const char *path = getenv("TEST_WRAPPED");
    void *file = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) : NULL;
    const dlc_plugin *plugin = file ? dlsym(file, DLC_PLUGIN_SYMBOL) : NULL;
    if (!plugin)
        return host->fail(DLC_ERR_UNAVAILABLE, "TEST_WRAPPED names no plugin");
    inner = plugin->features->ops;
    features->options = plugin->features->options;
    return plugin->load ? plugin->load(host) : DLC_OK;
}

DLC_PLUGIN("liar", "1", "BSD-2-Clause", features, load);
