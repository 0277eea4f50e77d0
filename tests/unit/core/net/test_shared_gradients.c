/* Tests the gradients of tensors that several layers read: they are added up by extra
 * passes, or by layers that accumulate into the gradient that another layer wrote. Fake
 * layers can accumulate in one net and cannot in the other; the results must be bitwise
 * identical. */
#include <stdio.h>
#include <string.h>

#include "fake_layers.h"
#include "support/plugins.h"
#include "support/test.h"

enum { BATCH = 2, SAMPLE = 6, COUNT = BATCH * SAMPLE, MOST = FAKE_LAYERS };

static int can_accumulate; /* do the layers accumulate if they may? */
static int additions;      /* of two gradients, by the device, in the last backward */

/* ---- The layers -------------------------------------------------------------- */

/* The layers as they were prepared, by the letters that are their names; `told` and
 * `adds` are shared_gradient and accumulates_gradient of the plan. */
static struct dlc_layer seen[MOST];

/* For all types but the loss: all inputs and the output have the same shape. */
static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    layer->inputs = shapes->inputs;
    shapes->out[0] = shapes->in[0];
    return DLC_OK;
}

static dlc_status infer_times(dlc_layer *layer, dlc_layer_shapes *shapes) {
    shapes->params = 1;
    shapes->param[0].name = "weight";
    shapes->param[0].filler = "gaussian(0, 1)";
    shapes->param[0].shape = (dlc_shape){.rank = 1, .dims = {SAMPLE}};
    return infer(layer, shapes);
}

static dlc_status prepare_rigid(dlc_layer *layer, dlc_layer_memory *memory) {
    layer->told = memory->shared_gradient;
    memory->reads_in = memory->params ? 1 : 0;
    if (memory->inputs > 1)
        memory->in_place = 2;
    seen[layer->name[0] - 'a'] = *layer;
    return DLC_OK;
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    if (can_accumulate)
        layer->adds = memory->accumulates_gradient = memory->shared_gradient;
    return prepare_rigid(layer, memory);
}

static dlc_status prepare_loss(dlc_layer *layer, dlc_layer_memory *memory) {
    memory->reads_in = 1;
    layer->told = memory->shared_gradient;
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

/* Writes or accumulates the gradient of input j; only layers that can accumulate may be
 * asked to. */
static void write_gradient(const dlc_layer *layer, const dlc_layer_run *run, int32_t j,
                           int i, float diff) {
    float *to = run->in_diff[j];
    int adds = (run->accumulate >> j & 1) != 0;
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
        write_gradient(layer, run, 0, i, weight_at(run, i) * diff[i]);
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
            write_gradient(layer, run, j, i, (float)(j + 1) * diff);
    }
    return DLC_OK;
}

static dlc_status loss_forward(dlc_layer *layer, const dlc_layer_run *run) {
    (void)layer;
    return fake_loss(run);
}

static dlc_status loss_backward(dlc_layer *layer, const dlc_layer_run *run) {
    for (int i = 0; i < COUNT; i++)
        write_gradient(layer, run, 0, i, ((const float *)run->in[0])[i] / 3);
    return DLC_OK;
}

static const dlc_layer_ops times_ops = FAKE_OPS(infer_times, prepare, times),
                           rigid_ops = FAKE_OPS(infer_times, prepare_rigid, times),
                           join_ops = FAKE_OPS(infer, prepare, join),
                           loss_ops = FAKE_OPS(fake_infer_loss, prepare_loss, loss);

static const dlc_feature times = FAKE_FEATURE("times", 0, &times_ops),
                         rigid = FAKE_FEATURE("rigid", 0, &rigid_ops),
                         join = FAKE_FEATURE("join", 0, &join_ops),
                         loss = FAKE_FEATURE("loss", DLC_LAYER_METRIC | DLC_LAYER_LOSS,
                                             &loss_ops);

/* ---- The nets ---------------------------------------------------------------- */

/* `shared` lists, once per input, the layers that are told that the gradient is shared:
 * all but the last reader, which is the first in backward. */
typedef struct sharing_case {
    const char *what;
    fake_layer layer[MOST];
    const char *shared;
    int passes_without, passes_with;
} sharing_case;

