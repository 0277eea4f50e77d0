/* Layers, a data source that opens nothing, a transport and a consistency model, for
 * tests of what a job says about the faults of a plugin: y = w * x for each element,
 * with one weight. The option `fault` chooses what goes wrong, and the type "later"
 * belongs to a family that infers nothing without a device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dlcore/consistency.h>
#include <dlcore/data.h>
#include <dlcore/layer.h>

#include "plain_family.h"

struct dlc_layer {
    const char *fault;
    int64_t count;
};

static int is(const char *fault, const char *name) {
    return strcmp(fault, name) == 0;
}

/* Prints, and leaves the working directory, as libraries below a plugin may. */
static void stray(void) {
    const char *folder = getenv("FAULTY_FOLDER"); // NOLINT(concurrency-mt-unsafe)
    if (!folder)
        return;
    printf("printed by a plugin\n");
    (void)fflush(stdout);
    (void)!write(STDOUT_FILENO, "written by a plugin\n", 20);
    if (chdir(folder) != 0)
        abort();
}

static void crash(void) {
    abort();
}

static void hang(void) {
    for (;;)
        (void)pause();
}

static dlc_status create(const dlc_layer_args *args, dlc_layer **layer) {
    const char *fault = host->get_string(args->settings, "fault");
    stray();
    if (is(fault, "exit_in_create"))
        exit(0); // NOLINT(concurrency-mt-unsafe)
    if (is(fault, "crash_at_exit"))
        (void)atexit(crash);
    if (is(fault, "hang_at_exit"))
        (void)atexit(hang);
    if (is(fault, "silent_create"))
        return DLC_ERR_IO;
    if (is(fault, "no_layer"))
        return DLC_OK;
    dlc_layer *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->fault = fault;
    *layer = made;
    return DLC_OK;
}

static void destroy(dlc_layer *layer) {
    host->free(layer);
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    (void)layer;
    shapes->out[0] = shapes->in[0];
    shapes->params = 1;
    shapes->param[0].name = "weight";
    shapes->param[0].shape = (dlc_shape){.rank = 1, .dims = {1}};
    shapes->param[0].filler = "constant(1)";
    return DLC_OK;
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    memory->in[0].layout = memory->out[0].layout = NULL;
    memory->in[0].bytes = memory->out[0].bytes = 0;
    memory->in[0].dtype = is(layer->fault, "odd_input") ? DLC_F64 : DLC_F32;
    memory->out[0].dtype = DLC_F32;
    memory->reads_in = 1;
    layer->count = dlc_shape_count(&memory->in[0].shape);
    return DLC_OK;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const float *x = run->in[0], *weight = run->param[0];
    float *y = run->out[0];
    if (is(layer->fault, "strays"))
        stray();
    if (is(layer->fault, "exit_in_forward"))
        exit(0); // NOLINT(concurrency-mt-unsafe)
    if (is(layer->fault, "quit_in_forward"))
        _exit(0);
    if (is(layer->fault, "crash_in_forward"))
        abort();
    if (is(layer->fault, "silent_forward"))
        return DLC_ERR_IO;
    for (int64_t i = 0; i < layer->count; i++)
        y[i] = *weight * x[i];
    return DLC_OK;
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    const float *x = run->in[0], *weight = run->param[0], *dy = run->out_diff[0];
    float *dx = run->in_diff[0], sum = 0;
    for (int64_t i = 0; i < layer->count; i++)
        sum += dy[i] * x[i];
    *(float *)run->param_diff[0] = sum;
    for (int64_t i = 0; dx && i < layer->count; i++)
        dx[i] = dy[i] * *weight;
    return DLC_OK;
}

static dlc_status family_open(const dlc_family_args *args, void **context) {
    (void)args;
    *context = NULL;
    return getenv("FAULTY_FAMILY") // NOLINT(concurrency-mt-unsafe)
               ? DLC_ERR_UNSUPPORTED
               : DLC_OK;
}

