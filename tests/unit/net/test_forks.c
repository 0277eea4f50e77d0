/* Tensors that several layers read, whose gradients are added up: by passes of their
 * own, or by layers that add what they find to what others left. Layers of the test's
 * own, which are asked to do it in one net and aren't able to in the other: both must
 * come to the same bits. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "made_up.h"

enum { BATCH = 2, SAMPLE = 6, COUNT = BATCH * SAMPLE, MOST = MADE_UP_LAYERS };

static int able; /* do layers add by themselves, where they may? */
static int sums; /* that the device made of two gradients in the last backward */

/* ---- The layers -------------------------------------------------------------- */

/* As they were prepared, by the letters that are their names; `told` and `adds` are
 * shares_gradient and adds_gradient. */
static struct dlc_layer seen[MOST];

/* Of all types: the inputs are alike, and so is the output, but for a loss. */
static dlc_status infer(dlc_layer *layer, dlc_layer_plan *plan) {
    layer->inputs = plan->inputs;
    plan->out[0] = plan->in[0];
    return DLC_OK;
}

static dlc_status infer_times(dlc_layer *layer, dlc_layer_plan *plan) {
    plan->params = 1;
    plan->param[0].name = "weight";
    plan->param[0].filler = "gaussian(0, 1)";
    plan->param[0].shape = (dlc_shape){.rank = 1, .dims = {SAMPLE}};
    return infer(layer, plan);
}

static dlc_status prepare_rigid(dlc_layer *layer, dlc_layer_plan *plan) {
    layer->told = plan->shares_gradient;
    plan->reads_in = plan->params ? 1 : 0;
    plan->param[0].count = SAMPLE;
    if (plan->inputs > 1)
        plan->in_place = 2;
    seen[layer->name[0] - 'a'] = *layer;
    return DLC_OK;
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_plan *plan) {
    if (able)
        layer->adds = plan->adds_gradient = plan->shares_gradient;
    return prepare_rigid(layer, plan);
}

static dlc_status prepare_loss(dlc_layer *layer, dlc_layer_plan *plan) {
    plan->reads_in = 1;
    layer->told = plan->shares_gradient;
    seen[layer->name[0] - 'a'] = *layer;
    return DLC_OK;
}

static float weight_at(const dlc_layer_run *run, int i) {
    return ((const float *)run->param[0])[i % SAMPLE];
}

static dlc_status times_forward(dlc_layer *layer, const dlc_layer_run *run) {
    const float *in = run->in[0];
    float *out = run->out[0];
    (void)layer;
    for (int i = 0; i < COUNT; i++)
        out[i] = in[i] * weight_at(run, i);
    return DLC_OK;
}

/* Into input j, or to what is there if that is asked for; only who can is asked. */
static void give(const dlc_layer *layer, const dlc_layer_run *run, int32_t j, int i,
                 float diff) {
    float *to = run->in_diff[j];
    int adds = (run->adds >> j & 1) != 0;
    if (adds && !(layer->adds >> j & 1))
        ck_abort_msg("layer '%s' is asked to add to input %d", layer->name, (int)j);
    if (to)
        to[i] = adds ? to[i] + diff : diff;
}

static dlc_status times_backward(dlc_layer *layer, const dlc_layer_run *run) {
    const float *in = run->in[0], *diff = run->out_diff[0];
    float *slope = run->param_diff[0];
    memset(slope, 0, SAMPLE * sizeof *slope);
    for (int i = 0; i < COUNT; i++) {
        slope[i % SAMPLE] += in[i] * diff[i];
        give(layer, run, 0, i, weight_at(run, i) * diff[i]);
    }
    return DLC_OK;
}

static dlc_status join_forward(dlc_layer *layer, const dlc_layer_run *run) {
    float *out = run->out[0];
    for (int i = 0; i < COUNT; i++) {
        float sum = 0;
        for (int32_t j = 0; j < layer->inputs; j++)
            sum += (float)(j + 1) * ((const float *)run->in[j])[i];
        out[i] = sum;
    }
    return DLC_OK;
}

static dlc_status join_backward(dlc_layer *layer, const dlc_layer_run *run) {
    for (int i = 0; i < COUNT; i++) {
        float diff = ((const float *)run->out_diff[0])[i];
        for (int32_t j = 0; j < layer->inputs; j++)
            give(layer, run, j, i, (float)(j + 1) * diff);
    }
    return DLC_OK;
}

static dlc_status loss_forward(dlc_layer *layer, const dlc_layer_run *run) {
    (void)layer;
    return made_up_loss(run);
}

static dlc_status loss_backward(dlc_layer *layer, const dlc_layer_run *run) {
    for (int i = 0; i < COUNT; i++)
        give(layer, run, 0, i, ((const float *)run->in[0])[i] / 3);
    return DLC_OK;
}

static const dlc_layer_ops times_ops = MADE_UP_OPS(infer_times, prepare, times),
                           rigid_ops = MADE_UP_OPS(infer_times, prepare_rigid, times),
                           join_ops = MADE_UP_OPS(infer, prepare, join),
                           loss_ops = MADE_UP_OPS(made_up_infer_loss, prepare_loss,
                                                  loss);

