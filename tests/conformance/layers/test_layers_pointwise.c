/* Activations, and layers that combine or reshape: softmax, eltwise, concat, flatten.
 */
#include "checker.h"
#include "support/test.h"

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

TEST_SETTINGS(.timeout = 120, .begin = layers_begin);

TEST_EACH(activation, COUNT(activations)) {
    for (int i = 0; i < COUNT(shapes); i++) {
        layer_spec spec = {.type = activations[_i].type,
                           .settings = activations[_i].settings,
                           .in = {shapes[i]}};
        check_all_ways(&spec, activations[_i].tolerance);
        spec.in_place = 1;
        check_all_ways(&spec, activations[_i].tolerance);
    }
}

TEST(softmax) {
    static const char *const settings[] = {"", "axis=0", "axis=2", "axis=3"};
    for (int i = 0; i < COUNT(settings); i++) {
        layer_spec spec = {
            .type = "softmax", .settings = settings[i], .in = {SHAPE(3, 17, 4, 2)}};
        check_all_ways(&spec, 1e-5);
        spec.in_place = 1;
        check_all_ways(&spec, 1e-5);
    }
    layer_spec spec = {.type = "softmax", .settings = "", .in = {SHAPE(4, 10)}};
    check_all_ways(&spec, 1e-5);
    spec.in[0] = SHAPE(1, 1);
    check_all_ways(&spec, 1e-5);
}

static const char *const eltwise_settings[] = {"", "coeff=0.5,-2,3",
                                               "operation=product", "operation=max"};

TEST_EACH(eltwise, 4) {
    static const dlc_shape in[] = {
        {4, {2, 20, 5, 3}}, {4, {1, 1, 1, 1}}, {2, {3, 5000}}};
    for (int i = 0; i < COUNT(in); i++) {
        layer_spec spec = {.type = "eltwise",
                           .settings = eltwise_settings[_i],
                           .inputs = 3,
                           .in = {in[i], in[i], in[i]}};
        check_all_ways(&spec, 1e-5);
        spec.fused = "";
        check_all_ways(&spec, 1e-5);
        spec.fused = "negative_slope=0.5";
        check_all_ways(&spec, 1e-5);
    }
    layer_spec one = {.type = "eltwise", .settings = "", .in = {in[0]}};
    check_all_ways(&one, 1e-5);
}

/* The sum of two, in place of either; the largest exceeds the caches. */
TEST(eltwise_sum) {
    static const dlc_shape in[] = {
        {4, {2, 20, 5, 3}}, {4, {1, 1, 1, 1}}, {2, {2, 1030}}};
    static const char *const clips[] = {"", "min=-0.5 max=1.25"};
    for (int i = 0; i < COUNT(in); i++)
        for (int place = 0; place < 3; place++) {
            layer_spec spec = {.type = "eltwise",
                               .settings = "",
                               .inputs = 2,
                               .in = {in[i], in[i]},
                               .in_place = place};
            check_all_ways(&spec, 1e-6);
            spec.fused = place % 2 ? "" : "negative_slope=0.5";
            check_all_ways(&spec, 1e-6);
            spec.fused_type = "clip";
            spec.fused = clips[place % 2];
            check_all_ways(&spec, 1e-6);
            spec = (layer_spec){.type = "eltwise",
                                .settings = eltwise_settings[place + 1],
                                .inputs = 3,
                                .in = {in[i], in[i], in[i]},
                                .fused = "",
                                .in_place = 1 + place};
            check_all_ways(&spec, 1e-5);
        }
}

/* Two inputs with factors are no plain sum; and of several equal maxima the first one
 * gets the gradient. */
TEST(eltwise_of_two) {
    fixture r;
    const dlc_shape in = SHAPE(2, 20, 5, 3);
    layer_spec spec = {
        .type = "eltwise", .settings = "coeff=0.5,-2", .inputs = 2, .in = {in, in}};
    check_all_ways(&spec, 1e-5);
    spec.settings = "operation=max";
    ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
    for (int64_t i = 0; i < fixture_out_count(&r); i++) {
        r.in_data[0][i] = 1;
        r.in_data[1][i] = (float)(i % 3);
        r.out_diff[i] = (float)(i + 1);
    }
    ck_assert_int_eq(fixture_forward(&r), DLC_OK);
    ck_assert_int_eq(fixture_backward(&r), DLC_OK);
    for (int64_t i = 0; i < fixture_out_count(&r); i++) {
        int second = i % 3 == 2;
        ck_assert_float_eq(r.out_data[i], second ? 2 : 1);
        ck_assert_float_eq(r.in_diff[0][i], second ? 0 : (float)(i + 1));
        ck_assert_float_eq(r.in_diff[1][i], second ? (float)(i + 1) : 0);
    }
    fixture_close(&r);
}

