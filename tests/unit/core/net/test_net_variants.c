/* Tests variants of one net against each other: recomputation gives bitwise identical
 * results in less memory; bfloat16 gives gradients of nearly the same direction. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "fixture.h"
#include "support/plugins.h"
#include "support/scratch.h"
#include "support/test.h"

enum { BATCH = 4, CHANNELS = 3, SIDE = 12, CLASSES = 5 };

/* Residual blocks: batch norm with and without relu, a sum that two layers read,
 * pooling, branches that are concatenated, an activation that is not fused. */
static const char *const residual =
    "[stem]\ntype = convolution\nnum_output = 16\nkernel_size = 3\npad = 1\nbias = no\n"
    "[stem_bn]\ntype = batch_norm\n"
    "[stem_relu]\ntype = relu\n"
    "[a]\ntype = convolution\nnum_output = 16\nkernel_size = 3\npad = 1\nbias = no\n"
    "[a_bn]\ntype = batch_norm\n"
    "[a_relu]\ntype = relu\n"
    "[b]\ntype = convolution\nnum_output = 16\nkernel_size = 1\nbias = no\n"
    "[b_bn]\ntype = batch_norm\n"
    "[sum]\ntype = eltwise\ninput = stem_relu, b_bn\n"
    "[sum_relu]\ntype = relu\n"
    "[c]\ntype = convolution\nnum_output = 32\nkernel_size = 3\nstride = 2\n"
    "[c_act]\ntype = sigmoid\n"
    "[d]\ntype = convolution\nnum_output = 16\nkernel_size = 1\ninput = sum_relu\n"
    "[d_relu]\ntype = relu\n"
    "[d_pool]\ntype = pooling\nkernel_size = 4\nstride = 2\n"
    "[joined]\ntype = concat\ninput = c_act, d_pool\n"
    "[pool]\ntype = pooling\nmethod = average\nglobal = yes\n"
    "[drop]\ntype = dropout\nratio = 0.2\n"
    "[e]\ntype = inner_product\nnum_output = 5\n"
    "[loss]\ntype = softmax_loss\n";

/* Layers that are recomputed in a row, the second from the output of the first, which
 * backward itself does not need. */
static const char *const chain =
    "[a]\ntype = convolution\nnum_output = 16\nkernel_size = 3\npad = 1\n"
    "[a_norm]\ntype = lrn\nlocal_size = 3\n"
    "[a_act]\ntype = sigmoid\n"
    "[b]\ntype = convolution\nnum_output = 16\nkernel_size = 3\npad = 1\n"
    "[b_norm]\ntype = lrn\nlocal_size = 3\n"
    "[b_act]\ntype = sigmoid\n"
    "[c]\ntype = convolution\nnum_output = 16\nkernel_size = 3\npad = 1\n"
    "[c_norm]\ntype = lrn\nlocal_size = 3\n"
    "[c_act]\ntype = sigmoid\n"
    "[c_pool]\ntype = pooling\nkernel_size = 2\nstride = 2\n"
    "[d]\ntype = convolution\nnum_output = 16\nkernel_size = 3\npad = 1\n"
    "[d_bn]\ntype = batch_norm\n"
    "[d_relu]\ntype = relu\n"
    "[sum]\ntype = eltwise\ninput = c_pool, d_relu\n"
    "[e]\ntype = inner_product\nnum_output = 5\n"
    "[loss]\ntype = softmax_loss\n";

/* A sum of two layers that could both do it. */
static const char *const branches =
    "[left]\ntype = convolution\nnum_output = 16\nkernel_size = 1\nbias = no\n"
    "[left_bn]\ntype = batch_norm\n"
    "[right]\ntype = convolution\nnum_output = 16\nkernel_size = 1\nbias = no\n"
    "input = data\n"
    "[right_bn]\ntype = batch_norm\n"
    "[sum]\ntype = eltwise\ninput = left_bn, right_bn\n"
    "[e]\ntype = inner_product\nnum_output = 5\n"
    "[loss]\ntype = softmax_loss\n";

static const struct {
    const char *text;
    size_t percent; /* of the activations' memory that recompute leaves at most */
} nets[] = {{residual, 95}, {chain, 95}};