static const dlc_feature times = MADE_UP_FEATURE("times", 0, &times_ops),
                         rigid = MADE_UP_FEATURE("rigid", 0, &rigid_ops),
                         join = MADE_UP_FEATURE("join", 0, &join_ops),
                         loss = MADE_UP_FEATURE(
                             "loss", DLC_LAYER_METRIC | DLC_LAYER_LOSS, &loss_ops);

/* ---- The nets ---------------------------------------------------------------- */

/* `shared`: those who are told so, each once for an input: all but the last reader, who
 * is first in backward. */
typedef struct fork_case {
    const char *what;
    made_up_layer layer[MOST];
    const char *shared;
    int passes_without, passes_with;
} fork_case;

static const fork_case cases[] = {
    {"a chain", {{&times, "-"}, {&times, "a"}, {&loss, "b"}}, "", 0, 0},
    {"a residual block: the join writes in place, b adds",
     {{&times, "-"}, {&times, "a"}, {&join, "ba"}, {&loss, "c"}},
     "b",
     1,
     0},
    {"two of them",
     {{&times, "-"},
      {&times, "a"},
      {&join, "ba"},
      {&times, "c"},
      {&join, "dc"},
      {&loss, "e"}},
     "bd",
     2,
     0},
    {"a projection beside the branch",
     {{&times, "-"}, {&times, "a"}, {&times, "a"}, {&join, "cb"}, {&loss, "d"}},
     "b",
     1,
     0},
    {"three readers: one writes, two add",
     {{&times, "-"},
      {&times, "a"},
      {&times, "a"},
      {&times, "a"},
      {&join, "bcd"},
      {&loss, "e"}},
     "bc",
     2,
     0},
    {"one of three cannot",
     {{&times, "-"},
      {&times, "a"},
      {&rigid, "a"},
      {&times, "a"},
      {&join, "bcd"},
      {&loss, "e"}},
     "bc",
     2,
     1},
    {"the only one that can is first in backward",
     {{&times, "-"}, {&rigid, "a"}, {&times, "a"}, {&join, "bc"}, {&loss, "d"}},
     "b",
     1,
     1},
    {"the same tensor twice into one layer",
     {{&times, "-"}, {&join, "aa"}, {&loss, "b"}},
     "",
     1,
     1},
    {"and once more into another",
     {{&times, "-"}, {&times, "a"}, {&join, "aab"}, {&loss, "c"}},
     "b",
     2,
     1},
    {"twice, behind another",
     {{&times, "-"}, {&join, "aa"}, {&times, "a"}, {&join, "bc"}, {&loss, "d"}},
     "bb",
     2,
     1},
    {"nobody wants the data's gradient",
     {{&times, "-"}, {&times, "-"}, {&join, "ab"}, {&loss, "c"}},
     "",
     0,
     0},
    {"two losses", {{&times, "-"}, {&loss, "a"}, {&loss, "a"}}, "b", 1, 1},
};
enum { CASES = sizeof cases / sizeof *cases };

static dlc_status (*real_add)(dlc_device *device, dlc_queue *queue, size_t count,
                              const float *x, float *y);

static dlc_status count_add(dlc_device *device, dlc_queue *queue, size_t count,
                            const float *x, float *y) {
    sums++;
    return real_add(device, queue, count, x, y);
}

static void open_fork(made_up_net *f, const fork_case *c) {
    memset(seen, 0, sizeof seen);
    made_up_begin(f, c->layer);
    real_add = f->device_ops.add;
    f->device_ops.add = count_add;
    f->args.sample = (dlc_shape){.rank = 3, .dims = {SAMPLE, 1, 1}};
    f->args.batch = BATCH;
    f->args.seed = 4;
    made_up_build(f);
}

/* Twice: what the first pass left is not added to. */
static void pass(made_up_net *f) {
    static const float data[COUNT] = {0.3f, -1.7f, 2.1f, 0.9f,  -0.4f, 1.3f,
                                      1.1f, 0.7f,  3.3f, -2.9f, 0.1f,  -0.6f};
    static const int32_t labels[BATCH] = {0, 1};
    for (int i = 0; i < 2; i++) {
        sums = 0;
        made_up_ok(dlc_net_set_input(f->net, data, labels));
        made_up_ok(dlc_net_forward(f->net, i, 0));
        made_up_ok(dlc_net_backward(f->net, 1, NULL, NULL));
    }
}

/* Who was told that others give a gradient as well. */
static void check_told(const fork_case *c) {
    char told[MOST * MADE_UP_READS + 1] = "";
    for (int i = 0, at = 0; i < MOST; i++)
        for (int32_t j = 0; j < MADE_UP_READS; j++)
            if (seen[i].told >> j & 1) {
                told[at++] = (char)('a' + i);
                told[at] = 0;
            }
    ck_assert_msg(strcmp(told, c->shared) == 0, "%s: '%s' were told, not '%s'", c->what,
                  told, c->shared);
}

