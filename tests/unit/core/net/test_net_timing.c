/* Tests a timed net, of fake layers that record their calls: which parts of backward
 * are called separately, what is measured, and how much work each row reports. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "fake_layers.h"
#include "support/plugins.h"
#include "support/test.h"

enum {
    BATCH = 2,
    SAMPLE = 4,
    COUNT = BATCH * SAMPLE,
    WEIGHTS = 16,
    MULTIPLY_ADDS = 77
};

static char trace[1024];

static void note(const char *what, const char *name) {
    size_t used = strlen(trace);
    snprintf(trace + used, sizeof trace - used, "%s:%s ", what, name);
}

/* Long enough for any clock to see. */
static void take_time(void) {
    volatile unsigned spins = 20000;
    while (spins)
        spins--;
}

/* ---- Two layers, which use a private layout ----------------------------------- */

/* An opaque token. */
static const dlc_layout *own_layout(void) {
    static const char token;
    return (const dlc_layout *)(const void *)&token;
}

static void reordering(void) {
    note("reorder", "-");
    take_time();
}

static dlc_status infer_mix(dlc_layer *layer, dlc_layer_shapes *shapes) {
    (void)layer;
    shapes->out[0] = shapes->in[0];
    shapes->params = 1;
    shapes->param[0].name = "weight";
    shapes->param[0].shape = (dlc_shape){.rank = 1, .dims = {WEIGHTS}};
    shapes->multiply_adds = MULTIPLY_ADDS;
    return DLC_OK;
}

static dlc_status prepare_mix(dlc_layer *layer, dlc_layer_memory *memory) {
    (void)layer;
    memory->in[0].layout = memory->out[0].layout = own_layout();
    memory->reads_in = 1;
    return DLC_OK;
}

static dlc_status prepare_loss(dlc_layer *layer, dlc_layer_memory *memory) {
    (void)layer;
    memory->in[0].layout = NULL;
    memory->reads_in = 1;
    return DLC_OK;
}

static dlc_status mix_forward(dlc_layer *layer, const dlc_layer_run *run) {
    note("forward", layer->name);
    take_time();
    memcpy(run->out[0], run->in[0], COUNT * sizeof(float));
    return DLC_OK;
}

static dlc_status loss_forward(dlc_layer *layer, const dlc_layer_run *run) {
    note("forward", layer->name);
    take_time();
    return fake_loss(run);
}

static void note_parts(const dlc_layer *layer, const dlc_layer_run *run) {
    static const char *const parts[] = {"none", "data", "param", "both"};
    note(parts[run->backward & 3], layer->name);
    take_time();
}

static dlc_status mix_backward(dlc_layer *layer, const dlc_layer_run *run) {
    note_parts(layer, run);
    if (run->backward & DLC_BACKWARD_WEIGHTS)
        for (int i = 0; i < WEIGHTS; i++)
            ((float *)run->param_diff[0])[i] = ((const float *)run->out_diff[0])[i / 2];
    if (run->backward & DLC_BACKWARD_DATA && run->in_diff[0])
        memcpy(run->in_diff[0], run->out_diff[0], COUNT * sizeof(float));
    return DLC_OK;
}

static dlc_status loss_backward(dlc_layer *layer, const dlc_layer_run *run) {
    note_parts(layer, run);
    memcpy(run->in_diff[0], run->in[0], COUNT * sizeof(float));
    return DLC_OK;
}

static const dlc_layer_ops mix_ops = FAKE_OPS(infer_mix, prepare_mix, mix),
                           loss_ops = FAKE_OPS(fake_infer_loss, prepare_loss, loss);

static const dlc_feature splits = FAKE_FEATURE("splits", DLC_LAYER_SPLIT_BACKWARD,
                                               &mix_ops),
                         cheap = FAKE_FEATURE(
                             "cheap", DLC_LAYER_SPLIT_BACKWARD | DLC_LAYER_RECOMPUTABLE,
                             &mix_ops),
                         whole = FAKE_FEATURE("whole", 0, &mix_ops),
                         loss = FAKE_FEATURE("loss", DLC_LAYER_METRIC | DLC_LAYER_LOSS,
                                             &loss_ops);

/* ---- The net: data -> a -> b -> c -> d, e ------------------------------------- */

enum { LAYERS = 5 };

static void open_some_net(fake_net *fixture, int recompute) {
    const fake_layer layers[LAYERS + 1] = {{&splits, "-"},
                                           {recompute ? &cheap : &splits, "a"},
                                           {&whole, "b"},
                                           {&loss, "c"},
                                           {&loss, "c"}};
    fake_reordering = reordering;
    fake_begin(fixture, layers);
    fixture->args.recompute = recompute;
    fixture->args.sample = (dlc_shape){.rank = 3, .dims = {1, 2, 2}};
    fixture->args.batch = BATCH;
    fake_build(fixture);
}

