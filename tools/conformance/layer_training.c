/* The checks of what training relies on: initial values, losses and their labels, and
 * layers as jobs build them, with more threads, frozen, or beside a test net. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "config/config.h"
#include "layer_values.h"

/* Sums that are added in another order differ by less. */
#define ROUNDING 1e-4

static int tried; /* inputs of the grid that a check could use */

static void must_have_backward(suite_run *run) {
    const dlc_layer_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, backward))
        suite_skip(run, "it has no backward");
}

/* ---- Initial values ---------------------------------------------------------- */

static void parse_fillers(layer_fixture *f) {
    for (int32_t i = 0; i < f->prepared.params; i++) {
        const dlc_param *param = &f->param[i];
        dlc_filler filler = {.kind = DLC_FILL_CONSTANT};
        tried++;
        if (param->filler && dlc_filler_parse(param->filler, &filler) != DLC_OK)
            suite_fail(f->run, "the filler of parameter %s: %s", param->name,
                       dlc_detail());
        int needs_fan = filler.kind == DLC_FILL_XAVIER || filler.kind == DLC_FILL_MSRA;
        if (needs_fan && param->fan_in < 1)
            suite_fail(f->run,
                       "the filler of parameter %s is %s, but its fan_in is "
                       "%lld",
                       param->name, param->filler, (long long)param->fan_in);
    }
}

static void fillers_are_valid(suite_run *run) {
    tried = 0;
    layer_over_grid(run, DLC_PHASE_TRAIN, parse_fillers);
    if (!tried)
        suite_skip(run, "it has no parameters");
}

/* ---- Losses ------------------------------------------------------------------ */

static void scale_loss(layer_fixture *f) {
    const float factor = 0.25f;
    layer_values wanted;
    layer_values_show(f, 21);
    layer_values_pass(f);
    layer_values_keep(f, &wanted);
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        for (size_t k = 0; k < f->x_count[i]; k++)
            wanted.dx[i][k] *= factor;
    for (int32_t i = 0; i < f->prepared.params; i++)
        for (size_t k = 0; k < f->p_count[i]; k++)
            wanted.dp[i][k] *= factor;
    f->loss_scale = factor;
    layer_values_pass(f);
    layer_values_near(f, &wanted, 1e-5, "where loss_scale is 0.25");
    layer_values_drop(&wanted);
}

static void scales_its_loss(suite_run *run) {
    if (!(run->feature->caps & DLC_LAYER_LOSS))
        suite_skip(run, "it is no loss");
    layer_over_grid(run, DLC_PHASE_TRAIN, scale_loss);
}

/* What `count` says of the samples adds up to what forward has counted. */
static void compare_count(const layer_fixture *f) {
    int64_t samples = f->plain_in[0].shape.dims[0];
    double *counted = dlc_alloc((size_t)samples, sizeof *counted), sum = 0;
    if (!counted)
        suite_skip(f->run, "out of memory");
    suite_must(f->run, f->ops->count(f->layer, f->x[1], samples, counted), "count");
    for (int64_t i = 0; i < samples; i++)
        sum += counted[i];
    if (fabs(sum - (double)f->y[1]) > 0)
        suite_fail(f->run, "count adds up to %g; forward has counted %g", sum,
                   (double)f->y[1]);
    dlc_free(counted);
}

static void measure(layer_fixture *f, int64_t begin, int64_t end, double measured[2]) {
    layer_fixture_fill(f, 21);
    layer_values_remove_labels(f, begin, end);
    layer_fixture_forward(f);
    for (int i = 0; i < 2; i++)
        measured[i] = (double)f->y[i];
    if (f->run->feature->caps & DLC_LAYER_LOSS && DLC_CAN(f->ops, count))
        compare_count(f);
}

static void add_up(const layer_fixture *f, const double all[2], const double a[2],
                   const double b[2]) {
    const char *const what[] = {"sum", "number of samples that count"};
    for (int i = 0; i < 2; i++)
        if (!(fabs(all[i] - a[i] - b[i]) <= 1e-4 * (1 + fabs(all[i]))))
            suite_fail(f->run,
                       "the %s is %g; of the first sample alone it is %g, and of the "
                       "others %g",
                       what[i], all[i], a[i], b[i]);
}

