/* The checks of layers in long trainings: large tensors, late iterations, other layers
 * of the same type beside them, and what many passes leave behind. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/status.h"
#include "digest.h"
#include "layer_values.h"
#include "process.h"

/* Sums that are added in another order differ by less. */
#define ROUNDING 1e-4

#define LARGE_SECONDS 120.0

/* ---- Large tensors ----------------------------------------------------------- */

static void must_be_finite(const layer_fixture *f) {
    for (size_t i = 0; i < f->y_count; i++)
        if (!isfinite(f->y[i]))
            suite_fail(f->run, "element %zu of %zu of the output is not finite", i,
                       f->y_count);
}

static int same_values(const float *a, const float *b, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (a[i] < b[i] || a[i] > b[i])
            return 0;
    return 1;
}

/* No part of a large output is the same for all inputs. */
static void depends_everywhere(layer_fixture *f) {
    enum { PARTS = 64, EACH_LEAST = 64 };
    layer_values before;
    layer_values_keep(f, &before);
    layer_values_show(f, 121);
    layer_fixture_forward(f);
    for (size_t i = 0; i < PARTS && f->y_count >= (size_t)PARTS * EACH_LEAST; i++) {
        size_t begin = f->y_count * i / PARTS, end = f->y_count * (i + 1) / PARTS;
        if (same_values(f->y + begin, before.y + begin, end - begin))
            suite_fail(f->run,
                       "elements %zu to %zu of %zu of the output are the same for "
                       "other inputs",
                       begin, end - 1, f->y_count);
    }
    layer_values_drop(&before);
}

static void compare_threads(const layer_fixture *f, const layer_values *wanted) {
    layer_build build = f->build;
    layer_fixture other;
    build.threads = 3;
    layer_open_like(f, &build, &f->inputs, &other);
    layer_values_show(&other, 21);
    layer_values_pass(&other);
    layer_values_near(&other, wanted, ROUNDING, "with 3 threads");
    layer_fixture_close(&other);
}

static void run_large(layer_fixture *f) {
    enum { BLOCKS = 16, SEED = 63 };
    layer_values wanted;
    layer_values_show(f, 21);
    layer_values_pass(f);
    must_be_finite(f);
    layer_values_keep(f, &wanted);
    layer_values_pass(f);
    layer_values_same_output(f, &wanted, "the second time");
    layer_values_same_gradients(f, &wanted, "the second time");
    if (layer_fixture_has_backward(f))
        layer_compare_blocks(f, BLOCKS, SEED);
    compare_threads(f, &wanted);
    layer_values_drop(&wanted);
    layer_values_show(f, 21);
    layer_fixture_forward(f);
    depends_everywhere(f);
}

static void works_large(suite_run *run) {
    if (!layer_over_large(run, run_large))
        suite_skip(run, "it accepts none of the large inputs: %s", dlc_detail());
}

/* ---- Late iterations --------------------------------------------------------- */

static int draws(layer_fixture *f, const layer_values *wanted) {
    f->iteration++;
    layer_fixture_forward(f);
    return !suite_same(f->y, wanted->y, f->y_count);
}

/* Two passes, one of them where NaN is in what they write. */
static void run_later(layer_fixture *f, const layer_values *wanted) {
    layer_values clean;
    char why[96];
    layer_values_pass(f);
    (void)snprintf(why, sizeof why, "in iteration %" PRId64, f->iteration);
    if (wanted) {
        layer_values_same_output(f, wanted, why);
        layer_values_same_gradients(f, wanted, why);
    }
    layer_values_keep(f, &clean);
    (void)snprintf(why, sizeof why,
                   "in iteration %" PRId64 ", where memory is NaN before the call",
                   f->iteration);
    f->habits = LAYER_POISON_WRITTEN | LAYER_POISON_SCRATCH;
    layer_values_pass(f);
    f->habits = 0;
    layer_values_same_output(f, &clean, why);
    layer_values_same_gradients(f, &clean, why);
    layer_values_drop(&clean);
}

