/* The checks of what a layer says it can do (DLC_LAYER_ bits): the core relies on it
 * where ranks split channels or samples, and where activations have 16 bits. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "layer_values.h"

/* Sums that are added in another order differ by less. */
#define ROUNDING 1e-4

static int tried; /* inputs of the grid that a check could use */

static void must_claim(suite_run *run, uint64_t bits, const char *name) {
    tried = 0;
    if (!(run->feature->caps & bits))
        suite_skip(run, "it is not %s", name);
}

/* ---- Elementwise ------------------------------------------------------------- */

static void fits_elementwise(const layer_fixture *f) {
    int wanted = f->run->feature->caps & DLC_LAYER_BINARY ? 2 : 1;
    if (f->prepared.params > 0)
        suite_fail(f->run,
                   "a layer with parameters can be neither DLC_LAYER_POINTWISE nor "
                   "DLC_LAYER_BINARY");
    if (f->prepared.outputs != 1)
        suite_fail(f->run, "an element-wise layer has %d outputs",
                   (int)f->prepared.outputs);
    if (f->prepared.inputs == wanted && f->y_count != f->x_count[0])
        suite_fail(f->run, "an element-wise layer outputs %zu elements for %zu",
                   f->y_count, f->x_count[0]);
}

/* Fails if anything but element `at` is other than before. */
static void only_differs_at(const layer_fixture *f, const float *now,
                            const float *before, size_t at, const char *what) {
    size_t after = f->y_count - at - 1;
    if (!suite_same(now, before, at) ||
        !suite_same(now + at + 1, before + at + 1, after))
        suite_fail(f->run,
                   "where element %zu of the input changes, others of %s change", at,
                   what);
}

static void change_element(layer_fixture *f, const layer_values *before, size_t at) {
    float x = f->x[0][at], dy = f->dy[at];
    f->x[0][at] = -x + 0.25f;
    f->dy[at] = 2 * dy;
    layer_values_pass(f);
    only_differs_at(f, f->y, before->y, at, "the output");
    for (int32_t i = 0; layer_fixture_has_backward(f) && i < f->prepared.inputs; i++)
        if (f->memory->in_diff[i])
            only_differs_at(f, f->dx[i], before->dx[i], at, "a gradient");
    f->x[0][at] = x;
    f->dy[at] = dy;
}

/* Ranks with other channels have other elements at a position. */
static void show_one_value(layer_fixture *f, float x) {
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        for (size_t k = 0; k < f->x_count[i]; k++)
            f->x[i][k] = x;
    layer_fixture_forward(f);
    for (size_t k = 0; k < f->y_count; k++)
        if (!(fabsf(f->y[k] - f->y[0]) <= 1e-5f * (1 + fabsf(f->y[0]))))
            suite_fail(f->run,
                       "where all elements of the input are %g, output 0 is %g "
                       "and output %zu is %g",
                       (double)x, (double)f->y[0], k, (double)f->y[k]);
}

static void depends_on_elements(layer_fixture *f) {
    enum { CHANGED = 6 };
    layer_values before;
    fits_elementwise(f);
    if (f->y_count != f->x_count[0])
        return;
    layer_values_show(f, 21);
    layer_values_pass(f);
    layer_values_keep(f, &before);
    for (size_t at = 0; at < f->y_count; at += f->y_count / CHANGED + 1)
        change_element(f, &before, at);
    layer_values_drop(&before);
    show_one_value(f, 0.375f);
    show_one_value(f, -0.75f);
}

static void is_elementwise(suite_run *run) {
    must_claim(run, DLC_LAYER_POINTWISE | DLC_LAYER_BINARY,
               "DLC_LAYER_POINTWISE or DLC_LAYER_BINARY");
    layer_over_grid(run, DLC_PHASE_TRAIN, depends_on_elements);
}

/* ---- Samplewise -------------------------------------------------------------- */

static size_t row_of(const layer_fixture *f, size_t count) {
    return count / (size_t)f->plain_in[0].shape.dims[0];
}

/* Copies sample n of a batch. */
static void show_sample(const layer_fixture *whole, int64_t n, layer_fixture *one) {
    size_t row = row_of(whole, whole->x_count[0]), out = row_of(whole, whole->y_count);
    memcpy(one->x[0], whole->x[0] + (size_t)n * row, row * sizeof(float));
    memcpy(one->dy, whole->dy + (size_t)n * out, out * sizeof(float));
    one->sample = whole->sample + n;
}

