/* Layers of the device "async": results equal to the cpu's, but computed on a queue. */
#include <stdlib.h>
#include <string.h>

#include <dlcore/layer.h>

#include "config/config.h"
#include "fixture.h"
#include "support/test.h"

enum { BATCH = 4, WIDTH = 256, CLASSES = 10, BYTES = FIXTURE_FLOATS * sizeof(float) };

static dlc_queue *queue;

/* One layer on one of the two devices. */
typedef struct fixture {
    const dlc_layer_ops *ops;
    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_settings *settings;
    void *context;
    dlc_layer *layer;
    dlc_layer_shapes shapes;
    dlc_layer_memory memory;
    dlc_tensor in[2], out[DLC_MAX_OUTPUTS];
    dlc_param param[DLC_MAX_PARAMS];
    int64_t param_count[DLC_MAX_PARAMS];
    dlc_memory workspace, scratch;
} fixture;

static const dlc_feature *find(const char *name, const char *where) {
    const dlc_feature *f;
    for (size_t i = 0; (f = plugin_at(DLC_KIND_LAYER, i)); i++)
        if (strcmp(f->name, name) == 0 && strcmp(f->device, where) == 0)
            return f;
    ck_abort_msg("no layer %s for %s", name, where);
}

static void open_context(fixture *b) {
    dlc_family_args args = {.size = sizeof args,
                            .device_ops = b->device_ops,
                            .device = b->device,
                            .queue = b->device == device ? queue : NULL,
                            .threads = 1,
                            .phase = DLC_PHASE_TRAIN,
                            .precision = DLC_F32};
    OK(b->ops->family->open(&args, &b->context));
}

static void take(fixture *b, size_t bytes, dlc_memory *memory) {
    *memory = (dlc_memory){.size = sizeof *memory};
    OK(b->device_ops->alloc(b->device, bytes + 64, 0, memory));
}

/* Creates its inputs: BATCH x width, and labels for a layer with two. */
static void make_fixture(fixture *b, const char *name, const char *where, int inputs,
                         int64_t width, const char *const *sets) {
    const dlc_feature *feature = find(name, where);
    b->ops = feature->ops;
    b->settings = plugin_settings(feature, sets);
    open_context(b);
    dlc_layer_args args = {.size = sizeof args,
                           .name = name,
                           .settings = b->settings,
                           .context = b->context,
                           .phase = DLC_PHASE_TRAIN,
                           .seed = 7,
                           .index = 1};
    OK(b->ops->create(&args, &b->layer));
    b->in[0] = (dlc_tensor){.shape = {2, {BATCH, width}}, .dtype = DLC_F32};
    b->in[1] = (dlc_tensor){.shape = {1, {BATCH}}, .dtype = DLC_I32};
    for (int i = 0; i < DLC_MAX_PARAMS; i++)
        b->param[i].size = sizeof b->param[i];
    b->shapes = (dlc_layer_shapes){.size = sizeof b->shapes,
                                   .inputs = inputs,
                                   .in = b->in,
                                   .outputs = 1,
                                   .out = b->out,
                                   .param = b->param};
    OK(b->ops->infer(b->layer, &b->shapes));
    b->memory = (dlc_layer_memory){.size = sizeof b->memory,
                                   .inputs = inputs,
                                   .outputs = 1,
                                   .params = b->shapes.params,
                                   .wants_gradient = 1,
                                   .in = b->in,
                                   .out = b->out,
                                   .param_count = b->param_count};
    for (int32_t i = 0; i < b->shapes.params; i++)
        b->param_count[i] = dlc_shape_count(&b->param[i].shape);
    OK(b->ops->prepare(b->layer, &b->memory));
    take(b, b->memory.workspace_bytes, &b->workspace);
    take(b, b->memory.scratch_bytes, &b->scratch);
}

static void clear_fixture(fixture *b) {
    b->device_ops->free(b->device, &b->workspace);
    b->device_ops->free(b->device, &b->scratch);
    b->ops->destroy(b->layer);
    b->ops->family->close(b->context);
    dlc_settings_free(b->settings);
}

