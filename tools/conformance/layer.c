/* The checks of layers: shapes, reproducible outputs, and gradients compared with
 * finite differences, over a grid of input shapes. A layer may reject inputs with a
 * sentence. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "layer_fixture.h"

/* Two and four dimensions, with odd sizes and sizes of 1. */
static const dlc_shape grid[] = {
    {4, {2, 3, 5, 7}}, {4, {1, 4, 6, 6}}, {4, {3, 16, 4, 4}}, {4, {4, 1, 9, 3}},
    {2, {3, 8}},       {2, {1, 5}},       {2, {5, 17}},
};
enum { SHAPES = sizeof grid / sizeof *grid };

typedef void visitor(layer_fixture *f);

/* The inputs of kind 0 .. KINDS-1: one input, two of one shape, or one and labels. */
static void make_inputs(int kind, const dlc_shape *shape, layer_inputs *inputs) {
    *inputs = (layer_inputs){.count = kind + 1, .shape = {*shape, *shape, *shape}};
    if (kind < 2)
        return;
    inputs->count = 2;
    inputs->labels = 1;
    inputs->shape[1] = (dlc_shape){.rank = 1, .dims = {shape->dims[0]}};
}

enum { KINDS = 3 };

static int takes_labels(const suite_run *run) {
    return (run->feature->caps & (DLC_LAYER_METRIC | DLC_LAYER_LOSS)) != 0;
}

/* Calls `visit` for all inputs of the grid that the layer accepts. Skips the check if
 * it accepts none. */
static void over_the_grid(suite_run *run, dlc_phase phase, visitor *visit) {
    int taken = 0;
    for (int shape = 0; shape < SHAPES; shape++)
        for (int kind = takes_labels(run) ? KINDS - 1 : 0;
             kind < (takes_labels(run) ? KINDS : KINDS - 1); kind++) {
            layer_inputs inputs;
            layer_fixture f;
            make_inputs(kind, &grid[shape], &inputs);
            if (layer_fixture_open(run, phase, &inputs, &f) != DLC_OK)
                continue;
            visit(&f);
            layer_fixture_close(&f);
            taken++;
        }
    if (!taken)
        suite_skip(run, "it accepts none of the inputs that this check tries: %s",
                   dlc_detail());
}

/* ---- Forward ---------------------------------------------------------------- */

static void run_once(layer_fixture *f) {
    layer_fixture_fill(f, 11);
    layer_fixture_forward(f);
    for (size_t i = 0; i < f->y_count; i++)
        if (!isfinite(f->y[i]))
            suite_fail(f->run, "element %zu of the output is not finite", i);
    if (layer_fixture_is_metric(f) && (f->y_count != 2 || f->y[1] <= 0))
        suite_fail(f->run, "a metric must output a sum and a number of samples");
}

static void runs(suite_run *run) {
    over_the_grid(run, DLC_PHASE_TRAIN, run_once);
}

static void runs_in_a_test(suite_run *run) {
    over_the_grid(run, DLC_PHASE_TEST, run_once);
}

static void infer_twice(layer_fixture *f) {
    dlc_shape first = f->plain_out[0].shape;
    int64_t work = f->plan.multiply_adds;
    dlc_tensor in[FIXTURE_INPUTS], out[DLC_MAX_OUTPUTS] = {{.shape = {0}}};
    dlc_param param[DLC_MAX_PARAMS] = {{.size = 0}};
    memcpy(in, f->plain_in, sizeof in);
    for (int i = 0; i < DLC_MAX_PARAMS; i++)
        param[i].size = sizeof *param;
    dlc_layer_plan plan = {.size = sizeof plan,
                           .inputs = f->plan.inputs,
                           .in = in,
                           .outputs = 1,
                           .out = out,
                           .param = param};
    suite_must(f->run, f->ops->infer(f->layer, &plan), "a second infer");
    if (out[0].shape.rank != first.rank ||
        memcmp(out[0].shape.dims, first.dims,
               (size_t)first.rank * sizeof *first.dims) != 0 ||
        plan.multiply_adds != work)
        suite_fail(f->run, "infer gives different results for the same inputs");
}

static void infers_alike(suite_run *run) {
    over_the_grid(run, DLC_PHASE_TRAIN, infer_twice);
}

static float *keep(const float *x, size_t count, float *kept, size_t room) {
    memcpy(kept, x, (count < room ? count : room) * sizeof *x);
    return kept;
}

enum { ROOM = 4096 };

static void forward_twice(layer_fixture *f) {
    float first[ROOM];
    size_t count = f->y_count < ROOM ? f->y_count : ROOM;
    layer_fixture_fill(f, 11);
    layer_fixture_forward(f);
    (void)keep(f->y, f->y_count, first, ROOM);
    layer_fixture_forward(f);
    if (!suite_same(first, f->y, count))
        suite_fail(f->run, "two passes with the same inputs give different outputs");
}

