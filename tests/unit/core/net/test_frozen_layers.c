/* Tests a net of fake layers, some of which are frozen: what their backward is asked
 * for, where their parameters and gradients are, and that nothing below them runs. */
#include <stdio.h>
#include <string.h>

#include "fake_layers.h"
#include "support/plugins.h"
#include "support/test.h"

enum { BATCH = 2, SAMPLE = 4, COUNT = BATCH * SAMPLE, WEIGHTS = 20 };

static char trace[256];

static void note(const char *what, const dlc_layer *layer) {
    size_t used = strlen(trace);
    snprintf(trace + used, sizeof trace - used, "%s:%s ", what, layer->name);
}

/* ---- Layers ------------------------------------------------------------------ */

/* A weight, and a running average between it and another weight. */
static dlc_status infer_mix(dlc_layer *layer, dlc_layer_shapes *shapes) {
    static const char *const names[] = {"first", "average", "second"};
    (void)layer;
    shapes->out[0] = shapes->in[0];
    shapes->params = 3;
    for (int i = 0; i < 3; i++) {
        shapes->param[i].name = names[i];
        shapes->param[i].shape = (dlc_shape){.rank = 1, .dims = {WEIGHTS}};
        shapes->param[i].filler = "constant(1)";
    }
    shapes->param[1].flags = DLC_PARAM_BUFFER;
    return DLC_OK;
}

static dlc_status prepare_mix(dlc_layer *layer, dlc_layer_memory *memory) {
    (void)layer;
    memory->reads_in = 1;
    return DLC_OK;
}

static dlc_status mix_forward(dlc_layer *layer, const dlc_layer_run *run) {
    (void)layer;
    memcpy(run->out[0], run->in[0], COUNT * sizeof(float));
    return DLC_OK;
}

/* Writes each gradient for which there is room. */
static dlc_status mix_backward(dlc_layer *layer, const dlc_layer_run *run) {
    static const char *const parts[] = {"none", "data", "weights", "both"};
    note(parts[run->backward & 3], layer);
    ck_assert_ptr_null(run->param_diff[1]);
    for (int p = 0; p < 3; p++)
        for (int i = 0; run->param_diff[p] && i < WEIGHTS; i++)
            ((float *)run->param_diff[p])[i] = (float)(100 * (p + 1));
    note(run->param_diff[0] ? "gives" : "keeps", layer);
    if (run->in_diff[0])
        memcpy(run->in_diff[0], run->out_diff[0], COUNT * sizeof(float));
    return DLC_OK;
}

static dlc_status loss_forward(dlc_layer *layer, const dlc_layer_run *run) {
    (void)layer;
    return fake_loss(run);
}

static dlc_status loss_backward(dlc_layer *layer, const dlc_layer_run *run) {
    (void)layer;
    memcpy(run->in_diff[0], run->in[0], COUNT * sizeof(float));
    return DLC_OK;
}

static const dlc_layer_ops mix_ops = FAKE_OPS(infer_mix, prepare_mix, mix),
                           loss_ops = FAKE_OPS(fake_infer_loss, prepare_mix, loss);

static const dlc_feature splits = FAKE_FEATURE("splits", DLC_LAYER_SPLIT_BACKWARD,
                                               &mix_ops),
                         whole = FAKE_FEATURE("whole", 0, &mix_ops),
                         loss = FAKE_FEATURE("loss", DLC_LAYER_METRIC | DLC_LAYER_LOSS,
                                             &loss_ops);

/* ---- The net: data -> a -> b -> c -> d, of which b can split its backward -------- */

static void open_net(fake_net *fixture, const char *frozen) {
    static const fake_layer layers[] = {
        {&whole, "-"}, {&splits, "a"}, {&whole, "b"}, {&loss, "c"}, {NULL, NULL}};
    fake_begin(fixture, layers);
    for (int32_t i = 0; i < fixture->graph.layers; i++)
        fixture->layer[i].frozen = strchr(frozen, 'a' + i) != NULL;
    fixture->args.sample = (dlc_shape){.rank = 3, .dims = {1, 2, 2}};
    fixture->args.batch = BATCH;
    fake_build(fixture);
}

static void pass(fake_net *fixture) {
    static const float data[COUNT] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const int32_t labels[BATCH] = {0, 0};
    trace[0] = '\0';
    fake_ok(dlc_net_set_input(fixture->net, data, labels));
    fake_ok(dlc_net_forward(fixture->net, 0, 0));
    fake_ok(dlc_net_backward(fixture->net, 1, NULL, NULL));
}

