/* Tests nets with the plugins of this build: gradients against finite differences, with
 * tensors that are shared, reused and fused; arenas; test nets; mistakes in the graph.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "fixture.h"
#include "support/plugins.h"
#include "support/scratch.h"
#include "support/test.h"

enum { BATCH = 3, CHANNELS = 2, SIDE = 6, CLASSES = 4 };

/* A tensor that is read three times, an elementwise sum, a concatenation, a layer that
 * works in place and one that is fused. */
static const char *const branches =
    "[a]\ntype = convolution\nnum_output = 5\nkernel_size = 3\npad = 1\n"
    "bias_filler = constant(0.1)\n"
    "[a_act]\ntype = sigmoid\n"
    "[b]\ntype = convolution\nnum_output = 5\nkernel_size = 1\n"
    "[c]\ntype = eltwise\ninput = a_act, b\n"
    "[c_act]\ntype = tanh\n"
    "[d]\ntype = concat\ninput = c_act, a_act\n"
    "[p]\ntype = pooling\nmethod = average\nkernel_size = 2\nstride = 2\n"
    "[e]\ntype = inner_product\nnum_output = 4\n"
    "[side]\ntype = inner_product\nnum_output = 4\ninput = a_act\n"
    "[loss]\ntype = softmax_loss\ninput = e\n"
    "[side_loss]\ntype = softmax_loss\ninput = side\nloss_weight = 0.3\n";

typedef struct sample_batch {
    float data[BATCH * CHANNELS * SIDE * SIDE];
    int32_t labels[BATCH];
} sample_batch;

static void fill_batch(sample_batch *batch) {
    dlc_random random = dlc_random_make(11, 0);
    for (size_t i = 0; i < sizeof batch->data / sizeof *batch->data; i++)
        batch->data[i] = dlc_random_normal(&random);
    for (int i = 0; i < BATCH; i++)
        batch->labels[i] = (int32_t)dlc_random_below(&random, CLASSES);
}

static void ok(dlc_status status) {
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
}

static double loss_of(dlc_net *net, const sample_batch *batch) {
    double loss = 0;
    ok(dlc_net_set_input(net, batch->data, batch->labels));
    ok(dlc_net_forward(net, 0, 0));
    for (int32_t i = 0; i < dlc_net_metrics(net); i++) {
        dlc_metric metric;
        ok(dlc_net_metric(net, i, &metric));
        if (metric.is_loss)
            loss += metric.weight * metric.sum / metric.count;
    }
    return loss;
}

/* d loss / d one element, by a central difference. */
static double slope(dlc_net *net, const sample_batch *batch, float *weight) {
    const float step = 1e-2f;
    float kept = *weight;
    *weight = kept + step;
    double above = loss_of(net, batch);
    *weight = kept - step;
    double below = loss_of(net, batch);
    *weight = kept;
    return (above - below) / (2 * (double)step);
}

static dlc_status note_end(void *context, int32_t set, size_t elements) {
    size_t *last = context;
    ck_assert_int_eq(set, DLC_PARAMS_WHOLE);
    ck_assert_uint_gt(elements, *last); /* it only grows */
    *last = elements;
    return DLC_OK;
}

TEST_SETTINGS(.setup = scratch_setup, .teardown = scratch_teardown,
              .setup_once = plugins_open);

TEST(gradients_of_branches) {
    net_fixture fixture;
    sample_batch batch;
    fill_batch(&batch);
    fixture_net(&fixture, branches, BATCH, CHANNELS, SIDE, SIDE);
    const dlc_arenas *arenas = dlc_net_arenas(fixture.net);
    loss_of(fixture.net, &batch);
    size_t end = 0;
    const float scale = 0.5f;
    ok(dlc_net_backward(fixture.net, scale, note_end, &end));
    const dlc_segment *last = &arenas->segment[arenas->segments - 1];
    ck_assert_uint_eq(end, last->offset + last->count);

    float *gradients = dlc_alloc(arenas->count, sizeof *gradients);
    memcpy(gradients, arenas->gradients, arenas->count * sizeof *gradients);
    size_t checked = 0;
    for (int32_t s = 0; s < arenas->segments; s++) {
        const dlc_segment *segment = &arenas->segment[s];
        size_t stride = segment->count / 7 + 1;
        for (size_t i = 0; i < segment->count; i += stride, checked++) {
            double found = (double)gradients[segment->offset + i] / (double)scale;
            double expected = slope(fixture.net, &batch,
                                    arenas->weights + segment->offset + i);
            ck_assert_msg(fabs(found - expected) <= 2e-3 + 2e-2 * fabs(expected),
                          "%s[%zu]: %g, by differences %g", segment->name, i, found,
                          expected);
        }
    }
    ck_assert_uint_gt(checked, 30);
    dlc_free(gradients);
    fixture_close(&fixture);
}

