/* Activations, and what joins or reshapes: softmax, eltwise, concat, flatten. */
#include "checker.h"

static const struct {
    const char *type, *settings;
    double tolerance;
} activations[] = {
    {"relu", "", 1e-6},
    {"relu", "negative_slope=0.1", 1e-6},
    {"sigmoid", NULL, 1e-5},
    {"tanh", NULL, 1e-5},
    {"elu", "", 1e-5},
    {"elu", "alpha=0.5", 1e-5},
    {"gelu", "", 2e-5},
    {"gelu", "form=tanh", 2e-5},
    {"swish", "", 2e-5},
    {"swish", "beta=1.7", 2e-5},
    {"softplus", NULL, 1e-5},
    {"mish", NULL, 2e-5},
    {"hardswish", NULL, 1e-5},
    {"clip", "", 1e-6},
    {"clip", "min=-1 max=1.5", 1e-6},
    {"abs", NULL, 1e-6},
};

static const dlc_shape shapes[] = {
    {4, {2, 20, 4, 3}}, {4, {1, 1, 1, 1}},       {2, {3, 17}},
    {1, {5}},           {6, {2, 1, 3, 1, 2, 2}},
};

START_TEST(activation) {
    for (int i = 0; i < COUNT(shapes); i++) {
        rig_spec spec = {.type = activations[_i].type,
                         .settings = activations[_i].settings,
                         .in = {shapes[i]}};
        check_all_ways(&spec, activations[_i].tolerance);
        spec.in_place = 1;
        check_all_ways(&spec, activations[_i].tolerance);
    }
}
END_TEST

START_TEST(softmax) {
    static const char *const settings[] = {"", "axis=0", "axis=2", "axis=3"};
    for (int i = 0; i < COUNT(settings); i++) {
        rig_spec spec = {
            .type = "softmax", .settings = settings[i], .in = {SHAPE(3, 17, 4, 2)}};
        check_all_ways(&spec, 1e-5);
        spec.in_place = 1;
        check_all_ways(&spec, 1e-5);
    }
    rig_spec spec = {.type = "softmax", .settings = "", .in = {SHAPE(4, 10)}};
    check_all_ways(&spec, 1e-5);
    spec.in[0] = SHAPE(1, 1);
    check_all_ways(&spec, 1e-5);
}
END_TEST

START_TEST(eltwise) {
    static const char *const settings[] = {"", "coeff=0.5,-2,3", "operation=product",
                                           "operation=max"};
    static const dlc_shape in[] = {
        {4, {2, 20, 5, 3}}, {4, {1, 1, 1, 1}}, {2, {3, 5000}}};
    for (int i = 0; i < COUNT(in); i++) {
        rig_spec spec = {.type = "eltwise",
                         .settings = settings[_i],
                         .inputs = 3,
                         .in = {in[i], in[i], in[i]}};
        check_all_ways(&spec, 1e-5);
        spec.absorb = "";
        check_all_ways(&spec, 1e-5);
        spec.absorb = "negative_slope=0.5";
        check_all_ways(&spec, 1e-5);
    }
    rig_spec one = {.type = "eltwise", .settings = "", .in = {in[0]}};
    check_all_ways(&one, 1e-5);
}
END_TEST