static float data[BATCH * CHANNELS * SIDE * SIDE];
static int32_t labels[BATCH];

static void fill_batch(void) {
    dlc_random random = dlc_random_make(17, 0);
    for (size_t i = 0; i < sizeof data / sizeof *data; i++)
        data[i] = dlc_random_normal(&random);
    for (int i = 0; i < BATCH; i++)
        labels[i] = (int32_t)dlc_random_below(&random, CLASSES);
}

static void ok(dlc_status status) {
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
}

static dlc_net *build(const dlc_net_args *args) {
    dlc_net *net = NULL;
    ok(dlc_net_build(args, &net));
    ok(dlc_net_allocate(net));
    return net;
}

static double pass(dlc_net *net) {
    dlc_metric metric;
    ok(dlc_net_set_input(net, data, labels));
    ok(dlc_net_forward(net, 3, 0));
    ok(dlc_net_backward(net, 1, NULL, NULL));
    ok(dlc_net_metric(net, 0, &metric));
    return metric.sum / metric.count;
}

TEST_SETTINGS(.timeout = 120, .setup = scratch_setup, .teardown = scratch_teardown,
              .setup_once = plugins_open);

TEST(sums_are_fused_where_both_inputs_exist) {
    net_fixture fixture;
    const char *fused_into = NULL;
    fixture_net(&fixture, branches, BATCH, CHANNELS, SIDE, SIDE);
    for (int32_t i = 0; i < dlc_net_rows(fixture.net); i++) {
        dlc_net_row row;
        ok(dlc_net_row_at(fixture.net, i, &row));
        if (strcmp(row.name, "sum") == 0)
            fused_into = row.fused_into;
    }
    ck_assert_pstr_eq(fused_into, "right_bn");
    fixture_close(&fixture);
}

TEST_EACH(recomputation_is_bitwise_identical, COUNT(nets)) {
    net_fixture fixture;
    fill_batch();
    fixture_net(&fixture, nets[_i].text, BATCH, CHANNELS, SIDE, SIDE);
    dlc_net_args args = fixture.args;
    args.recompute = 1;
    dlc_net *low = build(&args);
    size_t kept = dlc_net_memory_plan(fixture.net).activations;
    size_t less = dlc_net_memory_plan(low).activations;
    ck_assert_msg(less < kept * nets[_i].percent / 100, "%zu bytes of %zu", less, kept);

    const dlc_arenas *a = dlc_net_arenas(fixture.net), *b = dlc_net_arenas(low);
    ck_assert_uint_eq(a->count, b->count);
    for (int repeat = 0; repeat < 2; repeat++) {
        ck_assert_double_eq(pass(fixture.net), pass(low));
        ck_assert_mem_eq(a->gradients, b->gradients, a->count * sizeof(float));
        /* Running averages have seen each batch once. */
        ck_assert_mem_eq(a->buffers, b->buffers, a->buffer_count * sizeof(float));
    }
    dlc_net_free(low);
    fixture_close(&fixture);
}

static const char *fused_into(const dlc_net *net, const char *name) {
    dlc_net_row row = {0};
    for (int32_t i = 0; i < dlc_net_rows(net); i++) {
        ok(dlc_net_row_at(net, i, &row));
        if (strcmp(row.name, name) == 0)
            return row.fused_into;
    }
    ck_abort_msg("there is no layer '%s'", name);
    return NULL;
}

/* batch_norm adds before its relu, so a sum that comes after the relu is not fused. */
TEST(a_sum_behind_a_relu_stays) {
    net_fixture fixture;
    fixture_net(&fixture, chain, BATCH, CHANNELS, SIDE, SIDE);
    ck_assert_str_eq(fused_into(fixture.net, "d_relu"), "d_bn");
    ck_assert_ptr_null(fused_into(fixture.net, "sum"));
    fixture_close(&fixture);
    fixture_net(&fixture, residual, BATCH, CHANNELS, SIDE, SIDE);
    ck_assert_str_eq(fused_into(fixture.net, "sum"), "b_bn");
    ck_assert_str_eq(fused_into(fixture.net, "sum_relu"), "b_bn");
    fixture_close(&fixture);
}