/* Running a pass twice gives bitwise identical gradients. */
TEST(passes_repeat) {
    net_fixture fixture;
    sample_batch batch;
    fill_batch(&batch);
    fixture_net(&fixture, branches, BATCH, CHANNELS, SIDE, SIDE);
    const dlc_arenas *arenas = dlc_net_arenas(fixture.net);
    size_t bytes = arenas->count * sizeof(float);
    loss_of(fixture.net, &batch);
    ok(dlc_net_backward(fixture.net, 1, NULL, NULL));
    float *first = dlc_alloc(arenas->count, sizeof *first);
    memcpy(first, arenas->gradients, bytes);
    loss_of(fixture.net, &batch);
    ok(dlc_net_backward(fixture.net, 1, NULL, NULL));
    ck_assert_mem_eq(first, arenas->gradients, bytes);
    dlc_free(first);
    fixture_close(&fixture);
}

TEST(arenas_are_in_backward_order) {
    net_fixture fixture;
    fixture_net(&fixture, branches, BATCH, CHANNELS, SIDE, SIDE);
    const dlc_arenas *arenas = dlc_net_arenas(fixture.net);
    ck_assert_int_eq(arenas->segments, 8);
    ck_assert_str_eq(arenas->segment[0].name, "side.weight");
    ck_assert_str_eq(arenas->segment[7].name, "a.bias");
    for (int32_t s = 1; s < arenas->segments; s++)
        ck_assert_uint_ge(arenas->segment[s].offset,
                          arenas->segment[s - 1].offset + arenas->segment[s - 1].count);
    ck_assert_uint_eq(arenas->control_words, DLC_CONTROL_WORDS);
    ck_assert_uint_ge(arenas->count, arenas->segment[7].offset +
                                         arenas->segment[7].count +
                                         arenas->control_words);
    fixture_close(&fixture);
}

/* Weights survive an export to plain memory and an import. */
TEST(params_round_trip) {
    net_fixture fixture;
    fixture_net(&fixture, branches, BATCH, CHANNELS, SIDE, SIDE);
    const dlc_arenas *arenas = dlc_net_arenas(fixture.net);
    float *copy = dlc_alloc(arenas->count, sizeof *copy);
    for (int32_t i = 0; i < dlc_net_params(fixture.net); i++) {
        const dlc_net_param *param = dlc_net_param_at(fixture.net, i);
        size_t count = (size_t)dlc_shape_count(&param->shape);
        float *plain = dlc_alloc(count, sizeof *plain);
        ok(dlc_net_param_export(fixture.net, i, arenas->weights, plain));
        ok(dlc_net_param_import(fixture.net, i, plain, copy));
        ck_assert_mem_eq(copy + param->offset, arenas->weights + param->offset,
                         param->count * sizeof(float));
        dlc_free(plain);
    }
    dlc_free(copy);
    fixture_close(&fixture);
}

/* A test net of another batch size reads the same weights and computes the same loss.
 */
TEST(test_net_agrees) {
    net_fixture fixture;
    sample_batch batch;
    fill_batch(&batch);
    fixture_net(&fixture, branches, BATCH, CHANNELS, SIDE, SIDE);
    double trained = loss_of(fixture.net, &batch);
    dlc_net *test_net = fixture_test_net(&fixture, 1);
    double sum[2] = {0, 0};
    for (int i = 0; i < BATCH; i++) {
        ok(dlc_net_set_input(test_net, batch.data + i * CHANNELS * SIDE * SIDE,
                             batch.labels + i));
        ok(dlc_net_forward(test_net, 0, 0));
        for (int32_t j = 0; j < 2; j++) {
            dlc_metric metric;
            ok(dlc_net_metric(test_net, j, &metric));
            ck_assert_double_eq(metric.count, 1);
            sum[j] += metric.weight * metric.sum;
        }
    }
    ck_assert_double_eq_tol((sum[0] + sum[1]) / BATCH, trained, 1e-5);
    dlc_net_free(test_net);
    fixture_close(&fixture);
}

/* Buffers share memory: the plan needs less than all tensors together. (The scratch
 * memory of Winograd's algorithm may be larger than all of them.) */
TEST(plan_reuses_memory) {
    static const char *const chain =
        "[c1]\ntype = convolution\nnum_output = 16\nkernel_size = 3\npad = 1\n"
        "algorithm = direct\n"
        "[r1]\ntype = relu\n"
        "[c2]\ntype = convolution\nnum_output = 16\nkernel_size = 3\npad = 1\n"
        "algorithm = direct\n"
        "[r2]\ntype = relu\n"
        "[c3]\ntype = convolution\nnum_output = 16\nkernel_size = 3\npad = 1\n"
        "algorithm = direct\n"
        "[r3]\ntype = relu\n"
        "[ip]\ntype = inner_product\nnum_output = 4\n"
        "[loss]\ntype = softmax_loss\n";
    net_fixture fixture;
    fixture_net(&fixture, chain, 16, 3, 16, 16);
    size_t tensor = 16u * 16 * 16 * 16 * sizeof(float);
    dlc_net_memory memory = dlc_net_memory_plan(fixture.net);
    /* Three outputs are kept for backward, and two gradients are alive at a time, with
     * the scratch memory of one layer; in total there are six outputs and six
     * gradients. */
    ck_assert_uint_ge(memory.activations, 3 * tensor);
    ck_assert_uint_le(memory.activations, 13 * tensor / 2);
    dlc_net *test_net = fixture_test_net(&fixture, 16);
    dlc_net_memory test = dlc_net_memory_plan(test_net);
    ck_assert_uint_le(test.activations, 3 * tensor);
    ck_assert_uint_eq(test.weights, 0);
    dlc_net_free(test_net);
    fixture_close(&fixture);
}