#define FAMILY(NAME, INFERS) \
    { \
        .size = sizeof(dlc_family), .name = (NAME), .infers_without_device = (INFERS), \
        .open = family_open, .close = family_close, .same_layout = same_layout, \
        .reorder_create = reorder_create, .reorder_run = reorder_run, \
        .reorder_destroy = reorder_destroy \
    }
#define OPS(FAMILY) \
    { \
        .size = sizeof(dlc_layer_ops), .family = (FAMILY), .create = create, \
        .destroy = destroy, .infer = infer, .prepare = prepare, .forward = forward, \
        .backward = backward \
    }
static const dlc_family faulty = FAMILY("faulty", 1), later = FAMILY("later", 0);
static const dlc_layer_ops faulty_ops = OPS(&faulty), later_ops = OPS(&later);

static dlc_status hollow_open(const dlc_data_args *args, dlc_source **source) {
    (void)args;
    *source = NULL;
    return DLC_OK;
}

static void hollow_close(dlc_source *source) {
    (void)source;
}

static dlc_status hollow_describe(dlc_source *source, dlc_data_info *info) {
    (void)info;
    return *(char *)source ? DLC_OK : DLC_ERR_DATA; /* there is none */
}

static dlc_status hollow_read(dlc_source *source, int32_t n, const int64_t *index,
                              void *data, int32_t *labels) {
    (void)n;
    (void)index;
    (void)data;
    (void)labels;
    return hollow_describe(source, NULL);
}

static const dlc_data_ops hollow_ops = {.size = sizeof(dlc_data_ops),
                                        .open = hollow_open,
                                        .close = hollow_close,
                                        .describe = hollow_describe,
                                        .read = hollow_read};

/* ---- A transport, whose wait fails without a sentence -------------------------- */

struct dlc_endpoint {
    char unused;
};

static dlc_status transport_predict(const dlc_transport_args *args,
                                    dlc_transport_prediction *prediction, char *reason,
                                    size_t room) {
    (void)reason;
    (void)room;
    *prediction = dlc_predict(args, 1e-6, 0.5, 0.5);
    return DLC_OK;
}

static dlc_status transport_open(const dlc_transport_args *args,
                                 dlc_endpoint **endpoint) {
    static dlc_endpoint one;
    if (args->rank == 1 && getenv("FAULTY_OPEN")) // NOLINT(concurrency-mt-unsafe)
        hang();
    *endpoint = &one;
    return DLC_OK;
}

static void transport_close(dlc_endpoint *endpoint) {
    (void)endpoint;
}

static dlc_status transport_send(dlc_endpoint *endpoint, int32_t peer, dlc_tag tag,
                                 const void *buffer, size_t bytes,
                                 dlc_request **request) {
    (void)peer;
    (void)tag;
    (void)buffer;
    (void)bytes;
    *request = (dlc_request *)endpoint; /* any pointer */
    return DLC_OK;
}

static dlc_status transport_recv(dlc_endpoint *endpoint, int32_t peer, dlc_tag tag,
                                 void *buffer, size_t bytes, dlc_request **request) {
    return transport_send(endpoint, peer, tag, buffer, bytes, request);
}

static dlc_status transport_test(dlc_endpoint *endpoint, dlc_request *request,
                                 int *done) {
    (void)endpoint;
    (void)request;
    (void)done;
    return DLC_ERR_IO;
}

static dlc_status transport_wait(dlc_endpoint *endpoint, dlc_request *request) {
    return transport_test(endpoint, request, NULL);
}

static const dlc_transport_ops transport_ops = {.size = sizeof(dlc_transport_ops),
                                                .predict = transport_predict,
                                                .open = transport_open,
                                                .close = transport_close,
                                                .send = transport_send,
                                                .recv = transport_recv,
                                                .test = transport_test,
                                                .wait = transport_wait};

/* ---- A consistency model ------------------------------------------------------- */

struct dlc_consistency {
    const dlc_exchange *exchange;
    const char *fault;
};

