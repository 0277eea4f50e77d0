/* The batch-blocked layout: convolutions that use it, layers that read it, test nets
 * that share a train net's weights, and any number of threads. */
#include "checker.h"

#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "support/test.h"
#include "target.h"

static const struct {
    const char *settings;
    dlc_shape in;
} convolutions[] = {
    {"num_output=5 kernel_size=3", {4, {16, 1, 6, 6}}},
    {"num_output=20 kernel_size=5", {4, {16, 3, 7, 8}}},
    {"num_output=7 kernel_size=3 pad=1 stride=2", {4, {32, 3, 7, 7}}},
    {"num_output=3 kernel_size=3 dilation=2 pad=2", {4, {16, 5, 6, 7}}},
    {"num_output=6 kernel_h=3 kernel_w=1 pad_h=1 stride_w=2 bias=no",
     {4, {16, 2, 5, 6}}},
    {"num_output=6 kernel_size=3 group=3 pad=1", {4, {16, 6, 5, 5}}},
    {"num_output=13 kernel_size=1", {4, {48, 7, 3, 3}}},
    {"num_output=70 kernel_size=2", {4, {16, 3, 3, 3}}},
    {"num_output=2 kernel_size=7 pad=3 stride=3", {4, {16, 1, 5, 5}}},
    {"num_output=11 kernel_size=3 pad=1", {4, {32, 17, 3, 3}}},
    {"num_output=1 kernel_size=1", {4, {16, 1, 1, 1}}},
    {"num_output=4 kernel_size=2 stride=3", {4, {16, 2, 7, 8}}},
};

static layer_spec spec_of(int i, char *text, size_t bytes) {
    (void)snprintf(text, bytes, "%s layout=batch_blocked", convolutions[i].settings);
    return (layer_spec){
        .type = "convolution", .settings = text, .in = {convolutions[i].in}};
}

static int is_batch_blocked(const fixture *r) {
    char text[128] = "";
    r->ops->describe(r->layer, text, sizeof text);
    return strstr(text, "batch_blocked") != NULL;
}

static int chooses_batch_blocked(const char *settings, dlc_shape in) {
    fixture r;
    layer_spec spec = {.type = "convolution", .settings = settings, .in = {in}};
    ck_assert_msg(fixture_open(&r, &spec) == DLC_OK, "%s", dlc_detail());
    int blocked = is_batch_blocked(&r);
    fixture_close(&r);
    return blocked;
}

static int begin(int argc, char **argv) {
    if (!target_layers_are("onednn"))
        return tests_skip("only oneDNN's layers have a batch-blocked layout");
    return layers_begin(argc, argv);
}

TEST_SETTINGS(.timeout = 120, .begin = begin);

TEST_EACH(convolution, COUNT(convolutions)) {
    char text[128];
    layer_spec spec = spec_of(_i, text, sizeof text);
    ck_assert(chooses_batch_blocked(text, spec.in[0]));
    check_layer(&spec, 2e-5);
    spec.fused = _i % 2 ? "negative_slope=0.25" : "";
    spec.layout = "batch_blocked";
    check_layer(&spec, 2e-5);
    spec.phase = DLC_PHASE_TEST;
    spec.layout = "last";
    check_layer(&spec, 2e-5);
}

/* Chosen if few or odd channels would leave vectors of channels partly empty, by shapes
 * alone. */
TEST(choice) {
    ck_assert(
        chooses_batch_blocked("num_output=20 kernel_size=5", SHAPE(64, 1, 28, 28)));
    ck_assert(
        chooses_batch_blocked("num_output=50 kernel_size=5", SHAPE(64, 20, 12, 12)));
    ck_assert(
        !chooses_batch_blocked("num_output=50 kernel_size=5", SHAPE(63, 20, 12, 12)));
    ck_assert(!chooses_batch_blocked("num_output=32 kernel_size=5 pad=2",
                                     SHAPE(64, 3, 16, 16)));
    ck_assert(!chooses_batch_blocked("num_output=64 kernel_size=3 pad=1",
                                     SHAPE(16, 32, 8, 8)));
    ck_assert(
        !chooses_batch_blocked("num_output=20 kernel_size=3", SHAPE(16, 3, 99, 99)));
    ck_assert(!chooses_batch_blocked("num_output=20 kernel_size=5 layout=channels_last",
                                     SHAPE(64, 1, 28, 28)));
    ck_assert(!chooses_batch_blocked("num_output=4 kernel_size=1 layout=batch_blocked",
                                     SHAPE(15, 4, 2, 2)));
}

TEST_EACH(any_number_of_threads, COUNT(convolutions)) {
    char text[128];
    check_any_number_of_threads(spec_of(_i, text, sizeof text));
}