/* Random numbers change with the iteration, nothing else does. */
static void go_on(layer_fixture *f) {
    static const int64_t later[] = {11,    12,    101,       1000,
                                    10007, 65537, 1ll << 32, (1ll << 40) + 3};
    layer_values wanted;
    layer_values_show(f, 21);
    layer_values_pass(f);
    layer_values_keep(f, &wanted);
    int is_random = draws(f, &wanted);
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        f->iteration = later[i];
        run_later(f, is_random ? NULL : &wanted);
    }
    layer_values_drop(&wanted);
}

static void works_later(suite_run *run) {
    layer_over_grid(run, DLC_PHASE_TRAIN, go_on);
}

/* ---- Several layers ---------------------------------------------------------- */

/* Another layer of this type, for a larger batch if it accepts one. */
static void open_another(const layer_fixture *f, layer_fixture *other) {
    layer_build build = f->build;
    layer_inputs inputs = f->inputs;
    build.index++;
    for (int32_t i = 0; i < inputs.count; i++)
        inputs.shape[i].dims[0]++;
    if (layer_fixture_open(f->run, &build, &inputs, other) != DLC_OK)
        layer_open_like(f, &build, &f->inputs, other);
}

/* The forward of two layers, and then the backward of both, as in a net. */
static void interleave_layers(layer_fixture *f) {
    const char *why = "where another layer of this type runs in between";
    layer_values first, second;
    layer_fixture other;
    open_another(f, &other);
    layer_values_show(f, 21);
    layer_values_pass(f);
    layer_values_keep(f, &first);
    layer_values_show(&other, 121);
    layer_values_pass(&other);
    layer_values_keep(&other, &second);
    layer_fixture_forward(f);
    layer_fixture_forward(&other);
    layer_values_same_output(f, &first, why);
    if (layer_fixture_has_backward(f)) {
        layer_fixture_backward(f);
        layer_fixture_backward(&other);
    }
    layer_values_same_gradients(f, &first, why);
    layer_values_same_output(&other, &second, why);
    layer_values_same_gradients(&other, &second, why);
    layer_fixture_close(&other);
    layer_values_drop(&second);
    layer_values_drop(&first);
}

static void shares_nothing(suite_run *run) {
    layer_over_grid(run, DLC_PHASE_TRAIN, interleave_layers);
}

/* ---- What passes leave ------------------------------------------------------- */

static int tried;

static void pass_once(void *context) {
    layer_fixture *f = context;
    f->iteration++;
    layer_values_pass(f);
}

static void pass_often(layer_fixture *f) {
    enum { SHAPES = 3 };
    if (++tried > SHAPES)
        return;
    layer_values_show(f, 21);
    suite_repeat(f->run, 24, "forward and backward", pass_once, f);
}

static void keeps_nothing(suite_run *run) {
    tried = 0;
    layer_over_grid(run, DLC_PHASE_TRAIN, pass_often);
}

static uint64_t *digest_to;

static void add_results(layer_fixture *f) {
    enum { SHAPES = 4 };
    if (++tried > SHAPES)
        return;
    layer_values_show(f, 21);
    layer_values_pass(f);
    suite_digest_add(digest_to, f->y, f->y_count * sizeof(float));
    if (!layer_fixture_has_backward(f))
        return;
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        if (f->memory->in_diff[i])
            suite_digest_add(digest_to, f->dx[i], f->x_count[i] * sizeof(float));
    for (int32_t i = 0; i < f->prepared.params; i++)
        if (f->memory->param_diff[i])
            suite_digest_add(digest_to, f->dp[i], f->p_count[i] * sizeof(float));
}

void suite_digest_layer(suite_run *run, uint64_t *digest) {
    tried = 0;
    digest_to = digest;
    layer_over_grid(run, DLC_PHASE_TRAIN, add_results);
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_LAYER, 0, SUITE_LOADED, 60, run }

const suite_check suite_layer_lasting_checks[] = {
    {"layer.large", "tensors of more than 65,536 elements are computed to the end",
     DLC_KIND_LAYER, 0, SUITE_LOADED, LARGE_SECONDS, works_large},
    CHECK("layer.later", "late iterations are like early ones", works_later),
    CHECK("layer.layers", "two layers of this type share nothing", shares_nothing),
    CHECK("layer.leaks", "passes use no more memory, files and threads each time",
          keeps_nothing),
    {.name = NULL},
};