/* ---- Tests ------------------------------------------------------------------- */

static const struct {
    const char *frozen, *trace, *timed;
    int segments;
} cases[] = {
    {"", "both:c gives:c both:b gives:b both:a gives:a ",
     "both:c gives:c weights:b gives:b data:b gives:b both:a gives:a ", 6},
    {"a", "both:c gives:c both:b gives:b ", "both:c gives:c both:b gives:b ", 4},
    {"ab", "both:c gives:c ", "both:c gives:c ", 2},
    {"b", "both:c gives:c data:b keeps:b both:a gives:a ",
     "both:c gives:c data:b keeps:b both:a gives:a ", 4},
    /* c cannot leave its gradients out: they are discarded */
    {"bc", "data:c gives:c data:b keeps:b both:a gives:a ",
     "data:c gives:c data:b keeps:b both:a gives:a ", 2},
    {"abc", "", "", 0},
};

TEST_SETTINGS(.setup_once = plugins_open);

TEST_EACH(only_what_is_needed_runs, COUNT(cases)) {
    fake_net fixture;
    open_net(&fixture, cases[_i].frozen);
    pass(&fixture);
    ck_assert_str_eq(trace, cases[_i].trace);
    dlc_net_time(fixture.net, 1);
    pass(&fixture);
    ck_assert_str_eq(trace, cases[_i].timed);
    ck_assert_int_eq(dlc_net_arenas(fixture.net)->segments, cases[_i].segments);
    fake_close(&fixture);
}

/* The weights are those of before, and each gradient in the arena is a trained one's.
 */
TEST_EACH(frozen_parameters_are_elsewhere, COUNT(cases)) {
    fake_net fixture;
    open_net(&fixture, cases[_i].frozen);
    pass(&fixture);
    const dlc_arenas *arenas = dlc_net_arenas(fixture.net);
    for (int32_t i = 0; i < dlc_net_params(fixture.net); i++) {
        const dlc_net_param *param = dlc_net_param_at(fixture.net, i);
        int is_frozen = strchr(cases[_i].frozen, param->name[0]) != NULL;
        int is_average = strstr(param->name, "average") != NULL;
        ck_assert_int_eq(param->is_frozen, is_frozen);
        ck_assert_int_eq(param->is_average, is_average);
        ck_assert_int_eq(param->is_buffer, is_frozen || is_average);
        ck_assert_ptr_eq(dlc_net_param_arena(fixture.net, i), is_frozen ? arenas->frozen
                                                              : is_average
                                                                  ? arenas->buffers
                                                                  : arenas->weights);
        for (int k = 0; k < WEIGHTS; k++)
            ck_assert_float_eq((dlc_net_param_arena(fixture.net, i) + param->offset)[k],
                               1);
        if (!param->is_buffer)
            ck_assert_float_eq(arenas->gradients[param->offset],
                               strstr(param->name, "first") ? 100 : 300);
    }
    dlc_net_memory memory = dlc_net_memory_plan(fixture.net);
    ck_assert_uint_eq(memory.gradients, arenas->count * sizeof(float));
    ck_assert_uint_eq(memory.buffers,
                      (arenas->buffer_count + arenas->frozen_count) * sizeof(float));
    ck_assert_uint_eq(arenas->frozen_count,
                      strlen(cases[_i].frozen) * 3 * DLC_SQUARE_PIECE);
    fake_close(&fixture);
}

TEST(rows_say_what_is_frozen) {
    fake_net fixture;
    open_net(&fixture, "bc");
    for (int32_t i = 0; i < dlc_net_rows(fixture.net); i++) {
        dlc_net_row row;
        fake_ok(dlc_net_row_at(fixture.net, i, &row));
        int has_params = strchr("abc", row.name[0]) != NULL;
        ck_assert_int_eq(row.frozen, strchr("bc", row.name[0]) != NULL);
        ck_assert_int_eq(row.parameters, has_params ? 2 * WEIGHTS : 0);
        ck_assert_int_eq(row.trained_count > 0, row.name[0] == 'a');
        ck_assert_uint_eq(row.work[DLC_NET_BACKWARD_WEIGHTS].bytes > 0,
                          row.name[0] == 'a');
    }
    fake_close(&fixture);
}