/* Runs forward or backward; the arrays are freed afterwards, as the contract allows. */
static void run(fixture *b, int backward, const dlc_layer_run *base, void *in,
                void *labels, void *out, void *in_diff) {
    const void *ins[] = {in, labels};
    void *outs[] = {out}, *in_diffs[] = {in_diff, NULL}, *out_diffs[] = {NULL};
    dlc_layer_run r = *base;
    r.size = sizeof r;
    r.in = ins;
    r.out = outs;
    r.in_diff = in_diffs;
    r.out_diff = backward ? out_diffs : NULL;
    r.workspace = b->workspace.base;
    r.scratch = b->scratch.base;
    OK(backward ? b->ops->backward(b->layer, &r) : b->ops->forward(b->layer, &r));
    memset(ins, 0, sizeof ins);
    memset(outs, 0, sizeof outs);
    memset(in_diffs, 0, sizeof in_diffs);
    memset(&r, 0, sizeof r);
}

static fixture near, far;

static void open_fixtures(const char *name, int inputs, int64_t width,
                          const char *const *sets) {
    far = (fixture){.device_ops = ops, .device = device};
    make_fixture(&far, name, "async", inputs, width, sets);
    near = (fixture){.device_ops = plugin_find(DLC_KIND_DEVICE, "cpu")->ops};
    dlc_device_args args = {.size = sizeof args, .threads = 1};
    OK(near.device_ops->open(&args, &near.device));
    make_fixture(&near, name, "cpu", inputs, width, sets);
}

static void close_fixtures(void) {
    clear_fixture(&far);
    clear_fixture(&near);
    near.device_ops->close(near.device);
}

static _Alignas(64) float input[FIXTURE_FLOATS], expected[FIXTURE_FLOATS],
    result[FIXTURE_FLOATS];
static _Alignas(64) int32_t labels[BATCH] = {3, 1, 9, 0};

static void setup(void) {
    fixture_setup();
    for (int i = 0; i < FIXTURE_FLOATS; i++)
        input[i] = (float)(i % 37) / 16 - 1;
    OK(ops->copy(device, NULL, buffer[0], input, BYTES));
    queue = q1;
}

static void read_back(const float *at) {
    OK(ops->queues->queue_sync(device, q1));
    OK(ops->copy(device, NULL, result, at, BYTES));
}

TEST_SETTINGS(.timeout = 60, .setup = setup, .teardown = fixture_teardown);

TEST(a_pass_is_the_cpus) {
    open_fixtures("tanh", 1, WIDTH, NULL);
    dlc_layer_run base = {.iteration = 1};
    run(&near, 0, &base, input, NULL, expected, NULL);
    for (int again = 0; again < 20; again++) {
        fixture_set(buffer[1], 0);
        run(&far, 0, &base, buffer[0], NULL, buffer[1], NULL);
        read_back(buffer[1]);
        ck_assert_mem_eq(result, expected, BYTES);
    }
    close_fixtures();
}

/* The step is in device memory and is read at each launch of a captured graph. */
TEST(a_step_is_read_when_done) {
    static const char *const sets[] = {"ratio=0.5", NULL};
    open_fixtures("dropout", 1, WIDTH, sets);
    dlc_layer_run base = {.iteration = 99, .step_at = (void *)buffer[2]};
    dlc_captured_graph *r = NULL;
    OK(ops->queues->capture_begin(device, q1));
    run(&far, 0, &base, buffer[0], NULL, buffer[1], NULL);
    OK(ops->queues->capture_end(device, q1, &r));
    float before[FIXTURE_FLOATS] = {0};
    for (int64_t i = 5; i < 8; i++) {
        dlc_step step = {.iteration = i, .sample = 2 * i};
        dlc_layer_run plain = {.iteration = i, .sample = 2 * i};
        OK(ops->copy(device, NULL, buffer[2], &step, sizeof step));
        OK(ops->queues->graph_launch(device, q1, r));
        run(&near, 0, &plain, input, NULL, expected, NULL);
        read_back(buffer[1]);
        ck_assert_mem_eq(result, expected, BYTES);
        ck_assert(memcmp(result, before, BYTES) != 0);
        memcpy(before, result, BYTES);
    }
    ops->queues->graph_close(device, r);
    close_fixtures();
}