/* Runs sample n in a batch of its own, as a rank does that has no other. */
static void run_alone(layer_fixture *whole, const layer_values *wanted, int64_t n) {
    const char *why = "where a sample is alone in its batch";
    size_t row = row_of(whole, whole->x_count[0]), out = row_of(whole, whole->y_count);
    layer_inputs inputs = whole->inputs;
    layer_fixture one;
    inputs.shape[0].dims[0] = 1;
    if (layer_fixture_open(whole->run, &whole->build, &inputs, &one) != DLC_OK)
        suite_fail(whole->run, "it accepts a batch, but not one of its samples: %s",
                   dlc_detail());
    show_sample(whole, n, &one);
    layer_values_pass(&one);
    layer_near(&one, one.y, wanted->y + (size_t)n * out, out, ROUNDING, why,
               "the output");
    if (layer_fixture_has_backward(&one) && one.memory->in_diff[0])
        layer_near(&one, one.dx[0], wanted->dx[0] + (size_t)n * row, row, ROUNDING, why,
                   "the gradient");
    layer_fixture_close(&one);
}

static void depends_on_samples(layer_fixture *f) {
    layer_values wanted;
    const dlc_shape *in = &f->plain_in[0].shape, *out = &f->plain_out[0].shape;
    if (f->prepared.params > 0)
        suite_fail(f->run,
                   "a layer with parameters cannot be DLC_LAYER_SAMPLEWISE, nor "
                   "DLC_LAYER_POINTWISE");
    if (f->prepared.inputs != 1 || f->prepared.outputs != 1)
        return; /* the core makes no use of it */
    if (out->rank < 1 || out->dims[0] != in->dims[0])
        suite_fail(f->run, "it outputs %lld samples for %lld",
                   (long long)(out->rank < 1 ? 0 : out->dims[0]),
                   (long long)in->dims[0]);
    layer_values_show(f, 21);
    layer_values_pass(f);
    layer_values_keep(f, &wanted);
    for (int64_t n = 0; n < in->dims[0]; n++)
        run_alone(f, &wanted, n);
    layer_values_drop(&wanted);
}

static void is_samplewise(suite_run *run) {
    must_claim(run, DLC_LAYER_SAMPLEWISE | DLC_LAYER_POINTWISE,
               "DLC_LAYER_SAMPLEWISE, nor DLC_LAYER_POINTWISE");
    layer_over_grid(run, DLC_PHASE_TRAIN, depends_on_samples);
    layer_over_grid(run, DLC_PHASE_TEST, depends_on_samples);
}

/* ---- Channel parallel -------------------------------------------------------- */

/* Channels [first, first + some) of each of `rows` rows of an array. */
typedef struct slice {
    int64_t rows, channels, first, some;
} slice;

static size_t size_of(const slice *s, size_t whole_count) {
    return whole_count / (size_t)(s->rows * s->channels) * (size_t)s->some;
}

/* Copies a slice of `whole`; `into`: copies it back. */
static void copy_slice(const slice *s, float *whole, size_t whole_count, float *part,
                       int into) {
    size_t size = size_of(s, whole_count), row = whole_count / (size_t)s->rows;
    size_t at = row / (size_t)s->channels * (size_t)s->first;
    for (size_t r = 0; r < (size_t)s->rows; r++) {
        float *of = part + r * size, *in = whole + r * row + at;
        memcpy(into ? in : of, into ? of : in, size * sizeof(float));
    }
}

static int same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static int same_factor(double a, double b) {
    return fabs(a - b) <= 0;
}

/* All channels are drawn as those of one parameter, so all slices describe it alike. */
static void fits_param(const layer_fixture *whole, const layer_fixture *part,
                       int32_t i) {
    const dlc_param *a = &whole->param[i], *b = &part->param[i];
    int64_t some = part->build.channel_end - part->build.channel_begin;
    dlc_shape shape = a->shape;
    shape.dims[0] = some;
    if (a->flags & DLC_PARAM_BUFFER)
        suite_fail(whole->run, "parameter %s is a buffer, which a slice cannot have",
                   a->name);
    if (a->shape.rank < 1 || !dlc_shape_equal(&shape, &b->shape))
        suite_fail(
            whole->run,
            "dimension 0 of parameter %s must be the %lld channels of the slice, "
            "and the others those of the whole layer",
            a->name, (long long)some);
    if (strcmp(a->name, b->name) != 0 || a->flags != b->flags ||
        !same_text(a->filler, b->filler) || a->fan_in != b->fan_in ||
        !same_factor(a->lr_mult, b->lr_mult) ||
        !same_factor(a->decay_mult, b->decay_mult))
        suite_fail(whole->run,
                   "name, filler, fan_in, lr_mult or decay_mult of parameter %s are "
                   "others in a slice",
                   a->name);
}

