/* Tests which activations are recomputed in backward, and when: a net of fake layers
 * notes each second forward, and each pass checks that its inputs are what they were.
 */
#include <stdio.h>
#include <string.h>

#include "fake_layers.h"
#include "support/plugins.h"
#include "support/test.h"

enum { BATCH = 2, SAMPLE = 8, COUNT = BATCH * SAMPLE };

static char trace[256];
static float inputs[FAKE_LAYERS][FAKE_READS][COUNT]; /* of the first forward */

static void note(const char *what, const dlc_layer *layer) {
    size_t used = strlen(trace);
    snprintf(trace + used, sizeof trace - used, "%s:%s ", what, layer->name);
}

/* ---- Layers ------------------------------------------------------------------ */

/* Each has a weight, or there would be no backward before the first that has one. */
static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    layer->inputs = shapes->inputs;
    shapes->out[0] = shapes->in[0];
    shapes->params = 1;
    shapes->param[0].name = "weight";
    shapes->param[0].shape = (dlc_shape){.rank = 1, .dims = {1}};
    shapes->param[0].filler = "constant(1)";
    return DLC_OK;
}

static dlc_status reads_nothing(dlc_layer *layer, dlc_layer_memory *memory) {
    (void)layer;
    (void)memory;
    return DLC_OK;
}

static dlc_status reads_inputs(dlc_layer *layer, dlc_layer_memory *memory) {
    (void)layer;
    memory->reads_in = (1u << memory->inputs) - 1;
    return DLC_OK;
}

static void check_inputs(const dlc_layer *layer, const dlc_layer_run *run) {
    for (int32_t j = 0; j < layer->inputs; j++)
        for (int i = 0; i < COUNT; i++)
            ck_assert_msg(
                ((const float *)run->in[j])[i] == inputs[layer->name[0] - 'a'][j][i],
                "input %d of %s has changed after %s", (int)j, layer->name, trace);
}

static dlc_status sum_forward(dlc_layer *layer, const dlc_layer_run *run) {
    float *out = run->out[0];
    if (run->recompute) {
        note("again", layer);
        check_inputs(layer, run);
    }
    for (int32_t j = 0; j < layer->inputs; j++)
        memcpy(inputs[layer->name[0] - 'a'][j], run->in[j], sizeof inputs[0][0]);
    for (int i = 0; i < COUNT; i++) {
        float sum = *(const float *)run->param[0];
        for (int32_t j = 0; j < layer->inputs; j++)
            sum += ((const float *)run->in[j])[i];
        out[i] = sum;
    }
    return DLC_OK;
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    note("back", layer);
    *(float *)run->param_diff[0] = 0;
    for (int32_t j = 0; j < layer->inputs; j++)
        for (int i = 0; run->in_diff[j] && i < COUNT; i++)
            ((float *)run->in_diff[j])[i] = -1;
    return DLC_OK;
}

static dlc_status sum_backward(dlc_layer *layer, const dlc_layer_run *run) {
    return backward(layer, run);
}

static dlc_status reader_forward(dlc_layer *layer, const dlc_layer_run *run) {
    return sum_forward(layer, run);
}

static dlc_status reader_backward(dlc_layer *layer, const dlc_layer_run *run) {
    check_inputs(layer, run);
    return backward(layer, run);
}

static dlc_status loss_forward(dlc_layer *layer, const dlc_layer_run *run) {
    (void)layer;
    return fake_loss(run);
}

static dlc_status loss_backward(dlc_layer *layer, const dlc_layer_run *run) {
    (void)layer;
    memset(run->in_diff[0], 0, COUNT * sizeof(float));
    return DLC_OK;
}

static const dlc_layer_ops sum_ops = FAKE_OPS(infer, reads_nothing, sum),
                           reader_ops = FAKE_OPS(infer, reads_inputs, reader),
                           loss_ops = FAKE_OPS(fake_infer_loss, reads_nothing, loss);