/* Cosine of the angle between parameter i's gradients in two nets. */
static double agreement(const dlc_net *a, dlc_net *x, dlc_net *y, int32_t i) {
    size_t count = (size_t)dlc_shape_count(&dlc_net_param_at(a, i)->shape);
    float *u = dlc_alloc(count, sizeof *u), *v = dlc_alloc(count, sizeof *v);
    double uv = 0, uu = 0, vv = 0;
    ok(dlc_net_param_export(x, i, dlc_net_arenas(x)->gradients, u));
    ok(dlc_net_param_export(y, i, dlc_net_arenas(y)->gradients, v));
    for (size_t k = 0; k < count; k++) {
        uv += (double)u[k] * (double)v[k];
        uu += (double)u[k] * (double)u[k];
        vv += (double)v[k] * (double)v[k];
    }
    dlc_free(u);
    dlc_free(v);
    return uv / sqrt(uu * vv);
}

/* Returns 0 if the CPU has no bfloat16, after checking the error message. */
static int build_bf16(const dlc_net_args *from, int recompute, dlc_net **net) {
    dlc_net_args args = *from;
    args.precision = DLC_BF16;
    args.recompute = recompute;
    dlc_status status = dlc_net_build(&args, net);
    if (status == DLC_ERR_UNSUPPORTED) {
        ck_assert_ptr_nonnull(strstr(dlc_detail(), "bfloat16"));
        ck_assert_ptr_nonnull(strstr(dlc_detail(), "precision = float32"));
        return 0;
    }
    ok(status);
    ok(dlc_net_allocate(*net));
    return 1;
}

TEST(bf16_gradients_agree) {
    net_fixture fixture;
    dlc_net *half = NULL, *low = NULL;
    fill_batch();
    fixture_net(&fixture, residual, BATCH, CHANNELS, SIDE, SIDE);
    if (build_bf16(&fixture.args, 0, &half) && build_bf16(&fixture.args, 1, &low)) {
        double loss = pass(fixture.net), rounded = pass(half);
        ck_assert_double_eq_tol(loss, rounded, 0.05 * loss);
        ck_assert_double_ne(loss, rounded);
        ck_assert_double_eq(rounded, pass(low));
        for (int32_t i = 0; i < dlc_net_params(fixture.net); i++) {
            if (dlc_net_param_at(fixture.net, i)->is_buffer)
                continue;
            double cosine = agreement(fixture.net, fixture.net, half, i);
            ck_assert_msg(cosine > 0.97, "%s: %g",
                          dlc_net_param_at(fixture.net, i)->name, cosine);
            ck_assert_double_eq_tol(agreement(fixture.net, half, low, i), 1, 1e-9);
        }
        /* Half of the activations; the scratch memory of kernels is not halved. */
        ck_assert_uint_lt(dlc_net_memory_plan(half).activations,
                          dlc_net_memory_plan(fixture.net).activations * 9 / 10);
    }
    dlc_net_free(half);
    dlc_net_free(low);
    fixture_close(&fixture);
}

/* A test net reads the float32 weights of the training net and rounds them itself. */
TEST(bf16_test_nets_share_weights) {
    net_fixture fixture;
    dlc_net *half = NULL, *test_net = NULL;
    dlc_metric metric;
    fill_batch();
    fixture_net(&fixture, residual, BATCH, CHANNELS, SIDE, SIDE);
    if (build_bf16(&fixture.args, 0, &half)) {
        dlc_net_args args = fixture.args;
        args.precision = DLC_BF16;
        args.phase = DLC_PHASE_TEST;
        args.train_net = half;
        test_net = build(&args);
        dlc_net *plain = fixture_test_net(&fixture, BATCH);
        ok(dlc_net_set_input(test_net, data, labels));
        ok(dlc_net_forward(test_net, 0, 0));
        ok(dlc_net_metric(test_net, 0, &metric));
        double loss = metric.sum;
        ok(dlc_net_set_input(plain, data, labels));
        ok(dlc_net_forward(plain, 0, 0));
        ok(dlc_net_metric(plain, 0, &metric));
        ck_assert_double_eq_tol(loss, metric.sum, 0.05 * metric.sum);
        dlc_net_free(plain);
    }
    dlc_net_free(test_net);
    dlc_net_free(half);
    fixture_close(&fixture);
}
