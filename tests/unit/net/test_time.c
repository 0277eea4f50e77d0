/* A timed net: which halves of backward are asked for and when, what is measured, and
 * how much work each row says is in it. Layers of the test's own, that write down what
 * they are asked for. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "made_up.h"

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

/* ---- Two layers, which pass on tensors in a layout of their own --------------- */

/* A token; nobody looks behind it. */
static const dlc_layout *own_layout(void) {
    static const char token;
    return (const dlc_layout *)(const void *)&token;
}

static void reordering(void) {
    note("reorder", "-");
    take_time();
}

static dlc_status infer_mix(dlc_layer *layer, dlc_layer_plan *plan) {
    (void)layer;
    plan->out[0] = plan->in[0];
    plan->params = 1;
    plan->param[0].name = "weight";
    plan->param[0].shape = (dlc_shape){.rank = 1, .dims = {WEIGHTS}};
    plan->multiply_adds = MULTIPLY_ADDS;
    return DLC_OK;
}

static dlc_status prepare_mix(dlc_layer *layer, dlc_layer_plan *plan) {
    (void)layer;
    plan->in[0].layout = plan->out[0].layout = own_layout();
    plan->param[0].count = WEIGHTS;
    plan->reads_in = 1;
    return DLC_OK;
}

static dlc_status prepare_loss(dlc_layer *layer, dlc_layer_plan *plan) {
    (void)layer;
    plan->in[0].layout = NULL;
    plan->reads_in = 1;
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
    return made_up_loss(run);
}

static void note_parts(const dlc_layer *layer, const dlc_layer_run *run) {
    static const char *const parts[] = {"none", "data", "param", "both"};
    note(parts[run->parts & 3], layer->name);
    take_time();
}

static dlc_status mix_backward(dlc_layer *layer, const dlc_layer_run *run) {
    note_parts(layer, run);
    if (run->parts & DLC_PART_PARAM)
        for (int i = 0; i < WEIGHTS; i++)
            ((float *)run->param_diff[0])[i] = ((const float *)run->out_diff[0])[i / 2];
    if (run->parts & DLC_PART_DATA && run->in_diff[0])
        memcpy(run->in_diff[0], run->out_diff[0], COUNT * sizeof(float));
    return DLC_OK;
}

static dlc_status loss_backward(dlc_layer *layer, const dlc_layer_run *run) {
    note_parts(layer, run);
    memcpy(run->in_diff[0], run->in[0], COUNT * sizeof(float));
    return DLC_OK;
}

static const dlc_layer_ops mix_ops = MADE_UP_OPS(infer_mix, prepare_mix, mix),
                           loss_ops = MADE_UP_OPS(made_up_infer_loss, prepare_loss,
                                                  loss);

static const dlc_feature parted = MADE_UP_FEATURE("parted", DLC_LAYER_PARTS, &mix_ops),
                         cheap = MADE_UP_FEATURE(
                             "cheap", DLC_LAYER_PARTS | DLC_LAYER_REPEATABLE, &mix_ops),
                         whole = MADE_UP_FEATURE("whole", 0, &mix_ops),
                         loss = MADE_UP_FEATURE(
                             "loss", DLC_LAYER_METRIC | DLC_LAYER_LOSS, &loss_ops);

/* ---- The net: data -> a -> b -> c -> d, e ------------------------------------- */

enum { LAYERS = 5 };

static void open_some_net(made_up_net *rig, int low_memory) {
    const made_up_layer layers[LAYERS + 1] = {{&parted, "-"},
                                              {low_memory ? &cheap : &parted, "a"},
                                              {&whole, "b"},
                                              {&loss, "c"},
                                              {&loss, "c"}};
    made_up_reordering = reordering;
    made_up_begin(rig, layers);
    rig->args.low_memory = low_memory;
    rig->args.sample = (dlc_shape){.rank = 3, .dims = {1, 2, 2}};
    rig->args.batch = BATCH;
    made_up_build(rig);
}

static void open_net(made_up_net *rig) {
    open_some_net(rig, 0);
}

