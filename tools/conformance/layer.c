/* Checks of layers: shapes, bits that repeat, and gradients against differences, over a
 * grid of shapes; what a layer does not take it refuses with a sentence. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "stand.h"

/* One to four dimensions, odd numbers, single ones. */
static const dlc_shape grid[] = {
    {4, {2, 3, 5, 7}}, {4, {1, 4, 6, 6}}, {4, {3, 16, 4, 4}}, {4, {4, 1, 9, 3}},
    {2, {3, 8}},       {2, {1, 5}},       {2, {5, 17}},
};
enum { SHAPES = sizeof grid / sizeof *grid };

typedef void visitor(stand *s);

/* What the layer may want to be given. */
static void form(int kind, const dlc_shape *shape, stand_inputs *inputs) {
    *inputs = (stand_inputs){.count = kind + 1, .shape = {*shape, *shape, *shape}};
    if (kind < 2)
        return;
    inputs->count = 2;
    inputs->labels = 1;
    inputs->shape[1] = (dlc_shape){.rank = 1, .dims = {shape->dims[0]}};
}

enum { FORMS = 3 }; /* one input; two alike; one and labels */

static int takes_labels(const suite_run *run) {
    return (run->feature->caps & (DLC_LAYER_METRIC | DLC_LAYER_LOSS)) != 0;
}

/* Calls `visit` for whatever of the grid the layer takes; a skip if it takes nothing.
 */
static void over_the_grid(suite_run *run, dlc_phase phase, visitor *visit) {
    int taken = 0;
    for (int shape = 0; shape < SHAPES; shape++)
        for (int kind = takes_labels(run) ? FORMS - 1 : 0;
             kind < (takes_labels(run) ? FORMS : FORMS - 1); kind++) {
            stand_inputs inputs;
            stand s;
            form(kind, &grid[shape], &inputs);
            if (stand_open(run, phase, &inputs, &s) != DLC_OK)
                continue;
            visit(&s);
            stand_close(&s);
            taken++;
        }
    if (!taken)
        suite_skip(run, "it takes no input that is tried here: %s", dlc_detail());
}

/* ---- What must hold ---------------------------------------------------------- */

static void run_once(stand *s) {
    stand_fill(s, 11);
    stand_forward(s);
    for (size_t i = 0; i < s->y_count; i++)
        if (!isfinite(s->y[i]))
            suite_fail(s->run, "element %zu of the output is not finite", i);
    if (stand_is_metric(s) && (s->y_count != 2 || s->y[1] <= 0))
        suite_fail(s->run, "a metric gives a sum and how many samples it is of");
}

static void runs(suite_run *run) {
    over_the_grid(run, DLC_PHASE_TRAIN, run_once);
}

static void runs_in_a_test(suite_run *run) {
    over_the_grid(run, DLC_PHASE_TEST, run_once);
}

static void infer_twice(stand *s) {
    dlc_shape first = s->plain_out[0].shape;
    int64_t work = s->plan.multiply_adds;
    dlc_tensor in[STAND_INPUTS], out[DLC_MAX_OUTPUTS] = {{.shape = {0}}};
    dlc_param param[DLC_MAX_PARAMS] = {{.size = 0}};
    memcpy(in, s->plain_in, sizeof in);
    for (int i = 0; i < DLC_MAX_PARAMS; i++)
        param[i].size = sizeof *param;
    dlc_layer_plan plan = {.size = sizeof plan,
                           .inputs = s->plan.inputs,
                           .in = in,
                           .outputs = 1,
                           .out = out,
                           .param = param};
    suite_must(s->run, s->ops->infer(s->layer, &plan), "infer once more");
    if (out[0].shape.rank != first.rank ||
        memcmp(out[0].shape.dims, first.dims,
               (size_t)first.rank * sizeof *first.dims) != 0 ||
        plan.multiply_adds != work)
        suite_fail(s->run, "infer says two things of the same inputs");
}

static void infers_alike(suite_run *run) {
    over_the_grid(run, DLC_PHASE_TRAIN, infer_twice);
}

static float *keep(const float *x, size_t count, float *kept, size_t room) {
    memcpy(kept, x, (count < room ? count : room) * sizeof *x);
    return kept;
}

enum { ROOM = 4096 };

static void forward_twice(stand *s) {
    float first[ROOM];
    size_t count = s->y_count < ROOM ? s->y_count : ROOM;
    stand_fill(s, 11);
    stand_forward(s);
    (void)keep(s->y, s->y_count, first, ROOM);
    stand_forward(s);
    if (!suite_same(first, s->y, count))
        suite_fail(s->run, "the same pass twice gives different outputs");
}