TEST(a_loss_scale_is_read_when_done) {
    open_fixtures("softmax_loss", 2, CLASSES, NULL);
    dlc_layer_run base = {.loss_scale = 3, .loss_scale_at = buffer[2]};
    dlc_layer_run plain = {.loss_scale = 24};
    const float eight = 8;
    size_t bytes = BATCH * CLASSES * sizeof(float);
    float loss[2];
    OK(ops->copy(device, NULL, buffer[2], &eight, sizeof eight));
    OK(ops->copy(device, NULL, buffer[3], labels, sizeof labels));
    float *out = buffer[1], *diff = buffer[1] + 256;
    run(&far, 0, &base, buffer[0], buffer[3], out, NULL);
    run(&far, 1, &base, buffer[0], buffer[3], out, diff);
    run(&near, 0, &plain, input, labels, expected, NULL);
    run(&near, 1, &plain, input, labels, expected, expected + 256);
    read_back(buffer[1]);
    memcpy(loss, result, sizeof loss);
    ck_assert_mem_eq(loss, expected, sizeof loss);
    ck_assert_mem_eq(result + 256, expected + 256, bytes);
    ck_assert(result[256] != 0);
    close_fixtures();
}

TEST(parameters_come_and_go) {
    static const char *const sets[] = {"num_output=3", NULL};
    open_fixtures("inner_product", 1, WIDTH, sets);
    size_t count = 3 * WIDTH;
    float plain[3 * WIDTH];
    ck_assert_int_le(far.param_count[0], FIXTURE_FLOATS);
    OK(far.ops->param_import(far.layer, 0, input, buffer[1]));
    OK(far.ops->param_export(far.layer, 0, buffer[1], plain));
    ck_assert_mem_eq(plain, input, count * sizeof(float));
    FAILS(far.ops->param_export(far.layer, 0, input, plain), DLC_ERR_DEVICE,
          "param_export");
    OK(ops->queues->capture_begin(device, q1));
    FAILS(far.ops->param_import(far.layer, 0, input, buffer[1]), DLC_ERR_DEVICE,
          "param_import");
    OK(ops->queues->capture_end(device, q1, NULL));
    close_fixtures();
}

TEST(host_memory_is_refused) {
    open_fixtures("tanh", 1, WIDTH, NULL);
    const void *ins[] = {input};
    void *outs[] = {buffer[1]};
    dlc_layer_run r = {.size = sizeof r, .in = ins, .out = outs};
    FAILS(far.ops->forward(far.layer, &r), DLC_ERR_DEVICE, "forward");
    close_fixtures();
}

TEST(reorders_come_late) {
    open_fixtures("tanh", 1, WIDTH, NULL);
    const dlc_family *family = far.ops->family;
    dlc_reorder *reorder;
    OK(family->reorder_create(far.context, &far.in[0], &far.in[0], &reorder));
    OK(family->reorder_run(reorder, buffer[0], buffer[1]));
    read_back(buffer[1]);
    ck_assert_mem_eq(result, input, BYTES);
    FAILS(family->reorder_run(reorder, input, buffer[1]), DLC_ERR_DEVICE, "reorder");
    family->reorder_destroy(reorder);
    close_fixtures();
}

/* Without a queue work is done when a call returns. */
TEST(without_a_queue) {
    queue = NULL;
    open_fixtures("tanh", 1, WIDTH, NULL);
    dlc_layer_run base = {.iteration = 1};
    run(&near, 0, &base, input, NULL, expected, NULL);
    run(&far, 0, &base, buffer[0], NULL, buffer[1], NULL);
    OK(ops->copy(device, NULL, result, buffer[1], BYTES));
    ck_assert_mem_eq(result, expected, BYTES);
    close_fixtures();
}