/* A padding sample counts nowhere and has no gradient. */
static void leave_out_labels(layer_fixture *f) {
    int64_t samples = f->plain_in[0].shape.dims[0];
    double all[2], first[2], others[2], none[2];
    if (!layer_values_has_labels(f))
        return;
    tried++;
    measure(f, 0, 0, all);
    measure(f, 1, samples, first);
    measure(f, 0, 1, others);
    add_up(f, all, first, others);
    if (samples > 1 && layer_fixture_has_backward(f))
        layer_compare_slopes(f);
    measure(f, 0, samples, none);
    if (fabs(none[0]) > 0 || fabs(none[1]) > 0)
        suite_fail(
            f->run,
            "of samples without a label (DLC_LABEL_NONE, or NaN) the sum is %g and "
            "the number %g",
            none[0], none[1]);
    if (!layer_fixture_has_backward(f))
        return;
    layer_fixture_backward(f);
    for (size_t k = 0; f->memory->in_diff[0] && k < f->x_count[0]; k++)
        if (!(fabsf(f->dx[0][k]) <= 0))
            suite_fail(f->run, "a sample without a label has a gradient, %g",
                       (double)f->dx[0][k]);
}

static void leaves_out_padding(suite_run *run) {
    if (!(run->feature->caps & (DLC_LAYER_METRIC | DLC_LAYER_LOSS)))
        suite_skip(run, "it is no loss or metric");
    tried = 0;
    layer_over_grid(run, DLC_PHASE_TRAIN, leave_out_labels);
    if (!tried)
        suite_skip(run, "it has no labels");
}

/* Scores grow in training; the cross entropy is never larger than they are. */
static void raise_scores(layer_fixture *f) {
    layer_fixture_fill(f, 21);
    for (size_t i = 0; i < f->x_count[0]; i++)
        f->x[0][i] *= 200;
    layer_values_pass(f);
    if (!isfinite(f->y[0]))
        suite_fail(f->run, "for scores of -200 to 200 it outputs %g", (double)f->y[0]);
    for (size_t i = 0; f->memory->in_diff[0] && i < f->x_count[0]; i++)
        if (!isfinite(f->dx[0][i]))
            suite_fail(f->run, "for scores of -200 to 200 a gradient is %g",
                       (double)f->dx[0][i]);
}

static void bears_large_scores(suite_run *run) {
    if (!(run->feature->caps & DLC_LAYER_CLASSIFIES))
        suite_skip(run, "it is not DLC_LAYER_CLASSIFIES");
    layer_over_grid(run, DLC_PHASE_TRAIN, raise_scores);
}

/* ---- Ways to build a layer --------------------------------------------------- */

void layer_open_like(const layer_fixture *f, const layer_build *build,
                     const layer_inputs *inputs, layer_fixture *other) {
    if (layer_fixture_open(f->run, build, inputs, other) != DLC_OK)
        suite_fail(f->run, "it accepts these inputs in training alone: %s",
                   dlc_detail());
}

static void compare_built(layer_fixture *f, const layer_build *build, const char *why) {
    layer_values wanted;
    layer_fixture other;
    layer_values_show(f, 21);
    layer_values_pass(f);
    layer_values_keep(f, &wanted);
    layer_open_like(f, build, &f->inputs, &other);
    layer_values_show(&other, 21);
    layer_values_pass(&other);
    layer_values_near(&other, &wanted, ROUNDING, why);
    layer_fixture_close(&other);
    layer_values_drop(&wanted);
}

static void use_threads(layer_fixture *f) {
    layer_build build = f->build;
    for (build.threads = 2; build.threads <= 3; build.threads++)
        compare_built(f, &build, "with several threads");
}

static void works_with_threads(suite_run *run) {
    layer_over_grid(run, DLC_PHASE_TRAIN, use_threads);
}

static void keep_plain(layer_fixture *f) {
    layer_build build = f->build;
    layer_fixture plain;
    if (!f->prepared.params)
        return;
    tried++;
    build.plain_params = 1;
    compare_built(f, &build, "with parameters in plain layout");
    layer_open_like(f, &build, &f->inputs, &plain);
    layer_values_show(&plain, 21);
    layer_fixture_forward(&plain);
    for (int32_t i = 0; i < plain.prepared.params; i++)
        if ((size_t)plain.param_count[i] != plain.p_count[i] ||
            (!(plain.param[i].flags & DLC_PARAM_BUFFER) &&
             !suite_same(plain.memory->param[i], plain.p[i], plain.p_count[i])))
            suite_fail(f->run, "plain_params is 1, but parameter %s is not plain",
                       plain.param[i].name);
    layer_fixture_close(&plain);
}

static void keeps_params_plain(suite_run *run) {
    tried = 0;
    layer_over_grid(run, DLC_PHASE_TRAIN, keep_plain);
    if (!tried)
        suite_skip(run, "it has no parameters");
}

static void infer_again(layer_fixture *f) {
    layer_build build = f->build;
    build.infers_others = 1;
    compare_built(f, &build, "after infer for another batch");
}