static const dlc_feature conv = FAKE_FEATURE("conv", 0, &reader_ops),
                         norm = FAKE_FEATURE("norm", DLC_LAYER_RECOMPUTABLE,
                                             &reader_ops),
                         cheap = FAKE_FEATURE("cheap", DLC_LAYER_RECOMPUTABLE,
                                              &sum_ops),
                         loss = FAKE_FEATURE("loss", DLC_LAYER_METRIC | DLC_LAYER_LOSS,
                                             &loss_ops);

/* ---- Nets: conv and norm read their inputs in backward, cheap does not ------- */

static const struct {
    fake_layer layers[FAKE_LAYERS];
    const char *trace, *on_device; /* with recomputation; NULL: alike */
} cases[] = {
    /* b, from what c itself keeps for its backward */
    {{{&conv, "-"}, {&cheap, "a"}, {&conv, "ab"}, {&loss, "c"}},
     "again:b back:c back:b back:a ",
     NULL},
    /* but not if nothing keeps a */
    {{{&conv, "-"}, {&cheap, "a"}, {&conv, "b"}, {&loss, "c"}},
     "back:c back:b back:a ",
     NULL},
    /* two in a row, of which d reads the second */
    {{{&conv, "-"}, {&norm, "a"}, {&cheap, "b"}, {&conv, "c"}, {&loss, "d"}},
     "again:b again:c back:d back:c back:b back:a ",
     NULL},
    /* not three in a row */
    {{{&conv, "-"},
      {&norm, "a"},
      {&cheap, "b"},
      {&cheap, "c"},
      {&conv, "d"},
      {&loss, "e"}},
     "back:e back:d back:c back:b back:a ",
     NULL},
    /* b is recomputed once, for c, so that d is kept */
    {{{&conv, "-"},
      {&norm, "a"},
      {&cheap, "b"},
      {&cheap, "b"},
      {&conv, "c"},
      {&conv, "d"},
      {&conv, "ef"},
      {&loss, "g"}},
     "back:g back:f again:b again:c back:e back:d back:c back:b back:a ",
     NULL},
    /* from the batch, which is kept where it is the host's memory */
    {{{&norm, "-"}, {&conv, "a"}, {&loss, "b"}},
     "again:a back:b back:a ",
     "back:b back:a "},
};

/* The device's own feature, and that of one with memory of its own. */
static void open_net(fake_net *fixture, dlc_feature *device, int i, int recompute,
                     int on_host) {
    fake_begin(fixture, cases[i].layers);
    *device = *fixture->args.device_feature;
    if (!on_host)
        device->caps &= ~(uint64_t)DLC_DEVICE_HOST;
    fixture->args.device_feature = device;
    fixture->args.sample = (dlc_shape){.rank = 1, .dims = {SAMPLE}};
    fixture->args.batch = BATCH;
    fixture->args.recompute = recompute;
    fake_build(fixture);
}

static void pass(dlc_net *net) {
    static const int32_t labels[BATCH];
    float data[COUNT];
    for (int i = 0; i < COUNT; i++)
        data[i] = (float)i;
    trace[0] = '\0';
    fake_ok(dlc_net_set_input(net, data, labels));
    fake_ok(dlc_net_forward(net, 0, 0));
    fake_ok(dlc_net_backward(net, 1, NULL, NULL));
}

/* ---- Tests ------------------------------------------------------------------- */

static void expect(int i, int on_host, const char *expected) {
    fake_net fixture;
    dlc_feature device;
    open_net(&fixture, &device, i, 1, on_host);
    for (int repeat = 0; repeat < 2; repeat++) {
        pass(fixture.net);
        ck_assert_str_eq(trace, expected);
    }
    fake_close(&fixture);
}

TEST_SETTINGS(.setup_once = plugins_open);

TEST_EACH(cheap_activations_are_recomputed, COUNT(cases)) {
    expect(_i, 1, cases[_i].trace);
    expect(_i, 0, cases[_i].on_device ? cases[_i].on_device : cases[_i].trace);
}

TEST_EACH(nothing_is_recomputed_unasked, COUNT(cases)) {
    fake_net fixture;
    dlc_feature device;
    open_net(&fixture, &device, _i, 0, 1);
    pass(fixture.net);
    ck_assert_ptr_null(strstr(trace, "again"));
    fake_close(&fixture);
}