static void fits_slice(const layer_fixture *whole, const layer_fixture *part) {
    dlc_shape out = whole->plain_out[0].shape;
    out.dims[1] = part->build.channel_end - part->build.channel_begin;
    if (part->prepared.outputs != 1 ||
        !dlc_shape_equal(&out, &part->plain_out[0].shape))
        suite_fail(whole->run,
                   "a slice of %lld channels has another number of outputs, or another "
                   "shape",
                   (long long)out.dims[1]);
    if (part->prepared.params != whole->prepared.params)
        suite_fail(whole->run, "a slice has %d parameters, not %d",
                   (int)part->prepared.params, (int)whole->prepared.params);
    for (int32_t i = 0; i < whole->prepared.params; i++)
        fits_param(whole, part, i);
}

/* Runs a slice and copies its results into `whole`, which has lost its own. */
static void run_slice(layer_fixture *whole, layer_fixture *part) {
    int64_t channels = whole->plain_out[0].shape.dims[1];
    slice of_params = {1, channels, part->build.channel_begin,
                       part->build.channel_end - part->build.channel_begin};
    slice of_outputs = of_params;
    of_outputs.rows = whole->plain_out[0].shape.dims[0];
    for (int32_t i = 0; i < whole->prepared.inputs; i++)
        memcpy(part->x[i], whole->x[i], whole->x_count[i] * sizeof(float));
    for (int32_t i = 0; i < whole->prepared.params; i++)
        copy_slice(&of_params, whole->p[i], whole->p_count[i], part->p[i], 0);
    copy_slice(&of_outputs, whole->dy, whole->y_count, part->dy, 0);
    layer_values_pass(part);
    copy_slice(&of_outputs, whole->y, whole->y_count, part->y, 1);
    for (int32_t i = 0; i < whole->prepared.params; i++)
        copy_slice(&of_params, whole->dp[i], whole->p_count[i], part->dp[i], 1);
    for (int32_t i = 0; i < whole->prepared.inputs; i++)
        for (size_t k = 0; part->memory->in_diff[i] && k < whole->x_count[i]; k++)
            whole->dx[i][k] += part->dx[i][k];
}

/* Returns 0 if the layer says that it cannot be split. */
static int try_slice(layer_fixture *whole, int64_t begin, int64_t end) {
    layer_fixture part;
    layer_build build = whole->build;
    build.channel_begin = begin;
    build.channel_end = end;
    dlc_status status = layer_fixture_open(whole->run, &build, &whole->inputs, &part);
    if (status == DLC_ERR_CONFIG)
        suite_fail(whole->run,
                   "asked for channels, infer must return DLC_ERR_UNSUPPORTED if the "
                   "settings do not allow it, not DLC_ERR_CONFIG");
    if (status != DLC_OK)
        return 0;
    fits_slice(whole, &part);
    run_slice(whole, &part);
    layer_fixture_close(&part);
    return 1;
}

static void clear_results(layer_fixture *f) {
    memset(f->y, 0, f->y_count * sizeof(float));
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        memset(f->dx[i], 0, f->x_count[i] * sizeof(float));
    for (int32_t i = 0; i < f->prepared.params; i++)
        memset(f->dp[i], 0, f->p_count[i] * sizeof(float));
}

/* Three ranks with different numbers of channels. */
static void add_up_slices(layer_fixture *f) {
    const dlc_shape *out = &f->plain_out[0].shape;
    int64_t channels = out->rank > 1 ? out->dims[1] : 0;
    const int64_t cut[] = {0, 1, channels / 2, channels};
    layer_values wanted;
    int complete = 1;
    if (channels < 4)
        return;
    layer_values_show(f, 21);
    layer_values_pass(f);
    layer_values_keep(f, &wanted);
    clear_results(f);
    for (int i = 0; i < 3 && complete; i++)
        complete = try_slice(f, cut[i], cut[i + 1]);
    if (complete)
        layer_values_near(f, &wanted, ROUNDING, "where ranks split the channels");
    tried += complete;
    layer_values_drop(&wanted);
}

