/* The checks of layers: shapes, reproducible outputs, and gradients compared with
 * finite differences, over a grid of input shapes. A layer may reject inputs with a
 * sentence. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "layer_values.h"

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
    layer_over_grid(run, DLC_PHASE_TRAIN, run_once);
}

static void runs_in_a_test(suite_run *run) {
    layer_over_grid(run, DLC_PHASE_TEST, run_once);
}

static void infer_twice(layer_fixture *f) {
    dlc_shape first = f->plain_out[0].shape;
    int64_t work = f->shapes.multiply_adds;
    dlc_tensor in[FIXTURE_INPUTS], out[DLC_MAX_OUTPUTS] = {{.shape = {0}}};
    dlc_param param[DLC_MAX_PARAMS] = {{.size = 0}};
    memcpy(in, f->plain_in, sizeof in);
    for (int i = 0; i < DLC_MAX_PARAMS; i++)
        param[i].size = sizeof *param;
    dlc_layer_shapes shapes = {.size = sizeof shapes,
                               .inputs = f->prepared.inputs,
                               .in = in,
                               .outputs = 1,
                               .out = out,
                               .param = param};
    suite_must(f->run, f->ops->infer(f->layer, &shapes), "a second infer");
    if (out[0].shape.rank != first.rank ||
        memcmp(out[0].shape.dims, first.dims,
               (size_t)first.rank * sizeof *first.dims) != 0 ||
        shapes.multiply_adds != work)
        suite_fail(f->run, "infer gives different results for the same inputs");
}

static void infers_alike(suite_run *run) {
    layer_over_grid(run, DLC_PHASE_TRAIN, infer_twice);
}

static float *keep(const float *x, size_t count, float *kept, size_t room) {
    memcpy(kept, x, (count < room ? count : room) * sizeof *x);
    return kept;
}

enum { ROOM = 1 << 14 };

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
    layer_over_grid(run, DLC_PHASE_TRAIN, forward_twice);
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

static void check_some(layer_fixture *f, float *x, const float *dx, size_t count,
                       const char *what) {
    enum { TRIED = 6 };
    float gradients[TRIED];
    size_t step = count / TRIED + 1;
    double scale = layer_typical(dx, count);
    int n = 0;
    for (size_t i = 0; i < count; i += step)
        gradients[n++] = dx[i];
    n = 0;
    for (size_t i = 0; i < count; i += step, n++)
        check_slope(f, &x[i], (double)gradients[n], scale, what, i);
}

/* Moves elements begin .. end-1 by steps of either sign, back and forth, and compares
 * the slopes in this direction: every element counts. The tolerance is small beside
 * what several wrong elements of the block contribute. */
static void check_block(layer_fixture *f, float *x, const float *dx, size_t begin,
                        size_t end, uint64_t seed, double scale, double middle,
                        const char *what) {
    /* Few elements pass a kink in a small step; a loss is one rounded number. */
    const int is_metric = layer_fixture_is_metric(f);
    const double step = is_metric ? 1.0 / 128 : 1.0 / 2048;
    const double rounding = is_metric ? fabs(middle) * 0x1p-22 / step : 0;
    double loss[2], expected = 0, square = 0, moved = 0;
    float *kept = dlc_alloc(end - begin, sizeof *kept);
    if (!kept)
        suite_skip(f->run, "out of memory");
    memcpy(kept, x + begin, (end - begin) * sizeof *kept);
    for (int way = 0; way < 2; way++) {
        dlc_random random = dlc_random_make(seed, 7);
        for (size_t i = begin; i < end; i++) {
            double sign = dlc_random_below(&random, 2) ? 1 : -1, d = (double)dx[i];
            x[i] = (float)((double)kept[i - begin] + (way ? -step : step) * sign);
            moved = (double)x[i] - (double)kept[i - begin];
            expected += (way ? -moved : moved) / (2 * step) * d;
            square += d * d / 2;
        }
        loss[way] = loss_of(f);
        memcpy(x + begin, kept, (end - begin) * sizeof *kept);
    }
    dlc_free(kept);
    double right = (loss[0] - middle) / step, left = (middle - loss[1]) / step;
    double tolerance = rounding + 0.05 * sqrt(square) +
                       0.03 * scale * sqrt((double)(end - begin));
    if (!(expected >= fmin(left, right) - tolerance &&
          expected <= fmax(left, right) + tolerance))
        suite_fail(f->run,
                   "the gradients of %s %zu to %zu add up to a slope of %g in a random "
                   "direction; finite differences give %g",
                   what, begin, end - 1, expected, (left + right) / 2);
}

static void check_blocks(layer_fixture *f, float *x, const float *dx, size_t count,
                         size_t blocks, uint64_t seed, const char *what) {
    double scale = layer_typical(dx, count), middle = loss_of(f);
    blocks = blocks < count ? blocks : count;
    for (size_t b = 0; b < blocks; b++)
        check_block(f, x, dx, count * b / blocks, count * (b + 1) / blocks, seed + b,
                    scale, middle, what);
}