static void repeats_itself(suite_run *run) {
    over_the_grid(run, DLC_PHASE_TRAIN, forward_twice);
}

static void leaves_its_inputs(layer_fixture *f) {
    layer_fixture_fill(f, 11);
    layer_fixture_forward(f);
    if (f->changed)
        suite_fail(f->run,
                   "forward overwrites an input that plan.in_place does not include");
}

static void inputs_stay(suite_run *run) {
    over_the_grid(run, DLC_PHASE_TRAIN, leaves_its_inputs);
}

/* ---- Gradients -------------------------------------------------------------- */

static double loss_of(layer_fixture *f) {
    layer_fixture_forward(f);
    if (layer_fixture_is_metric(f))
        return (double)f->y[0] / (double)f->y[1];
    double sum = 0;
    for (size_t i = 0; i < f->y_count; i++)
        sum += (double)f->y[i] * (double)f->dy[i];
    return sum;
}

/* Fails unless the gradient is between the differences to the left and to the right,
 * with some tolerance. At a kink (relu) they differ, and both are correct. */
static void check_slope(layer_fixture *f, float *at, double gradient, double scale,
                        const char *what, size_t index) {
    const float step = 1.0f / 128, here = *at;
    double middle = loss_of(f);
    *at = here + step;
    double right = (loss_of(f) - middle) / (double)(*at - here);
    *at = here - step;
    double left = (middle - loss_of(f)) / (double)(here - *at);
    *at = here;
    double both = (left + right) / 2, tolerance = 0.03 * scale;
    double low = fmin(left, right) - tolerance, high = fmax(left, right) + tolerance;
    if (!(gradient >= low && gradient <= high))
        suite_fail(f->run, "the gradient of %s %zu is %g; finite differences give %g",
                   what, index, gradient, both);
}

/* The root mean square of the gradients, to which errors are compared. */
static double typical(const float *x, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum / (double)count) + 1e-3;
}

static void check_some(layer_fixture *f, float *x, const float *dx, size_t count,
                       const char *what) {
    enum { TRIED = 6 };
    float gradients[TRIED];
    size_t step = count / TRIED + 1;
    double scale = typical(dx, count);
    int n = 0;
    for (size_t i = 0; i < count; i += step)
        gradients[n++] = dx[i];
    n = 0;
    for (size_t i = 0; i < count; i += step, n++)
        check_slope(f, &x[i], (double)gradients[n], scale, what, i);
}

static void compare_slopes(layer_fixture *f) {
    layer_fixture_fill(f, 21);
    suite_random(f->dy, f->y_count, 31);
    layer_fixture_forward(f);
    layer_fixture_backward(f);
    for (int32_t i = 0; i < f->plan.inputs; i++)
        if (f->in_diff[i])
            check_some(f, f->x[i], f->dx[i], f->x_count[i], "input element");
    for (int32_t i = 0; i < f->plan.params; i++)
        if (f->param_diff[i])
            check_some(f, f->p[i], f->dp[i], f->p_count[i], f->param[i].name);
}

static void gradients_are_slopes(suite_run *run) {
    const dlc_layer_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, backward))
        suite_skip(run, "it has no backward");
    over_the_grid(run, DLC_PHASE_TRAIN, compare_slopes);
}

static void backward_twice(layer_fixture *f) {
    float first[ROOM];
    int32_t i = 0;
    while (i < f->plan.inputs && !f->in_diff[i])
        i++;
    if (i == f->plan.inputs)
        return;
    size_t count = f->x_count[i] < ROOM ? f->x_count[i] : ROOM;
    layer_fixture_fill(f, 21);
    suite_random(f->dy, f->y_count, 31);
    layer_fixture_forward(f);
    layer_fixture_backward(f);
    (void)keep(f->dx[i], f->x_count[i], first, ROOM);
    layer_fixture_forward(f);
    layer_fixture_backward(f); /* on memory with the previous gradients */
    if (!suite_same(first, f->dx[i], count))
        suite_fail(f->run,
                   "backward adds to gradients instead of overwriting them, or is not "
                   "reproducible");
}

static void backward_overwrites(suite_run *run) {
    const dlc_layer_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, backward))
        suite_skip(run, "it has no backward");
    over_the_grid(run, DLC_PHASE_TRAIN, backward_twice);
}

/* Checks that backward adds to the gradient of input i. */
static void accumulate_into(layer_fixture *f, int32_t i) {
    float alone[ROOM], there[ROOM];
    size_t count = f->x_count[i] < ROOM ? f->x_count[i] : ROOM;
    layer_fixture_fill(f, 21);
    suite_random(f->dy, f->y_count, 31);
    layer_fixture_forward(f);
    layer_fixture_backward(f);
    (void)keep(f->dx[i], f->x_count[i], alone, ROOM);
    suite_random(f->dx[i], f->x_count[i], 51);
    (void)keep(f->dx[i], f->x_count[i], there, ROOM);
    f->accumulate = 1ull << i;
    layer_fixture_forward(f);
    layer_fixture_backward(f);
    f->accumulate = 0;
    for (size_t k = 0; k < count; k++) {
        double want = (double)alone[k] + (double)there[k], got = (double)f->dx[i][k];
        double scale = 1 + fabs((double)alone[k]) + fabs((double)there[k]);
        if (!(fabs(got - want) <= 1e-5 * scale))
            suite_fail(f->run,
                       "element %zu of an accumulated gradient is %g, not %g + %g", k,
                       got, (double)alone[k], (double)there[k]);
    }
}