static void pass(made_up_net *rig) {
    static const float data[COUNT] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const int32_t labels[BATCH] = {0, 0};
    made_up_ok(dlc_net_set_input(rig->net, data, labels));
    made_up_ok(dlc_net_forward(rig->net, 0, 0));
    trace[0] = '\0';
    made_up_ok(dlc_net_backward(rig->net, 1, NULL, NULL));
}

static dlc_net_row row_of(const made_up_net *rig, const char *name, int32_t *index) {
    dlc_net_row row;
    for (int32_t i = 0; i < dlc_net_rows(rig->net); i++) {
        made_up_ok(dlc_net_row_at(rig->net, i, &row));
        if (strcmp(row.name, name) == 0) {
            if (index)
                *index = i;
            return row;
        }
    }
    ck_abort_msg("no row '%s'", name);
}

/* ---- Tests ----------------------------------------------------------------------- */

/* Halves are asked for only while the net is timed, of layers that know them and have
 * both: the weights' first. */
START_TEST(halves_are_called_apart) {
    made_up_net rig;
    open_net(&rig);
    pass(&rig);
    ck_assert_str_eq(trace, "both:e both:d reorder:- both:c both:b both:a ");
    const dlc_arenas *arenas = dlc_net_arenas(rig.net);
    float *expected = dlc_alloc(arenas->count, sizeof *expected);
    memcpy(expected, arenas->gradients, arenas->count * sizeof *expected);
    memset(arenas->gradients, 0, arenas->count * sizeof *expected);
    dlc_net_time(rig.net, 1);
    pass(&rig);
    ck_assert_str_eq(trace, "both:e both:d reorder:- both:c param:b data:b both:a ");
    ck_assert_mem_eq(arenas->gradients, expected, arenas->count * sizeof *expected);
    ck_assert_float_gt(arenas->gradients[0], 0);
    dlc_net_time(rig.net, 0);
    pass(&rig);
    ck_assert_str_eq(trace, "both:e both:d reorder:- both:c both:b both:a ");
    dlc_free(expected);
    made_up_close(&rig);
}
END_TEST

static const struct {
    const char *name;
    int runs[DLC_NET_PARTS];
} measured[] = {
    {"a", {1, 0, 1}},       /* nobody wants the data's gradient */
    {"b", {1, 1, 1}},       /* both, apart */
    {"c", {1, 1, 0}},       /* both in one */
    {"d", {1, 1, 0}},       /* a loss has no weights */
    {"reorder", {1, 1, 0}}, /* in both directions */
};

START_TEST(what_runs_is_measured) {
    made_up_net rig;
    double seconds[DLC_NET_PARTS];
    open_net(&rig);
    pass(&rig);
    for (int32_t i = 0; i < dlc_net_rows(rig.net); i++) {
        dlc_net_seconds(rig.net, i, seconds);
        for (int part = 0; part < DLC_NET_PARTS; part++)
            ck_assert_double_eq(seconds[part], 0);
    }
    dlc_net_time(rig.net, 1);
    pass(&rig);
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        int32_t index = 0;
        dlc_net_row row = row_of(&rig, measured[i].name, &index);
        if (strcmp(row.name, "reorder") == 0)
            index = dlc_net_rows(rig.net) - 3; /* the one with a way back */
        dlc_net_seconds(rig.net, index, seconds);
        for (int part = 0; part < DLC_NET_PARTS; part++)
            ck_assert_msg((seconds[part] > 0) == measured[i].runs[part],
                          "%s, part %d: %g s", measured[i].name, part, seconds[part]);
    }
    made_up_close(&rig);
}
END_TEST

/* The last pass counts, not the sum of all. */
START_TEST(each_pass_is_measured_anew) {
    made_up_net rig;
    double once[DLC_NET_PARTS], many[DLC_NET_PARTS];
    open_net(&rig);
    dlc_net_time(rig.net, 1);
    for (int i = 0; i < 200; i++)
        pass(&rig);
    dlc_net_seconds(rig.net, dlc_net_rows(rig.net) - 1, many);
    made_up_ok(dlc_net_forward(rig.net, 0, 0));
    dlc_net_seconds(rig.net, dlc_net_rows(rig.net) - 1, once);
    ck_assert_double_gt(once[DLC_NET_FORWARD], 0);
    ck_assert_double_gt(many[DLC_NET_BACKWARD_DATA], 0);
    ck_assert_double_eq(once[DLC_NET_BACKWARD_DATA], 0);
    made_up_close(&rig);
}
END_TEST