/* Written with streaming stores: values that identify their position. */
TEST_EACH(eltwise_large, 3) {
    fixture r;
    layer_spec spec = {.type = "eltwise",
                       .settings = "",
                       .inputs = 2,
                       .fused = "",
                       .in = {SHAPE(3, 700001), SHAPE(3, 700001)},
                       .in_place = _i};
    ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
    for (int64_t i = 0; i < fixture_out_count(&r); i++) {
        r.in_data[0][i] = (float)(i % 1013) - 500;
        r.in_data[1][i] = (float)(i % 7);
        r.out_diff[i] = (float)(i % 911 + 1);
    }
    ck_assert_int_eq(fixture_forward(&r), DLC_OK);
    ck_assert_int_eq(fixture_backward(&r), DLC_OK);
    for (int64_t i = 0; i < fixture_out_count(&r); i++) {
        float sum = (float)(i % 1013) - 500 + (float)(i % 7);
        float diff = sum > 0 ? (float)(i % 911 + 1) : 0;
        if (r.out_data[i] != (sum > 0 ? sum : 0) || r.in_diff[0][i] != diff ||
            r.in_diff[1][i] != diff)
            ck_abort_msg("element %lld is wrong", (long long)i);
    }
    fixture_close(&r);
}

/* Half a unit in the last place, and another one where what backward reads was rounded.
 * Types that the hardware lacks are skipped. */
static const struct {
    dlc_dtype type;
    double tolerance;
} sixteen[] = {{DLC_BF16, 1.0 / 128}, {DLC_F16, 1.0 / 1024}};

TEST_EACH(sixteen_bits, COUNT(sixteen)) {
    static const struct {
        const char *type, *settings, *fused;
        int32_t inputs;
    } cases[] = {
        {"relu", "", NULL, 1},
        {"relu", "negative_slope=0.1", NULL, 1},
        {"clip", "", NULL, 1},
        {"clip", "min=-0.5 max=0.75", NULL, 1},
        {"sigmoid", "", NULL, 1},
        {"gelu", "", NULL, 1},
        {"eltwise", "", NULL, 2},
        {"eltwise", "", "", 2},
        {"eltwise", "", "negative_slope=0.5", 2},
        {"eltwise", "coeff=0.5,-2,3", "", 3},
        {"eltwise", "operation=product", NULL, 3},
        {"eltwise", "operation=max", "", 3},
        {"concat", "", NULL, 3},
        {"concat", "axis=0", NULL, 2},
        {"flatten", "", NULL, 1},
    };
    if (!fixture_has(sixteen[_i].type))
        return;
    for (int i = 0; i < COUNT(cases); i++) {
        const dlc_shape in = SHAPE(2, 20, 5, 3);
        layer_spec spec = {.type = cases[i].type,
                           .settings = cases[i].settings,
                           .fused = cases[i].fused,
                           .inputs = cases[i].inputs,
                           .in = {in, in, in},
                           .floats = sixteen[_i].type};
        if (!fixture_takes(spec.type, spec.floats))
            continue;
        check_all_ways(&spec, sixteen[_i].tolerance);
        spec.in_place = 1;
        check_all_ways(&spec, sixteen[_i].tolerance);
    }
}

TEST(concat) {
    layer_spec spec = {
        .type = "concat",
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
    spec = (layer_spec){.type = "concat",
                        .settings = "",
                        .inputs = 2,
                        .in = {SHAPE(3, 4), SHAPE(3, 1)}};
    check_all_ways(&spec, 1e-6);
    spec.inputs = 1;
    check_all_ways(&spec, 1e-6);
    spec = (layer_spec){.type = "concat",
                        .settings = "axis=0",
                        .inputs = 2,
                        .in = {SHAPE(3), SHAPE(5)}};
    check_all_ways(&spec, 1e-6);
}

TEST(flatten) {
    layer_spec spec = {.type = "flatten", .settings = "", .in = {SHAPE(2, 3, 4, 5)}};
    check_all_ways(&spec, 1e-6);
    spec.in_place = 1;
    check_all_ways(&spec, 1e-6);
    fixture r;
    ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
    ck_assert_int_eq(r.out[0].shape.rank, 2);
    ck_assert_int_eq(r.out[0].shape.dims[1], 60);
    fixture_close(&r);
    spec.settings = "axis=2";
    check_all_ways(&spec, 1e-6);
    spec.settings = "axis=0";
    ck_assert_int_eq(fixture_open(&r, &spec), DLC_OK);
    ck_assert_int_eq(r.out[0].shape.rank, 1);
    ck_assert_int_eq(r.out[0].shape.dims[0], 120);
    fixture_close(&r);
}

TEST(refusals) {
    layer_spec spec = {.type = "eltwise",
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
    spec = (layer_spec){.type = "softmax", .settings = "axis=2", .in = {SHAPE(2, 3)}};
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