static void repeats_itself(suite_run *run) {
    over_the_grid(run, DLC_PHASE_TRAIN, forward_twice);
}

static void leaves_its_inputs(stand *s) {
    stand_fill(s, 11);
    stand_forward(s);
    if (s->changed)
        suite_fail(s->run, "forward writes over its input without having said so");
}

static void inputs_stay(suite_run *run) {
    over_the_grid(run, DLC_PHASE_TRAIN, leaves_its_inputs);
}

/* ---- Gradients --------------------------------------------------------------- */

static double loss_of(stand *s) {
    stand_forward(s);
    if (stand_is_metric(s))
        return (double)s->y[0] / (double)s->y[1];
    double sum = 0;
    for (size_t i = 0; i < s->y_count; i++)
        sum += (double)s->y[i] * (double)s->dy[i];
    return sum;
}

/* Does the gradient fit the differences to the right or to the left? At a kink (relu)
 * they differ, and either will do. */
static void check_slope(stand *s, float *at, double gradient, double scale,
                        const char *what, size_t index) {
    const float step = 1.0f / 128, here = *at;
    double middle = loss_of(s);
    *at = here + step;
    double right = (loss_of(s) - middle) / (double)(*at - here);
    *at = here - step;
    double left = (middle - loss_of(s)) / (double)(here - *at);
    *at = here;
    double both = (left + right) / 2, tolerance = 0.03 * scale;
    double low = fmin(left, right) - tolerance, high = fmax(left, right) + tolerance;
    if (!(gradient >= low && gradient <= high))
        suite_fail(s->run, "the gradient of %s %zu is %g; differences say %g", what,
                   index, gradient, both);
}

/* The size of gradients at hand, to which errors are compared. */
static double typical(const float *x, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum / (double)count) + 1e-3;
}

static void check_some(stand *s, float *x, const float *dx, size_t count,
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
        check_slope(s, &x[i], (double)gradients[n], scale, what, i);
}

static void compare_slopes(stand *s) {
    stand_fill(s, 21);
    suite_random(s->dy, s->y_count, 31);
    stand_forward(s);
    stand_backward(s);
    for (int32_t i = 0; i < s->plan.inputs; i++)
        if (s->in_diff[i])
            check_some(s, s->x[i], s->dx[i], s->x_count[i], "input element");
    for (int32_t i = 0; i < s->plan.params; i++)
        if (s->param_diff[i])
            check_some(s, s->p[i], s->dp[i], s->p_count[i], s->param[i].name);
}

static void gradients_are_slopes(suite_run *run) {
    const dlc_layer_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, backward))
        suite_skip(run, "it gives no gradient");
    over_the_grid(run, DLC_PHASE_TRAIN, compare_slopes);
}

static void backward_twice(stand *s) {
    float first[ROOM];
    int32_t i = 0;
    while (i < s->plan.inputs && !s->in_diff[i])
        i++;
    if (i == s->plan.inputs)
        return;
    size_t count = s->x_count[i] < ROOM ? s->x_count[i] : ROOM;
    stand_fill(s, 21);
    suite_random(s->dy, s->y_count, 31);
    stand_forward(s);
    stand_backward(s);
    (void)keep(s->dx[i], s->x_count[i], first, ROOM);
    stand_forward(s);
    stand_backward(s); /* on memory that has the last gradients in it */
    if (!suite_same(first, s->dx[i], count))
        suite_fail(s->run, "backward adds to what was there, or does not repeat");
}

static void backward_overwrites(suite_run *run) {
    const dlc_layer_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, backward))
        suite_skip(run, "it gives no gradient");
    over_the_grid(run, DLC_PHASE_TRAIN, backward_twice);
}

/* Those of input i, which has others' already. */
static void add_to(stand *s, int32_t i) {
    float alone[ROOM], there[ROOM];
    size_t count = s->x_count[i] < ROOM ? s->x_count[i] : ROOM;
    stand_fill(s, 21);
    suite_random(s->dy, s->y_count, 31);
    stand_forward(s);
    stand_backward(s);
    (void)keep(s->dx[i], s->x_count[i], alone, ROOM);
    suite_random(s->dx[i], s->x_count[i], 51);
    (void)keep(s->dx[i], s->x_count[i], there, ROOM);
    s->adds = 1ull << i;
    stand_forward(s);
    stand_backward(s);
    s->adds = 0;
    for (size_t k = 0; k < count; k++) {
        double want = (double)alone[k] + (double)there[k], got = (double)s->dx[i][k];
        double scale = 1 + fabs((double)alone[k]) + fabs((double)there[k]);
        if (!(fabs(got - want) <= 1e-5 * scale))
            suite_fail(s->run, "element %zu of a gradient is %g: %g was added to %g", k,
                       got, (double)alone[k], (double)there[k]);
    }
}