START_TEST(concat) {
    rig_spec spec = {.type = "concat",
                     .settings = "",
                     .inputs = 3,
                     .in = {SHAPE(2, 3, 4, 5), SHAPE(2, 17, 4, 5), SHAPE(2, 1, 4, 5)}};
    check_all_ways(&spec, 1e-6);
    spec.settings = "axis=0";
    spec.in[1] = SHAPE(1, 3, 4, 5);
    spec.in[2] = SHAPE(3, 3, 4, 5);
    check_all_ways(&spec, 1e-6);
    spec.settings = "axis=2";
    spec.in[1] = SHAPE(2, 3, 1, 5);
    spec.in[2] = SHAPE(2, 3, 3, 5);
    check_all_ways(&spec, 1e-6);
    spec.settings = "axis=3";
    spec.in[1] = SHAPE(2, 3, 4, 1);
    spec.in[2] = SHAPE(2, 3, 4, 2);
    check_all_ways(&spec, 1e-6);
    spec = (rig_spec){.type = "concat",
                      .settings = "",
                      .inputs = 2,
                      .in = {SHAPE(3, 4), SHAPE(3, 1)}};
    check_all_ways(&spec, 1e-6);
    spec.inputs = 1;
    check_all_ways(&spec, 1e-6);
    spec = (rig_spec){.type = "concat",
                      .settings = "axis=0",
                      .inputs = 2,
                      .in = {SHAPE(3), SHAPE(5)}};
    check_all_ways(&spec, 1e-6);
}
END_TEST

START_TEST(flatten) {
    rig_spec spec = {.type = "flatten", .settings = "", .in = {SHAPE(2, 3, 4, 5)}};
    check_all_ways(&spec, 1e-6);
    spec.in_place = 1;
    check_all_ways(&spec, 1e-6);
    rig r;
    ck_assert_int_eq(rig_open(&r, &spec), DLC_OK);
    ck_assert_int_eq(r.out[0].shape.rank, 2);
    ck_assert_int_eq(r.out[0].shape.dims[1], 60);
    rig_close(&r);
    spec.settings = "axis=2";
    check_all_ways(&spec, 1e-6);
    spec.settings = "axis=0";
    ck_assert_int_eq(rig_open(&r, &spec), DLC_OK);
    ck_assert_int_eq(r.out[0].shape.rank, 1);
    ck_assert_int_eq(r.out[0].shape.dims[0], 120);
    rig_close(&r);
}
END_TEST

START_TEST(refusals) {
    rig_spec spec = {.type = "eltwise",
                     .settings = "",
                     .inputs = 2,
                     .in = {SHAPE(2, 3, 4, 5), SHAPE(2, 3, 5, 4)}};
    check_refused(&spec, DLC_ERR_CONFIG, "2x3x5x4");
    spec.in[1] = spec.in[0];
    spec.settings = "coeff=1,2,3";
    check_refused(&spec, DLC_ERR_CONFIG, "3 factors for 2 inputs");
    spec.settings = "coeff=1,2 operation=max";
    check_refused(&spec, DLC_ERR_CONFIG, "sum only");
    spec.type = "concat";
    spec.settings = "axis=2";
    spec.in[1] = SHAPE(2, 4, 4, 5);
    check_refused(&spec, DLC_ERR_CONFIG, "2x4x4x5");
    spec.settings = "axis=4";
    check_refused(&spec, DLC_ERR_CONFIG, "axis = 4");
    spec = (rig_spec){.type = "softmax", .settings = "axis=2", .in = {SHAPE(2, 3)}};
    check_refused(&spec, DLC_ERR_CONFIG, "axis = 2");
    spec.type = "flatten";
    check_refused(&spec, DLC_ERR_CONFIG, "axis = 2");
    spec.type = "clip";
    spec.settings = "min=2 max=1";
    check_refused(&spec, DLC_ERR_CONFIG, "below");
    spec.type = "relu";
    spec.settings = "";
    spec.inputs = 2;
    spec.in[1] = spec.in[0];
    check_refused(&spec, DLC_ERR_CONFIG, "1 input");
    spec.inputs = 1;
    spec.labels = 1;
    check_refused(&spec, DLC_ERR_CONFIG, "float32");
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, activation, 0, COUNT(activations));
    tcase_add_test(tests, softmax);
    tcase_add_loop_test(tests, eltwise, 0, 4);
    tcase_add_test(tests, concat);
    tcase_add_test(tests, flatten);
    tcase_add_test(tests, refusals);
    return run_suite("layers-pointwise", tests);
}