static const struct {
    const char *text;
    size_t errors;
} wrong_graphs[] = {
    {"[a]\nnum_output = 5\n[loss]\ntype = softmax_loss\n", 1},
    {"[a]\ntype = convolutoin\n[loss]\ntype = softmax_loss\n", 1},
    {"[loss]\ntype = softmax_loss\ninput = nowhere\n", 1},
    {"[loss]\ntype = softmax_loss\ninput = loss\n", 1},
    {"[a]\ntype = relu\ninput = b\n[b]\ntype = relu\n[loss]\ntype = softmax_loss\n", 1},
    {"[a]\ntype = relu\ninput = ,\n[loss]\ntype = softmax_loss\n", 2},
    {"[a]\ntype = relu\n[b]\ntype = relu\ninput = data\n[loss]\ntype = "
     "softmax_loss\n",
     1},
    {"[a]\ntype = relu\n", 2},
    {"[data]\ntype = relu\n[loss]\ntype = softmax_loss\n", 1},
    {"[a]\ntype = relu\nphase = test\n[loss]\ntype = softmax_loss\ninput = a\n", 1},
    {"[l]\ntype = softmax_loss\n[a]\ntype = relu\ninput = l\n[m]\ntype = softmax_loss\n",
     1},
    {"[loss]\ntype = softmax_loss\nloss_weight = -1\n", 1},
    {"[a]\ntype = relu\nphase = never\n[loss]\ntype = softmax_loss\n", 1},
};

TEST_EACH(mistakes_are_counted, COUNT(wrong_graphs)) {
    net_fixture fixture;
    ck_assert_int_eq(fixture_graph(&fixture, wrong_graphs[_i].text), DLC_ERR_CONFIG);
    ck_assert_uint_eq(fixture.problems.errors, wrong_graphs[_i].errors);
    fixture_close(&fixture);
}

/* Whichever allocation fails, the build returns an error and leaks nothing. */
TEST(build_without_memory) {
    net_fixture fixture;
    fixture_net(&fixture, branches, BATCH, CHANNELS, SIDE, SIDE);
    size_t n = 1;
    for (;; n++) {
        dlc_net *net = NULL;
        dlc_memory_fail_at(n);
        dlc_status status = dlc_net_build(&fixture.args, &net);
        dlc_memory_fail_at(0);
        if (status == DLC_OK) {
            dlc_net_free(net);
            break;
        }
        ck_assert_ptr_null(net);
    }
    ck_assert_uint_gt(n, 50);
    fixture_close(&fixture);
}

/* Layers that choose among layouts and kernels. */
static const char *const choosy =
    "[a]\ntype = convolution\nnum_output = 16\nkernel_size = 3\npad = 1\n"
    "layout = channels_last\n"
    "[n]\ntype = lrn\n"
    "[b]\ntype = convolution\nnum_output = 16\nkernel_size = 3\npad = 1\n"
    "[p]\ntype = pooling\nkernel_size = 2\nstride = 2\n"
    "[c]\ntype = convolution\nnum_output = 16\nkernel_size = 1\nlayout = channels_last\n"
    "[e]\ntype = inner_product\nnum_output = 4\n"
    "[loss]\ntype = softmax_loss\n";

/* What each layer is done by, and the layouts that this needs. */
static void describe_net(const dlc_net *net, dlc_text *text) {
    for (int32_t i = 0; i < dlc_net_rows(net); i++) {
        dlc_net_row row;
        ok(dlc_net_row_at(net, i, &row));
        dlc_text_add(text, "%s %s\n", row.name, row.choice);
    }
    ok(dlc_text_status(text));
}

/* If one allocation fails, the build fails too: it makes no other net instead. */
TEST(no_layer_makes_do_without_memory) {
    net_fixture fixture;
    dlc_text wanted = {0};
    fixture_net(&fixture, choosy, 16, 8, SIDE, SIDE);
    describe_net(fixture.net, &wanted);
    size_t n = 1, made = 0;
    for (int is_over = 0; !is_over; n++) {
        dlc_net *net = NULL;
        dlc_memory_fail_once(n);
        dlc_status status = dlc_net_build(&fixture.args, &net);
        made = dlc_memory_fail_once(0);
        is_over = made < n;
        if (status != DLC_OK) {
            ck_assert_int_eq(status, DLC_ERR_NOMEM);
            continue;
        }
        dlc_text text = {0};
        describe_net(net, &text);
        ck_assert_msg(strcmp(text.bytes, wanted.bytes) == 0,
                      "allocation %zu:\n%snot\n%s", n, text.bytes, wanted.bytes);
        dlc_text_free(&text);
        dlc_net_free(net);
    }
    ck_assert_uint_gt(n, 100);
    dlc_text_free(&wanted);
    fixture_close(&fixture);
}