static dlc_status model_needs(const dlc_settings *settings,
                              dlc_consistency_needs *needs) {
    needs->deferred_update = is(host->get_string(settings, "fault"), "silent_update");
    return DLC_OK;
}

static dlc_status model_create(const dlc_consistency_args *args,
                               dlc_consistency **model) {
    dlc_consistency *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->exchange = args->exchange;
    made->fault = host->get_string(args->settings, "fault");
    *model = made;
    return DLC_OK;
}

static void model_destroy(dlc_consistency *model) {
    host->free(model);
}

static dlc_status model_ready(dlc_consistency *model, int64_t iteration,
                              int32_t bucket) {
    (void)iteration;
    if (is(model->fault, "silent_ready"))
        return DLC_ERR_IO;
    return is(model->fault, "no_bucket")
               ? model->exchange->start(model->exchange->context,
                                        bucket + model->exchange->buckets)
               : DLC_OK;
}

/* Rank 0 waits for ever for a bucket that no other rank reduces. */
static dlc_status model_finish(dlc_consistency *model, int64_t iteration) {
    const dlc_exchange *exchange = model->exchange;
    (void)iteration;
    if (!is(model->fault, "waits_alone") || exchange->rank > 0)
        return DLC_OK;
    dlc_status status = exchange->start(exchange->context, 0);
    return status == DLC_OK ? exchange->wait(exchange->context, 0) : status;
}

static dlc_status model_update(dlc_consistency *model, int64_t iteration,
                               int32_t bucket) {
    (void)model;
    (void)iteration;
    (void)bucket;
    return DLC_ERR_IO;
}

static dlc_status model_synchronize(dlc_consistency *model, int64_t iteration) {
    (void)model;
    (void)iteration;
    return DLC_OK;
}

static const dlc_consistency_ops model_ops = {.size = sizeof(dlc_consistency_ops),
                                              .needs = model_needs,
                                              .create = model_create,
                                              .destroy = model_destroy,
                                              .ready = model_ready,
                                              .finish = model_finish,
                                              .update = model_update,
                                              .synchronize = model_synchronize};

static const dlc_option model_options[] = {
    DLC_CHOICE("fault", "none", "none|silent_ready|silent_update|no_bucket|waits_alone",
               "what goes wrong"),
    DLC_OPTIONS_END,
};

static dlc_status load(const dlc_host *services) {
    host = services;
    stray();
    if (getenv("FAULTY_LOAD")) // NOLINT(concurrency-mt-unsafe)
        (void)close(STDERR_FILENO);
    return DLC_OK;
}

static const dlc_option options[] = {
    DLC_CHOICE("fault", "none",
               "none|exit_in_create|exit_in_forward|silent_create|silent_forward|"
               "odd_input|no_layer|quit_in_forward|crash_at_exit|hang_at_exit|"
               "crash_in_forward|strays",
               "what goes wrong"),
    DLC_OPTIONS_END,
};

#define LAYER(NAME, CALLS) \
    { \
        .size = sizeof(dlc_feature), .kind = DLC_KIND_LAYER, .name = (NAME), \
        .help = "one weight for all elements", .device = "cpu", .options = options, \
        .ops = (CALLS) \
    }

static const dlc_feature features[] = {LAYER("faulty", &faulty_ops),
                                       LAYER("later", &later_ops),
                                       {.size = sizeof(dlc_feature),
                                        .kind = DLC_KIND_DATA,
                                        .name = "hollow",
                                        .help = "nothing",
                                        .ops = &hollow_ops},
                                       {.size = sizeof(dlc_feature),
                                        .kind = DLC_KIND_TRANSPORT,
                                        .name = "faulty",
                                        .help = "no messages",
                                        .ops = &transport_ops},
                                       {.size = sizeof(dlc_feature),
                                        .kind = DLC_KIND_CONSISTENCY,
                                        .name = "faulty",
                                        .help = "no updates",
                                        .options = model_options,
                                        .ops = &model_ops},
                                       DLC_FEATURES_END};

DLC_PLUGIN("faulty", "1.0", "BSD-2-Clause", features, load);