static int accumulating; /* inputs of the grid for which the layer accumulates */

static void accumulate_where_possible(layer_fixture *f) {
    uint64_t inputs = f->plan.accumulates_gradient;
    if (inputs & ~f->plan.shared_gradient)
        suite_fail(
            f->run,
            "plan.accumulates_gradient includes inputs that no other layer reads");
    accumulating += inputs != 0;
    for (int32_t i = 0; i < f->plan.inputs; i++)
        if (inputs >> i & 1)
            accumulate_into(f, i);
}

static void accumulates(suite_run *run) {
    const dlc_layer_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, backward))
        suite_skip(run, "it has no backward");
    accumulating = 0;
    over_the_grid(run, DLC_PHASE_TRAIN, accumulate_where_possible);
    if (!accumulating)
        suite_skip(run, "it does not accumulate gradients");
}

/* ---- Parameters ------------------------------------------------------------- */

static void carry_params(layer_fixture *f) {
    for (int32_t i = 0; i < f->plan.params; i++) {
        float *plain = f->dp[i];
        suite_random(f->p[i], f->p_count[i], 41 + (uint64_t)i);
        if (!DLC_CAN(f->ops, param_import))
            continue;
        suite_must(f->run, f->ops->param_import(f->layer, i, f->p[i], f->param_own[i]),
                   "param_import");
        suite_must(f->run, f->ops->param_export(f->layer, i, f->param_own[i], plain),
                   "param_export");
        if (!suite_same(plain, f->p[i], f->p_count[i]))
            suite_fail(f->run, "param_import and param_export change parameter %s",
                       f->param[i].name);
    }
}

static void params_come_back(suite_run *run) {
    over_the_grid(run, DLC_PHASE_TRAIN, carry_params);
}

static void describe_into_little_room(layer_fixture *f) {
    char text[8];
    if (!DLC_CAN(f->ops, describe))
        return;
    memset(text, 0x7e, sizeof text);
    f->ops->describe(f->layer, text, 4);
    if (!memchr(text, '\0', 4))
        suite_fail(f->run, "the text of describe does not end with a NUL");
    if (text[4] != 0x7e)
        suite_fail(f->run, "describe writes beyond the end of its buffer");
}

static void describes_itself(suite_run *run) {
    over_the_grid(run, DLC_PHASE_TRAIN, describe_into_little_room);
}

/* ---- Capability bits -------------------------------------------------------- */

static void fits_pointwise(layer_fixture *f) {
    uint64_t caps = f->run->feature->caps;
    int wanted = caps & DLC_LAYER_BINARY ? 2 : 1;
    if (f->plan.params > 0)
        suite_fail(f->run,
                   "a layer with parameters can be neither DLC_LAYER_POINTWISE nor "
                   "DLC_LAYER_BINARY");
    if (f->plan.inputs == wanted && f->y_count != f->x_count[0])
        suite_fail(f->run, "an element-wise layer outputs %zu elements for %zu",
                   f->y_count, f->x_count[0]);
}

static void bits_are_true(suite_run *run) {
    if (!(run->feature->caps & (DLC_LAYER_POINTWISE | DLC_LAYER_BINARY)))
        suite_skip(run, "it has none of the capability bits that this check covers");
    over_the_grid(run, DLC_PHASE_TRAIN, fits_pointwise);
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_LAYER, 0, SUITE_LOADED, 60, run }

const suite_check suite_layer_checks[] = {
    CHECK("layer.runs",
          "forward works over a grid of shapes and stays inside its memory", runs),
    CHECK("layer.test_phase", "forward works in the test phase too", runs_in_a_test),
    CHECK("layer.infer", "infer depends on the inputs alone", infers_alike),
    CHECK("layer.repeats", "forward is bitwise reproducible", repeats_itself),
    CHECK("layer.inputs", "forward does not change its inputs", inputs_stay),
    CHECK("layer.gradients", "gradients agree with finite differences",
          gradients_are_slopes),
    CHECK("layer.backward", "backward overwrites gradients", backward_overwrites),
    CHECK("layer.accumulate", "backward adds to gradients where it offers that",
          accumulates),
    CHECK("layer.params", "param_export undoes param_import", params_come_back),
    CHECK("layer.describe", "describe stays inside its buffer", describes_itself),
    CHECK("layer.capabilities", "capability bits are correct", bits_are_true),
    {.name = NULL},
};