/* What rows say that is left to add, and what was added. */
static void check_passes(const fork_case *c, const made_up_net *f, int expected) {
    int32_t said = 0;
    for (int32_t i = 0; i < dlc_net_rows(f->net); i++) {
        dlc_net_row row;
        made_up_ok(dlc_net_row_at(f->net, i, &row));
        said += row.added;
    }
    ck_assert_msg(sums == expected && said == expected,
                  "%s: %d passes of adding, %d by the rows, not %d", c->what, sums,
                  (int)said, expected);
}

START_TEST(the_same_bits) {
    const fork_case *c = &cases[_i];
    made_up_net without, with;
    able = 0;
    open_fork(&without, c);
    check_told(c);
    pass(&without);
    check_passes(c, &without, c->passes_without);
    able = 1;
    open_fork(&with, c);
    check_told(c);
    pass(&with);
    check_passes(c, &with, c->passes_with);
    const dlc_arenas *a = dlc_net_arenas(without.net), *b = dlc_net_arenas(with.net);
    ck_assert_uint_eq(a->count, b->count);
    ck_assert(a->gradients[0] != 0);
    ck_assert_mem_eq(a->gradients, b->gradients, a->count * sizeof *a->gradients);
    ck_assert_uint_le(dlc_net_memory_plan(with.net).activations,
                      dlc_net_memory_plan(without.net).activations);
    made_up_close(&with);
    made_up_close(&without);
}
END_TEST

/* The gradients of a fork by hand: d = ((a b) + 2 a), loss' = d / 3. */
START_TEST(they_are_right) {
    made_up_net f;
    able = 1;
    open_fork(&f, &cases[1]);
    const dlc_arenas *arenas = dlc_net_arenas(f.net);
    float w[2][SAMPLE], *slope[2] = {NULL, NULL};
    for (int32_t s = 0; s < arenas->segments; s++) {
        int which = arenas->segment[s].name[0] - 'a';
        slope[which] = arenas->gradients + arenas->segment[s].offset;
        for (int i = 0; i < SAMPLE; i++) {
            w[which][i] = (float)(i + 1 + which) / 4;
            arenas->weights[arenas->segment[s].offset + (size_t)i] = w[which][i];
        }
    }
    pass(&f);
    static const float first[SAMPLE] = {0.3f, -1.7f, 2.1f, 0.9f, -0.4f, 1.3f},
                       second[SAMPLE] = {1.1f, 0.7f, 3.3f, -2.9f, 0.1f, -0.6f};
    for (int i = 0; i < SAMPLE; i++) {
        double squares = (double)(first[i] * first[i] + second[i] * second[i]);
        double a = (double)w[0][i], b = (double)w[1][i];
        double diff = a * (b + 2) / 3 * squares; /* of x x */
        ck_assert_double_eq_tol((double)slope[0][i], diff * (b + 2), 1e-4);
        ck_assert_double_eq_tol((double)slope[1][i], diff * a, 1e-4);
    }
    made_up_close(&f);
}
END_TEST

/* What two layers read comes in by a port: the gradient that goes back is the sum. */
static void port_gradient(float *diff) {
    static float in[COUNT] = {0.5f, -1, 2, 0.25f, 3, -0.5f, 1, 1.5f, -2, 0.75f, -3, 4};
    static const float data[COUNT];
    static const int32_t labels[BATCH];
    made_up_net f;
    open_fork(&f, &cases[1]);
    dlc_net_free(f.net);
    const dlc_net_port port = {.dtype = DLC_F32,
                               .shape = {.rank = 4, .dims = {BATCH, SAMPLE, 1, 1}},
                               .gradient = 1};
    f.args.first = 1;
    f.args.end = f.graph.layers;
    f.args.ports_in = 1;
    f.args.port_in = &port;
    made_up_ok(dlc_net_build(&f.args, &f.net));
    made_up_ok(dlc_net_allocate(f.net));
    void *from = in, *to = diff;
    const dlc_net_pass one = {.in = &from, .in_diff = &to};
    dlc_net_enter(f.net, &one);
    sums = 0;
    made_up_ok(dlc_net_set_input(f.net, data, labels));
    made_up_ok(dlc_net_forward(f.net, 0, 0));
    made_up_ok(dlc_net_backward(f.net, 1, NULL, NULL));
    ck_assert_int_eq(sums, !able);
    made_up_close(&f);
}

START_TEST(through_a_port) {
    float without[COUNT] = {0}, with[COUNT] = {0};
    able = 0;
    port_gradient(without);
    able = 1;
    port_gradient(with);
    ck_assert(without[0] != 0);
    ck_assert_mem_eq(without, with, sizeof with);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("forks");
    TCase *all = tcase_create("forks");
    tcase_add_loop_test(all, the_same_bits, 0, CASES);
    tcase_add_test(all, they_are_right);
    tcase_add_test(all, through_a_port);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