static const sharing_case cases[] = {
    {"a chain", {{&times, "-"}, {&times, "a"}, {&loss, "b"}}, "", 0, 0},
    {"a residual block: the join writes in place, b accumulates",
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
    {"three readers: one writes, two accumulate",
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
    {"twice into one layer and once into another",
     {{&times, "-"}, {&times, "a"}, {&join, "aab"}, {&loss, "c"}},
     "b",
     2,
     1},
    {"twice into one layer, after another one",
     {{&times, "-"}, {&join, "aa"}, {&times, "a"}, {&join, "bc"}, {&loss, "d"}},
     "bb",
     2,
     1},
    {"the gradient of the data is not needed",
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
    additions++;
    return real_add(device, queue, count, x, y);
}

static void open_case(fake_net *f, const sharing_case *c) {
    memset(seen, 0, sizeof seen);
    fake_begin(f, c->layer);
    real_add = f->device_ops.add;
    f->device_ops.add = count_add;
    f->args.sample = (dlc_shape){.rank = 3, .dims = {SAMPLE, 1, 1}};
    f->args.batch = BATCH;
    f->args.seed = 4;
    fake_build(f);
}

/* Runs two passes: nothing may be added to what the first one left. */
static void pass(fake_net *f) {
    static const float data[COUNT] = {0.3f, -1.7f, 2.1f, 0.9f,  -0.4f, 1.3f,
                                      1.1f, 0.7f,  3.3f, -2.9f, 0.1f,  -0.6f};
    static const int32_t labels[BATCH] = {0, 1};
    for (int i = 0; i < 2; i++) {
        additions = 0;
        fake_ok(dlc_net_set_input(f->net, data, labels));
        fake_ok(dlc_net_forward(f->net, i, 0));
        fake_ok(dlc_net_backward(f->net, 1, NULL, NULL));
    }
}

/* Checks which layers were told that others write the gradient, too. */
static void check_told(const sharing_case *c) {
    char told[MOST * FAKE_READS + 1] = "";
    for (int i = 0, at = 0; i < MOST; i++)
        for (int32_t j = 0; j < FAKE_READS; j++)
            if (seen[i].told >> j & 1) {
                told[at++] = (char)('a' + i);
                told[at] = 0;
            }
    ck_assert_msg(strcmp(told, c->shared) == 0, "%s: '%s' were told, not '%s'", c->what,
                  told, c->shared);
}

/* Checks the number of additions, as done and as described by the rows. */
static void check_passes(const sharing_case *c, const fake_net *f, int expected) {
    int32_t said = 0;
    for (int32_t i = 0; i < dlc_net_rows(f->net); i++) {
        dlc_net_row row;
        fake_ok(dlc_net_row_at(f->net, i, &row));
        said += row.added;
    }
    ck_assert_msg(additions == expected && said == expected,
                  "%s: %d passes of adding, %d by the rows, not %d", c->what, additions,
                  (int)said, expected);
}

TEST_SETTINGS(.setup_once = plugins_open);

TEST_EACH(results_are_identical, CASES) {
    const sharing_case *c = &cases[_i];
    fake_net without, with;
    can_accumulate = 0;
    open_case(&without, c);
    check_told(c);
    pass(&without);
    check_passes(c, &without, c->passes_without);
    can_accumulate = 1;
    open_case(&with, c);
    check_told(c);
    pass(&with);
    check_passes(c, &with, c->passes_with);
    const dlc_arenas *a = dlc_net_arenas(without.net), *b = dlc_net_arenas(with.net);
    ck_assert_uint_eq(a->count, b->count);
    ck_assert(a->gradients[0] != 0);
    ck_assert_mem_eq(a->gradients, b->gradients, a->count * sizeof *a->gradients);
    ck_assert_uint_le(dlc_net_memory_plan(with.net).activations,
                      dlc_net_memory_plan(without.net).activations);
    fake_close(&with);
    fake_close(&without);
}

/* The gradients of a residual block, computed by hand: d = ((a b) + 2 a), loss' = d
 * / 3. */
TEST(gradients_are_right) {
    fake_net f;
    can_accumulate = 1;
    open_case(&f, &cases[1]);
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
    fake_close(&f);
}

/* A boundary tensor that two layers read: the gradient that is sent back is the sum. */
static void boundary_gradient(float *diff) {
    static float in[COUNT] = {0.5f, -1, 2, 0.25f, 3, -0.5f, 1, 1.5f, -2, 0.75f, -3, 4};
    static const float data[COUNT];
    static const int32_t labels[BATCH];
    fake_net f;
    open_case(&f, &cases[1]);
    dlc_net_free(f.net);
    const dlc_net_boundary boundary = {
        .dtype = DLC_F32,
        .shape = {.rank = 4, .dims = {BATCH, SAMPLE, 1, 1}},
        .gradient = 1};
    f.args.first = 1;
    f.args.end = f.graph.layers;
    f.args.boundaries_in = 1;
    f.args.boundary_in = &boundary;
    fake_ok(dlc_net_build(&f.args, &f.net));
    fake_ok(dlc_net_allocate(f.net));
    void *from = in, *to = diff;
    const dlc_net_micro_batch one = {.in = &from, .in_diff = &to};
    dlc_net_begin_micro_batch(f.net, &one);
    additions = 0;
    fake_ok(dlc_net_set_input(f.net, data, labels));
    fake_ok(dlc_net_forward(f.net, 0, 0));
    fake_ok(dlc_net_backward(f.net, 1, NULL, NULL));
    ck_assert_int_eq(additions, !can_accumulate);
    fake_close(&f);
}

TEST(boundary_tensors) {
    float without[COUNT] = {0}, with[COUNT] = {0};
    can_accumulate = 0;
    boundary_gradient(without);
    can_accumulate = 1;
    boundary_gradient(with);
    ck_assert(without[0] != 0);
    ck_assert_mem_eq(without, with, sizeof with);
}