static void open_net(fake_net *fixture) {
    open_some_net(fixture, 0);
}

static void pass(fake_net *fixture) {
    static const float data[COUNT] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const int32_t labels[BATCH] = {0, 0};
    fake_ok(dlc_net_set_input(fixture->net, data, labels));
    fake_ok(dlc_net_forward(fixture->net, 0, 0));
    trace[0] = '\0';
    fake_ok(dlc_net_backward(fixture->net, 1, NULL, NULL));
}

static dlc_net_row row_of(const fake_net *fixture, const char *name, int32_t *index) {
    dlc_net_row row;
    for (int32_t i = 0; i < dlc_net_rows(fixture->net); i++) {
        fake_ok(dlc_net_row_at(fixture->net, i, &row));
        if (strcmp(row.name, name) == 0) {
            if (index)
                *index = i;
            return row;
        }
    }
    ck_abort_msg("no row '%s'", name);
}

TEST_SETTINGS(.setup_once = plugins_open);

/* ---- Tests ----------------------------------------------------------------------- */

/* Backward is split only while the net is timed, in layers that can and that have both
 * parts; that of the weights comes first. */
TEST(backward_is_split) {
    fake_net fixture;
    open_net(&fixture);
    pass(&fixture);
    ck_assert_str_eq(trace, "both:e both:d reorder:- both:c both:b both:a ");
    const dlc_arenas *arenas = dlc_net_arenas(fixture.net);
    float *expected = dlc_alloc(arenas->count, sizeof *expected);
    memcpy(expected, arenas->gradients, arenas->count * sizeof *expected);
    memset(arenas->gradients, 0, arenas->count * sizeof *expected);
    dlc_net_time(fixture.net, 1);
    pass(&fixture);
    ck_assert_str_eq(trace, "both:e both:d reorder:- both:c param:b data:b both:a ");
    ck_assert_mem_eq(arenas->gradients, expected, arenas->count * sizeof *expected);
    ck_assert_float_gt(arenas->gradients[0], 0);
    dlc_net_time(fixture.net, 0);
    pass(&fixture);
    ck_assert_str_eq(trace, "both:e both:d reorder:- both:c both:b both:a ");
    dlc_free(expected);
    fake_close(&fixture);
}

static const struct {
    const char *name;
    int runs[DLC_NET_PARTS];
} measured[] = {
    {"a", {1, 0, 1}},       /* the gradient of the data is not needed */
    {"b", {1, 1, 1}},       /* both, separately */
    {"c", {1, 1, 0}},       /* both in one call */
    {"d", {1, 1, 0}},       /* a loss has no weights */
    {"reorder", {1, 1, 0}}, /* in both directions */
};

TEST(what_runs_is_measured) {
    fake_net fixture;
    double seconds[DLC_NET_PARTS];
    open_net(&fixture);
    pass(&fixture);
    for (int32_t i = 0; i < dlc_net_rows(fixture.net); i++) {
        dlc_net_seconds(fixture.net, i, seconds);
        for (int part = 0; part < DLC_NET_PARTS; part++)
            ck_assert_double_eq(seconds[part], 0);
    }
    dlc_net_time(fixture.net, 1);
    pass(&fixture);
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        int32_t index = 0;
        dlc_net_row row = row_of(&fixture, measured[i].name, &index);
        if (strcmp(row.name, "reorder") == 0)
            index = dlc_net_rows(fixture.net) - 3; /* the one that runs backward, too */
        dlc_net_seconds(fixture.net, index, seconds);
        for (int part = 0; part < DLC_NET_PARTS; part++)
            ck_assert_msg((seconds[part] > 0) == measured[i].runs[part],
                          "%s, part %d: %g s", measured[i].name, part, seconds[part]);
    }
    fake_close(&fixture);
}

/* Only the last pass counts, not the sum of all. */
TEST(each_pass_is_measured_separately) {
    fake_net fixture;
    double once[DLC_NET_PARTS], many[DLC_NET_PARTS];
    open_net(&fixture);
    dlc_net_time(fixture.net, 1);
    for (int i = 0; i < 200; i++)
        pass(&fixture);
    dlc_net_seconds(fixture.net, dlc_net_rows(fixture.net) - 1, many);
    fake_ok(dlc_net_forward(fixture.net, 0, 0));
    dlc_net_seconds(fixture.net, dlc_net_rows(fixture.net) - 1, once);
    ck_assert_double_gt(once[DLC_NET_FORWARD], 0);
    ck_assert_double_gt(many[DLC_NET_BACKWARD_DATA], 0);
    ck_assert_double_eq(once[DLC_NET_BACKWARD_DATA], 0);
    fake_close(&fixture);
}