static void check_work(const dlc_net_row *row, int part, int64_t multiply_adds,
                       uint64_t bytes) {
    ck_assert_msg(row->work[part].multiply_adds == multiply_adds &&
                      row->work[part].bytes == bytes,
                  "%s, part %d: %lld multiply-adds, %llu bytes", row->name, part,
                  (long long)row->work[part].multiply_adds,
                  (unsigned long long)row->work[part].bytes);
}

START_TEST(rows_tell_the_work) {
    enum { T = COUNT * 4, W = WEIGHTS * 4, M = MULTIPLY_ADDS };
    made_up_net rig;
    open_net(&rig);
    dlc_net_row row = row_of(&rig, "a", NULL);
    check_work(&row, DLC_NET_FORWARD, M, T + T + W);
    check_work(&row, DLC_NET_BACKWARD_DATA, 0, 0);
    check_work(&row, DLC_NET_BACKWARD_PARAM, M, T + T + W);
    row = row_of(&rig, "b", NULL);
    check_work(&row, DLC_NET_FORWARD, M, T + T + W);
    check_work(&row, DLC_NET_BACKWARD_DATA, M, T + T + W);
    check_work(&row, DLC_NET_BACKWARD_PARAM, M, T + T + W);
    row = row_of(&rig, "c", NULL);
    check_work(&row, DLC_NET_BACKWARD_DATA, 2 * M, T + T + T + 2 * W);
    check_work(&row, DLC_NET_BACKWARD_PARAM, 0, 0);
    row = row_of(&rig, "e", NULL); /* first to write the gradient */
    check_work(&row, DLC_NET_FORWARD, 0, T + BATCH * 4 + 2 * 4);
    check_work(&row, DLC_NET_BACKWARD_DATA, 0, T + T);
    row = row_of(&rig, "d", NULL); /* adds its own to that */
    check_work(&row, DLC_NET_BACKWARD_DATA, 0, 2 * T + T);
    made_up_close(&rig);
}
END_TEST

/* What is made again in backward is forward's work, done twice. */
START_TEST(low_memory_works_twice) {
    made_up_net rig;
    open_some_net(&rig, 1);
    dlc_net_time(rig.net, 1);
    pass(&rig);
    ck_assert_str_eq(trace,
                     "both:e both:d reorder:- forward:b both:c param:b data:b both:a ");
    dlc_net_row row = row_of(&rig, "b", NULL);
    check_work(&row, DLC_NET_FORWARD, 2 * MULTIPLY_ADDS, 2 * (2 * COUNT + WEIGHTS) * 4);
    check_work(&row, DLC_NET_BACKWARD_DATA, MULTIPLY_ADDS, (2 * COUNT + WEIGHTS) * 4);
    made_up_close(&rig);
}
END_TEST

START_TEST(rows_tell_slices_and_reorders) {
    made_up_net rig;
    open_net(&rig);
    const dlc_arenas *arenas = dlc_net_arenas(rig.net);
    size_t trained = 0;
    int reorders = 0;
    ck_assert_int_eq(dlc_net_rows(rig.net), LAYERS + 2);
    for (int32_t i = 0; i < dlc_net_rows(rig.net); i++) {
        dlc_net_row row;
        made_up_ok(dlc_net_row_at(rig.net, i, &row));
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
    ck_assert_int_ne(dlc_net_row_at(rig.net, LAYERS + 2, &none), DLC_OK);
    ck_assert_int_ne(dlc_net_row_at(rig.net, -1, &none), DLC_OK);
    made_up_close(&rig);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("time");
    TCase *cases = tcase_create("time");
    tcase_add_test(cases, halves_are_called_apart);
    tcase_add_test(cases, what_runs_is_measured);
    tcase_add_test(cases, each_pass_is_measured_anew);
    tcase_add_test(cases, rows_tell_the_work);
    tcase_add_test(cases, low_memory_works_twice);
    tcase_add_test(cases, rows_tell_slices_and_reorders);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