static int adders; /* layers of the grid that add to gradients */

static void add_where_it_can(stand *s) {
    uint64_t adds = s->plan.adds_gradient;
    if (adds & ~s->plan.shares_gradient)
        suite_fail(s->run, "it adds to gradients that no others give");
    adders += adds != 0;
    for (int32_t i = 0; i < s->plan.inputs; i++)
        if (adds >> i & 1)
            add_to(s, i);
}

static void adds_up(suite_run *run) {
    const dlc_layer_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, backward))
        suite_skip(run, "it gives no gradient");
    adders = 0;
    over_the_grid(run, DLC_PHASE_TRAIN, add_where_it_can);
    if (!adders)
        suite_skip(run, "it adds to no gradients");
}

/* ---- Parameters -------------------------------------------------------------- */

static void carry_params(stand *s) {
    for (int32_t i = 0; i < s->plan.params; i++) {
        float *plain = s->dp[i];
        suite_random(s->p[i], s->p_count[i], 41 + (uint64_t)i);
        if (!DLC_CAN(s->ops, param_import))
            continue;
        suite_must(s->run, s->ops->param_import(s->layer, i, s->p[i], s->param_own[i]),
                   "param_import");
        suite_must(s->run, s->ops->param_export(s->layer, i, s->param_own[i], plain),
                   "param_export");
        if (!suite_same(plain, s->p[i], s->p_count[i]))
            suite_fail(s->run, "parameter %s comes back from its own layout changed",
                       s->param[i].name);
    }
}

static void params_come_back(suite_run *run) {
    over_the_grid(run, DLC_PHASE_TRAIN, carry_params);
}

static void describe_into_little_room(stand *s) {
    char text[8];
    if (!DLC_CAN(s->ops, describe))
        return;
    memset(text, 0x7e, sizeof text);
    s->ops->describe(s->layer, text, 4);
    if (!memchr(text, '\0', 4))
        suite_fail(s->run, "what describe writes doesn't end with a NUL");
    if (text[4] != 0x7e)
        suite_fail(s->run, "describe writes behind its room");
}

static void describes_itself(suite_run *run) {
    over_the_grid(run, DLC_PHASE_TRAIN, describe_into_little_room);
}

/* ---- What it says of itself -------------------------------------------------- */

static void fits_pointwise(stand *s) {
    uint64_t caps = s->run->feature->caps;
    int wanted = caps & DLC_LAYER_JOIN ? 2 : 1;
    if (s->plan.params > 0)
        suite_fail(s->run,
                   "a layer with parameters can be neither DLC_LAYER_POINTWISE nor "
                   "DLC_LAYER_JOIN");
    if (s->plan.inputs == wanted && s->y_count != s->x_count[0])
        suite_fail(s->run, "an element-by-element layer gives %zu elements of %zu",
                   s->y_count, s->x_count[0]);
}

static void bits_are_true(suite_run *run) {
    if (!(run->feature->caps & (DLC_LAYER_POINTWISE | DLC_LAYER_JOIN)))
        suite_skip(run, "its bits say nothing that shows here");
    over_the_grid(run, DLC_PHASE_TRAIN, fits_pointwise);
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_LAYER, 0, SUITE_LOADED, 60, run }

const suite_check suite_layer_checks[] = {
    CHECK("layer.runs", "forward over a grid of shapes, inside its memory", runs),
    CHECK("layer.test", "the same in a test", runs_in_a_test),
    CHECK("layer.infer", "infer is a function of the inputs", infers_alike),
    CHECK("layer.repeats", "the same pass twice gives the same bits", repeats_itself),
    CHECK("layer.inputs", "forward leaves its inputs as they are", inputs_stay),
    CHECK("layer.gradients", "gradients agree with differences", gradients_are_slopes),
    CHECK("layer.backward", "backward writes gradients, it does not add",
          backward_overwrites),
    CHECK("layer.adds", "but adds to others' where it says that it can", adds_up),
    CHECK("layer.params", "parameters come back from their own layout",
          params_come_back),
    CHECK("layer.describe", "describe keeps to its room", describes_itself),
    CHECK("layer.bits", "capability bits are true", bits_are_true),
    {.name = NULL},
};