static void forgets_other_shapes(suite_run *run) {
    layer_over_grid(run, DLC_PHASE_TRAIN, infer_again);
}

/* ---- Random numbers ---------------------------------------------------------- */

/* 1 if the output is another one than `wanted`, in a layer that is built in this way.
 */
static int differs(const layer_fixture *f, const layer_build *build,
                   const layer_values *wanted, int64_t iterations, int64_t samples) {
    layer_fixture other;
    layer_open_like(f, build, &f->inputs, &other);
    other.iteration += iterations;
    other.sample += samples;
    layer_values_show(&other, 21);
    layer_fixture_forward(&other);
    int is_other = !suite_same(other.y, wanted->y, other.y_count);
    layer_fixture_close(&other);
    return is_other;
}

/* Few numbers may be the same by chance. */
enum { RANDOM_NUMBERS = 100 };

static void draw(layer_fixture *f) {
    layer_build seed = f->build, index = f->build;
    layer_values wanted;
    int64_t batch = f->plain_in[0].shape.dims[0];
    seed.seed = index.index = 1;
    layer_values_show(f, 21);
    layer_fixture_forward(f);
    layer_values_keep(f, &wanted);
    if (f->y_count >= RANDOM_NUMBERS && differs(f, &seed, &wanted, 0, 0)) {
        tried++;
        const char *same = !differs(f, &f->build, &wanted, 1, 0)       ? "iteration"
                           : !differs(f, &f->build, &wanted, 0, batch) ? "sample"
                           : !differs(f, &index, &wanted, 0, 0)        ? "index"
                                                                       : NULL;
        if (same)
            suite_fail(f->run,
                       "its random numbers depend on the seed, but are the same for "
                       "another %s",
                       same);
    }
    layer_values_drop(&wanted);
}

static void draws_anew(suite_run *run) {
    tried = 0;
    layer_over_grid(run, DLC_PHASE_TRAIN, draw);
    if (!tried)
        suite_skip(run, "it draws no random numbers");
}

/* ---- Frozen ------------------------------------------------------------------ */

static int has_buffers(const layer_fixture *f) {
    for (int32_t i = 0; i < f->prepared.params; i++)
        if (f->param[i].flags & DLC_PARAM_BUFFER)
            return 1;
    return 0;
}

/* A frozen layer that has statistics outputs in training what it does in a test. */
static void freeze_statistics(layer_fixture *f) {
    layer_build frozen = {.phase = DLC_PHASE_TRAIN, .frozen = 1};
    layer_build test = {.phase = DLC_PHASE_TEST};
    layer_fixture trains, tests;
    layer_open_like(f, &frozen, &f->inputs, &trains);
    layer_open_like(f, &test, &f->inputs, &tests);
    layer_values_show(&trains, 21);
    layer_values_show(&tests, 21);
    layer_values_pass(&trains);
    layer_fixture_forward(&tests);
    layer_near(f, trains.y, tests.y, f->y_count, ROUNDING,
               "where its parameters are frozen", "the output");
    layer_fixture_close(&tests);
    layer_fixture_close(&trains);
}

static void freeze(layer_fixture *f) {
    layer_build build = f->build;
    if (!f->prepared.params)
        return;
    tried++;
    build.frozen = 1;
    if (has_buffers(f)) {
        freeze_statistics(f);
        return;
    }
    layer_values wanted;
    layer_fixture frozen;
    layer_values_show(f, 21);
    layer_values_pass(f);
    layer_values_keep(f, &wanted);
    layer_open_like(f, &build, &f->inputs, &frozen);
    layer_values_show(&frozen, 21);
    layer_values_pass(&frozen);
    memset(frozen.memory->param_diff, 0, sizeof frozen.memory->param_diff);
    layer_values_near(&frozen, &wanted, ROUNDING, "where its parameters are frozen");
    layer_fixture_close(&frozen);
    layer_values_drop(&wanted);
}

static void can_be_frozen(suite_run *run) {
    must_have_backward(run);
    tried = 0;
    layer_over_grid(run, DLC_PHASE_TRAIN, freeze);
    if (!tried)
        suite_skip(run, "it has no parameters");
}

/* ---- A test net beside the training ------------------------------------------ */

/* Does the output change with the last elements of a parameter, from `from` on? */
static int depends_on(layer_fixture *f, int32_t param, size_t from) {
    layer_values before;
    layer_fixture_fill(f, 21);
    layer_fixture_forward(f);
    layer_values_keep(f, &before);
    for (size_t k = from; k < f->p_count[param]; k++)
        f->p[param][k] = 0.5f - 2 * f->p[param][k];
    layer_fixture_forward(f);
    int differs = !suite_same(f->y, before.y, f->y_count);
    layer_values_drop(&before);
    return differs;
}