static void splits_channels(suite_run *run) {
    must_claim(run, DLC_LAYER_CHANNEL_PARALLEL, "DLC_LAYER_CHANNEL_PARALLEL");
    const layer_build whole = {.phase = DLC_PHASE_TRAIN, .alone = 1};
    layer_over_grid_of(run, &whole, add_up_slices);
    if (!tried)
        suite_lack(run,
                   "it has less than 4 channels, or cannot split them (use --set): %s",
                   dlc_detail());
}

/* ---- Split backward ---------------------------------------------------------- */

static void split_backward(layer_fixture *f) {
    layer_values wanted;
    layer_values_show(f, 21);
    layer_values_pass(f);
    layer_values_keep(f, &wanted);
    f->habits = LAYER_SPLIT_BACKWARD;
    layer_values_pass(f);
    f->habits = 0;
    layer_values_near(f, &wanted, ROUNDING,
                      "where DLC_BACKWARD_WEIGHTS comes alone and then "
                      "DLC_BACKWARD_DATA");
    layer_values_drop(&wanted);
}

static void splits_backward(suite_run *run) {
    must_claim(run, DLC_LAYER_SPLIT_BACKWARD, "DLC_LAYER_SPLIT_BACKWARD");
    layer_over_grid(run, DLC_PHASE_TRAIN, split_backward);
}

/* ---- 16-bit types ------------------------------------------------------------ */

/* Values that the type has exactly: with fewer bits than the type, and of a size at
 * which no type overflows. */
static void round_values(float *x, size_t count) {
    for (size_t i = 0; i < count; i++)
        x[i] = roundf(x[i] * 64) / 64;
}

static void show_rounded(layer_fixture *f) {
    layer_values_show(f, 21);
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        if (f->plain_in[i].dtype == DLC_F32)
            round_values(f->x[i], f->x_count[i]);
    round_values(f->dy, f->y_count);
}

static dlc_dtype precision;

static void has_known_types(const layer_fixture *f) {
    for (int32_t i = 0; i < f->prepared.outputs; i++)
        if (f->out[i].dtype != DLC_F32 && f->out[i].dtype != DLC_I32 &&
            f->out[i].dtype != precision)
            suite_fail(f->run, "output %d has another type than the activations",
                       (int)i);
}

static void run_in_16_bits(layer_fixture *f, const layer_values *wanted,
                           int float32_inputs) {
    const double unit = precision == DLC_BF16 ? 1.0 / 256 : 1.0 / 2048;
    layer_build build = f->build;
    layer_fixture half;
    build.precision = precision;
    build.float32_inputs = float32_inputs;
    if (layer_fixture_open(f->run, &build, &f->inputs, &half) != DLC_OK)
        suite_fail(f->run, "it refuses inputs that it accepts in float32: %s",
                   dlc_detail());
    has_known_types(&half);
    show_rounded(&half);
    layer_values_pass(&half);
    layer_values_near(&half, wanted, 4 * unit, "in 16 bits");
    layer_fixture_close(&half);
}

static void compare_precisions(layer_fixture *f) {
    uint64_t bit = precision == DLC_BF16 ? DLC_LAYER_BF16 : DLC_LAYER_F16;
    layer_values wanted;
    show_rounded(f);
    layer_values_pass(f);
    layer_values_keep(f, &wanted);
    run_in_16_bits(f, &wanted, 1);
    if (f->run->feature->caps & bit)
        run_in_16_bits(f, &wanted, 0);
    layer_values_drop(&wanted);
}

static void works_in_bf16(suite_run *run) {
    precision = DLC_BF16;
    layer_over_grid(run, DLC_PHASE_TRAIN, compare_precisions);
}

static void works_in_fp16(suite_run *run) {
    precision = DLC_F16;
    layer_over_grid(run, DLC_PHASE_TRAIN, compare_precisions);
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_LAYER, 0, SUITE_LOADED, 60, run }

const suite_check suite_layer_caps_checks[] = {
    CHECK("layer.elementwise", "an element depends on the same element of the inputs",
          is_elementwise),
    CHECK("layer.samplewise", "a sample depends on that sample alone", is_samplewise),
    CHECK("layer.channel_parallel",
          "slices of channels give what the whole layer gives", splits_channels),
    CHECK("layer.split_backward", "the parts of backward give what the whole one gives",
          splits_backward),
    CHECK("layer.bf16", "results in bfloat16 are near those in float32", works_in_bf16),
    CHECK("layer.fp16", "results in half precision are near those in float32",
          works_in_fp16),
    {.name = NULL},
};