/* Not every gradient is requested: the input of the first layer has none. */
TEST_EACH(no_input_gradient, COUNT(convolutions)) {
    fixture both[2];
    char text[128];
    layer_spec spec = spec_of(_i, text, sizeof text);
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(fixture_open(&both[k], &spec), DLC_OK);
        both[k].unwanted = (uint64_t)k;
        fill_fixture(&both[k]);
        ck_assert_int_eq(fixture_forward(&both[k]), DLC_OK);
        ck_assert_int_eq(fixture_backward(&both[k]), DLC_OK);
    }
    check_same_bits(both[0].param_diff[0], both[1].param_diff[0],
                    fixture_param_count(&both[0], 0));
    fixture_close(&both[0]);
    fixture_close(&both[1]);
}

/* Batch-blocked in either net, in both, or in none. */
static void check_batches(const char *settings, const char *fused, int64_t train_batch,
                          int64_t test_batch) {
    layer_spec train = {.type = "convolution",
                        .settings = settings,
                        .fused = fused,
                        .in = {SHAPE(train_batch, 3, 6, 5)}};
    layer_spec test = train;
    test.in[0].dims[0] = test_batch;
    check_test_net(&train, &test, 1e-4);
}

TEST(test_nets) {
    static const char *const settings[] = {
        "num_output=20 kernel_size=3 layout=batch_blocked",
        "num_output=20 kernel_size=3 pad=1 layout=batch_blocked",
        "num_output=6 kernel_size=3 group=3 pad=1 layout=batch_blocked",
    };
    for (int k = 0; k < COUNT(settings); k++) {
        check_batches(settings[k], NULL, 16, 16);
        check_batches(settings[k], NULL, 16, 32);
        check_batches(settings[k], NULL, 16, 5);
        check_batches(settings[k], "", 16, 5);
        check_batches(settings[k], "", 16, 32);
        check_batches(settings[k], NULL, 5, 16);
    }
}

static const struct {
    const char *type, *settings;
    dlc_shape in;
} readers[] = {
    {"pooling", "kernel_size=2 stride=2", {4, {16, 5, 6, 6}}},
    {"pooling", "kernel_size=3 stride=2", {4, {32, 3, 7, 8}}},
    {"pooling", "kernel_size=3 stride=2 pad=1", {4, {16, 1, 5, 6}}},
    {"pooling", "method=average kernel_size=3 stride=2", {4, {16, 3, 6, 7}}},
    {"pooling", "method=average kernel_size=3 stride=2 pad=1", {4, {16, 2, 6, 7}}},
    {"pooling",
     "method=average kernel_size=3 pad=1 average_over=image",
     {4, {16, 2, 4, 5}}},
    {"pooling", "method=average global=yes", {4, {16, 3, 4, 3}}},
    {"relu", "", {4, {16, 5, 3, 3}}},
    {"tanh", "", {4, {16, 5, 3, 3}}},
    {"lrn", "local_size=3 norm_region=within_channel", {4, {16, 3, 4, 5}}},
    {"lrn", "local_size=3", {4, {16, 5, 3, 2}}},
    {"batch_norm", "", {4, {16, 5, 2, 3}}},
    {"scale", "bias=yes", {4, {16, 5, 2, 3}}},
    {"softmax", "", {4, {16, 5, 2, 2}}},
    {"flatten", "", {4, {16, 5, 2, 3}}},
    {"inner_product", "num_output=7", {4, {16, 5, 3, 2}}},
    {"convolution", "num_output=16 kernel_size=3", {4, {16, 5, 5, 4}}},
    {"convolution", "num_output=16 kernel_size=3 layout=library", {4, {16, 5, 5, 4}}},
};

TEST_EACH(reading, COUNT(readers)) {
    layer_spec spec = {.type = readers[_i].type,
                       .settings = readers[_i].settings,
                       .in = {readers[_i].in},
                       .layout = "batch_blocked"};
    check_layer(&spec, 1e-4);
    spec.phase = DLC_PHASE_TEST;
    check_layer(&spec, 1e-4);
}

/* Layers that work channel by channel keep the layout. */
TEST(staying) {
    static const char *const types[] = {"pooling", "relu"};
    for (int k = 0; k < COUNT(types); k++) {
        fixture r;
        layer_spec spec = {.type = types[k],
                           .settings = k ? "" : "kernel_size=2",
                           .in = {SHAPE(16, 3, 4, 4)},
                           .layout = "batch_blocked"};
        ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
        const dlc_layout *given = r.in[0].layout;
        ck_assert_ptr_nonnull(given);
        ck_assert_ptr_nonnull(r.out[0].layout);
        const dlc_family *family = r.ops->family;
        dlc_tensor back = {.shape = r.in[0].shape, .dtype = DLC_F32};
        ck_assert(!family->same_layout(&r.in[0], &back));
        fixture_close(&r);
    }
}