/* What training computes with, a test does, too. */
static void use_params(layer_fixture *trains, layer_fixture *tests) {
    for (int32_t i = 0; i < trains->prepared.params; i++) {
        const size_t from[] = {0, trains->p_count[i] - 1};
        for (int k = 0; k < 2; k++)
            if (depends_on(trains, i, from[k]) && !depends_on(tests, i, from[k]))
                suite_fail(trains->run,
                           "the output of a test does not depend on %s of parameter "
                           "%s, but in training it does",
                           k ? "the last element" : "the elements",
                           trains->param[i].name);
    }
}

/* The layer of a test reads the parameters where those of the training are, whatever
 * its batch, unless it accepts no other one. */
static void read_params(layer_fixture *f, int64_t batch) {
    layer_build alone = {.phase = DLC_PHASE_TEST}, beside = alone;
    layer_inputs inputs = f->inputs;
    layer_fixture own, reads;
    for (int32_t i = 0; i < inputs.count; i++)
        inputs.shape[i].dims[0] = batch;
    beside.trained = f;
    if (layer_fixture_open(f->run, &alone, &inputs, &own) != DLC_OK)
        return;
    layer_open_like(f, &beside, &inputs, &reads);
    for (int32_t i = 0; i < f->prepared.params; i++)
        if (reads.param_count[i] != f->param_count[i])
            suite_fail(f->run,
                       "the layer of a test lays out parameter %s in %lld elements, "
                       "and its train_layer in %lld",
                       f->param[i].name, (long long)reads.param_count[i],
                       (long long)f->param_count[i]);
    layer_fixture_fill(&own, 21);
    layer_fixture_fill(&reads, 21);
    layer_fixture_forward(&own);
    layer_fixture_forward(&reads);
    layer_near(f, reads.y, own.y, own.y_count, ROUNDING,
               "where a test reads the parameters of train_layer", "the output");
    layer_fixture_close(&reads);
    layer_fixture_close(&own);
}

static void test_beside(layer_fixture *f) {
    if (!f->prepared.params)
        return;
    tried++;
    layer_fixture_fill(f, 21);
    layer_fixture_forward(f);
    /* Its own statistics may have changed. */
    layer_fixture_import(f);
    read_params(f, f->plain_in[0].shape.dims[0]);
    read_params(f, 16);
    const layer_build test = {.phase = DLC_PHASE_TEST};
    layer_fixture own;
    layer_open_like(f, &test, &f->inputs, &own);
    use_params(f, &own);
    layer_fixture_close(&own);
}

static void shares_params(suite_run *run) {
    tried = 0;
    layer_over_grid(run, DLC_PHASE_TRAIN, test_beside);
    if (!tried)
        suite_skip(run, "it has no parameters");
}

/* ---- A rank without samples -------------------------------------------------- */

static void run_empty(layer_fixture *f) {
    if (!f->shapes.collective)
        return;
    tried++;
    layer_values_show(f, 21);
    layer_values_pass(f);
    int gathered = f->gathered;
    f->gathered = 0;
    layer_fixture_run_empty(f);
    if (f->gathered != gathered)
        suite_fail(f->run,
                   "it calls all_gather %d times, but %d times on a rank without "
                   "samples",
                   gathered, f->gathered);
}

static void works_without_samples(suite_run *run) {
    tried = 0;
    layer_over_grid(run, DLC_PHASE_TRAIN, run_empty);
    if (!tried)
        suite_skip(run, "it is not collective");
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_LAYER, 0, SUITE_LOADED, 60, run }

const suite_check suite_layer_training_checks[] = {
    CHECK("layer.fillers", "parameters have valid initial values", fillers_are_valid),
    CHECK("layer.loss_scale", "the gradient of a loss is times loss_scale",
          scales_its_loss),
    CHECK("layer.labels", "samples count once, and not at all without a label",
          leaves_out_padding),
    CHECK("layer.scores", "a loss of classes is finite for large scores",
          bears_large_scores),
    CHECK("layer.infer_again", "the last answer of infer counts", forgets_other_shapes),
    CHECK("layer.random",
          "random numbers change with seed, layer, iteration and sample", draws_anew),
    CHECK("layer.threads", "several threads give what one gives", works_with_threads),
    CHECK("layer.plain_params", "parameters are plain where that is asked for",
          keeps_params_plain),
    CHECK("layer.frozen", "frozen parameters stay, and pass on the same gradient",
          can_be_frozen),
    CHECK("layer.test_params",
          "a test net computes with the parameters of the training", shares_params),
    CHECK("layer.empty", "a rank without samples takes part in its collectives",
          works_without_samples),
    {.name = NULL},
};