void layer_compare_blocks(layer_fixture *f, size_t blocks, uint64_t seed) {
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        if (f->memory->in_diff[i])
            check_blocks(f, f->x[i], f->dx[i], f->x_count[i], blocks, seed,
                         "input elements");
    for (int32_t i = 0; i < f->prepared.params; i++)
        if (f->memory->param_diff[i])
            check_blocks(f, f->p[i], f->dp[i], f->p_count[i], blocks, seed,
                         f->param[i].name);
}

void layer_compare_slopes(layer_fixture *f) {
    suite_random(f->dy, f->y_count, 31);
    layer_fixture_forward(f);
    layer_fixture_backward(f);
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        if (f->memory->in_diff[i])
            check_some(f, f->x[i], f->dx[i], f->x_count[i], "input element");
    for (int32_t i = 0; i < f->prepared.params; i++)
        if (f->memory->param_diff[i])
            check_some(f, f->p[i], f->dp[i], f->p_count[i], f->param[i].name);
}

static void compare_slopes(layer_fixture *f) {
    layer_fixture_fill(f, 21);
    layer_compare_slopes(f);
}

static void compare_all_slopes(layer_fixture *f) {
    enum { BLOCKS = 8, SEED = 61 };
    compare_slopes(f);
    layer_compare_blocks(f, BLOCKS, SEED);
}

static void gradients_are_slopes(suite_run *run) {
    const dlc_layer_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, backward))
        suite_skip(run, "it has no backward");
    layer_over_grid(run, DLC_PHASE_TRAIN, compare_all_slopes);
}

static int
    leaving_out; /* inputs of the grid with other gradients than that of input 0 */

static void compare_other_slopes(layer_fixture *f) {
    if (f->build.unwanted >> f->prepared.inputs)
        return;
    int others = f->prepared.wants_gradient != 0;
    for (int32_t i = 0; i < f->prepared.params; i++)
        others |= f->memory->param_diff[i] != NULL;
    leaving_out += others;
    if (others) /* or backward is not called */
        compare_slopes(f);
}

static void leaves_out_gradients(suite_run *run) {
    const dlc_layer_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, backward))
        suite_skip(run, "it has no backward");
    leaving_out = 0;
    layer_build data = {.phase = DLC_PHASE_TRAIN};
    for (data.unwanted = 1; data.unwanted <= 2; data.unwanted++)
        layer_over_grid_of(run, &data, compare_other_slopes);
    if (!leaving_out)
        suite_skip(run, "it has no other gradient than that of its input");
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
    uint64_t inputs = f->prepared.accumulates_gradient;
    if (inputs & ~f->prepared.shared_gradient)
        suite_fail(f->run,
                   "accumulates_gradient includes inputs that no other layer reads");
    accumulating += inputs != 0;
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        if (inputs >> i & 1)
            accumulate_into(f, i);
}

static void accumulates(suite_run *run) {
    const dlc_layer_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, backward))
        suite_skip(run, "it has no backward");
    accumulating = 0;
    layer_over_grid(run, DLC_PHASE_TRAIN, accumulate_where_possible);
    if (!accumulating)
        suite_skip(run, "it does not accumulate gradients");
}

/* ---- Parameters ------------------------------------------------------------- */

static void carry_params(layer_fixture *f) {
    for (int32_t i = 0; i < f->prepared.params; i++) {
        suite_random(f->p[i], f->p_count[i], 41 + (uint64_t)i);
        if (!DLC_CAN(f->ops, param_import))
            continue;
        layer_fixture_import_one(f, i);
        layer_fixture_export_one(f, i, f->memory->param[i]);
        if (!suite_same(f->dp[i], f->p[i], f->p_count[i]))
            suite_fail(f->run, "param_import and param_export change parameter %s",
                       f->param[i].name);
    }
}

static void params_come_back(suite_run *run) {
    layer_over_grid(run, DLC_PHASE_TRAIN, carry_params);
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
    layer_over_grid(run, DLC_PHASE_TRAIN, describe_into_little_room);
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_LAYER, 0, SUITE_LOADED, 60, run }

const suite_check suite_layer_checks[] = {
    CHECK("layer.runs",
          "forward works over a grid of shapes and stays inside its memory", runs),
    CHECK("layer.test_phase", "forward works in the test phase too", runs_in_a_test),
    CHECK("layer.infer", "infer depends on the inputs alone", infers_alike),
    CHECK("layer.repeats", "forward is bitwise reproducible", repeats_itself),
    CHECK("layer.gradients", "gradients agree with finite differences",
          gradients_are_slopes),
    CHECK("layer.unwanted", "backward leaves out the gradient of an input that is data",
          leaves_out_gradients),
    CHECK("layer.accumulate", "backward adds to gradients where it offers that",
          accumulates),
    CHECK("layer.params", "param_export undoes param_import", params_come_back),
    CHECK("layer.describe", "describe stays inside its buffer", describes_itself),
    {.name = NULL},
};