static void check_work(const dlc_net_row *row, int part, int64_t multiply_adds,
                       uint64_t bytes) {
    ck_assert_msg(row->work[part].multiply_adds == multiply_adds &&
                      row->work[part].bytes == bytes,
                  "%s, part %d: %lld multiply-adds, %llu bytes", row->name, part,
                  (long long)row->work[part].multiply_adds,
                  (unsigned long long)row->work[part].bytes);
}

TEST(rows_describe_the_work) {
    enum { T = COUNT * 4, W = WEIGHTS * 4, M = MULTIPLY_ADDS };
    fake_net fixture;
    open_net(&fixture);
    dlc_net_row row = row_of(&fixture, "a", NULL);
    check_work(&row, DLC_NET_FORWARD, M, T + T + W);
    check_work(&row, DLC_NET_BACKWARD_DATA, 0, 0);
    check_work(&row, DLC_NET_BACKWARD_WEIGHTS, M, T + T + W);
    row = row_of(&fixture, "b", NULL);
    check_work(&row, DLC_NET_FORWARD, M, T + T + W);
    check_work(&row, DLC_NET_BACKWARD_DATA, M, T + T + W);
    check_work(&row, DLC_NET_BACKWARD_WEIGHTS, M, T + T + W);
    row = row_of(&fixture, "c", NULL);
    check_work(&row, DLC_NET_BACKWARD_DATA, 2 * M, T + T + T + 2 * W);
    check_work(&row, DLC_NET_BACKWARD_WEIGHTS, 0, 0);
    row = row_of(&fixture, "e", NULL); /* first to write the gradient */
    check_work(&row, DLC_NET_FORWARD, 0, T + BATCH * 4 + 2 * 4);
    check_work(&row, DLC_NET_BACKWARD_DATA, 0, T + T);
    row = row_of(&fixture, "d", NULL); /* adds to that */
    check_work(&row, DLC_NET_BACKWARD_DATA, 0, 2 * T + T);
    fake_close(&fixture);
}

/* Recomputation in backward counts as work of forward, done twice. */
TEST(recomputation_counts_twice) {
    fake_net fixture;
    open_some_net(&fixture, 1);
    dlc_net_time(fixture.net, 1);
    pass(&fixture);
    ck_assert_str_eq(trace,
                     "both:e both:d reorder:- forward:b both:c param:b data:b both:a ");
    dlc_net_row row = row_of(&fixture, "b", NULL);
    check_work(&row, DLC_NET_FORWARD, 2 * MULTIPLY_ADDS, 2 * (2 * COUNT + WEIGHTS) * 4);
    check_work(&row, DLC_NET_BACKWARD_DATA, MULTIPLY_ADDS, (2 * COUNT + WEIGHTS) * 4);
    fake_close(&fixture);
}

TEST(rows_describe_parameters_and_reorders) {
    fake_net fixture;
    open_net(&fixture);
    const dlc_arenas *arenas = dlc_net_arenas(fixture.net);
    size_t trained = 0;
    int reorders = 0;
    ck_assert_int_eq(dlc_net_rows(fixture.net), LAYERS + 2);
    for (int32_t i = 0; i < dlc_net_rows(fixture.net); i++) {
        dlc_net_row row;
        fake_ok(dlc_net_row_at(fixture.net, i, &row));
        if (row.trained_count) {
            const dlc_segment *segment = &arenas->segment[2 - trained++];
            ck_assert_uint_eq(row.trained_begin, segment->offset);
            ck_assert_uint_eq(row.trained_count, segment->count);
            ck_assert_int_eq(strncmp(segment->name, row.name, strlen(row.name)), 0);
        }
        ck_assert_int_eq(row.is_reorder, strcmp(row.type, "reorder") == 0);
        if (row.is_reorder) {
            ck_assert_str_eq(row.producer, reorders ? "c" : "data");
            ck_assert_str_eq(row.reader, reorders ? "d" : "a");
            ck_assert_uint_eq(row.work[DLC_NET_FORWARD].bytes, 2 * COUNT * 4);
            reorders++;
        }
    }
    ck_assert_uint_eq(trained, 3);
    ck_assert_int_eq(reorders, 2);
    dlc_net_row none;
    ck_assert_int_ne(dlc_net_row_at(fixture.net, LAYERS + 2, &none), DLC_OK);
    ck_assert_int_ne(dlc_net_row_at(fixture.net, -1, &none), DLC_OK);
    fake_close(&fixture);
}
