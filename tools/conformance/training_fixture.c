/* Sets up arenas, exchange, solver and model, and runs iterations. */
#include "training_fixture.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "digest.h"
#include "process.h"
#include "solver/synchronous.h"

const size_t training_offsets[TRAINING_SEGMENTS] = {0, 256, 512, 768, 1024, 67584};
static const size_t training_counts[TRAINING_SEGMENTS] = {40, 7, 100, 31, 66500, 16};
const size_t training_borders[TRAINING_BUCKETS + 1] = {0, 550, 40960, TRAINING_COUNT};

/* ---- A solver, for checks of models --------------------------------------------- */

static void run_momentum(const dlc_rule_step *step, size_t n, const float *gradient,
                         float *const *slots, float *weight) {
    for (size_t i = 0; i < n; i++) {
        slots[0][i] = 0.5f * slots[0][i] +
                      step->learning_rate *
                          dlc_rule_gradient(step, gradient[i], weight[i]);
        weight[i] -= slots[0][i];
    }
}

static const dlc_rule momentum = {
    .size = sizeof momentum, .slots = 1, .run = run_momentum};

static dlc_status momentum_needs(const dlc_settings *settings,
                                 dlc_solver_needs *needs) {
    (void)settings;
    needs->rule = &momentum;
    needs->slot_name[0] = "momentum";
    needs->slot_saved = 1;
    return DLC_OK;
}

static const dlc_solver_ops momentum_ops = {.size = sizeof momentum_ops,
                                            .needs = momentum_needs};
static const dlc_feature momentum_feature = {.size = sizeof momentum_feature,
                                             .kind = DLC_KIND_SOLVER,
                                             .name = "momentum",
                                             .ops = &momentum_ops};

static const dlc_settings *default_settings(suite_run *run) {
    const dlc_option *tables[] = {dlc_solver_options};
    dlc_problems problems = {0};
    dlc_settings *settings = NULL;
    suite_must(run, dlc_settings_make(NULL, "solver", tables, 1, &problems, &settings),
               "the solver's settings");
    return settings;
}

static void make_solver(training_fixture *f) {
    suite_run *run = f->run;
    int under_test = run->feature->kind == DLC_KIND_SOLVER;
    dlc_status status = under_test
                            ? dlc_solver_make(run->feature, run->settings, &f->solver)
                            : dlc_solver_make(&momentum_feature, default_settings(run),
                                              &f->solver);
    suite_must(run, status, "needs");
    dlc_lr_job job = {.max_iterations = 1000,
                      .epoch_iterations = 100,
                      .batch = 1,
                      .effective_batch = 1};
    suite_must(run, dlc_solver_set_schedule(&f->solver, &job),
               "the learning-rate schedule");
    f->ops = under_test ? &dlc_synchronous_ops : run->feature->ops;
    f->settings = run->settings;
    f->needs = (dlc_consistency_needs){.size = sizeof f->needs};
    suite_must(run, f->ops->needs(f->settings, &f->needs), "needs");
}

/* ---- The exchange ----------------------------------------------------------- */

static void check_bucket(const training_fixture *f, const char *call, int32_t bucket) {
    if (bucket < 0 || bucket >= TRAINING_BUCKETS)
        suite_fail(f->run, "it called %s for bucket %d of %d", call, bucket,
                   TRAINING_BUCKETS);
}

static dlc_status count_start(void *context, int32_t bucket) {
    training_fixture *f = context;
    check_bucket(f, "start", bucket);
    f->again |= f->pending[bucket];
    f->pending[bucket] = 1;
    f->started[bucket]++;
    return DLC_OK;
}

static dlc_status count_wait(void *context, int32_t bucket) {
    training_fixture *f = context;
    check_bucket(f, "wait", bucket);
    f->early |= !f->pending[bucket];
    f->pending[bucket] = 0;
    f->waited[bucket]++;
    return DLC_OK;
}

/* ---- Opening and closing ---------------------------------------------------- */

static void lay_out(training_fixture *f) {
    for (int i = 0; i < TRAINING_SEGMENTS; i++) {
        f->segment[i] = (dlc_segment){.name = "segment",
                                      .offset = training_offsets[i],
                                      .count = training_counts[i],
                                      .lr_mult = i == TRAINING_SEGMENTS - 1 ? 0
                                                                            : 1 + i % 2,
                                      .decay_mult = i % 2};
        suite_random(f->weights + training_offsets[i], training_counts[i],
                     7 + (uint64_t)i);
        suite_random(f->goal + training_offsets[i], training_counts[i],
                     70 + (uint64_t)i);
    }
    f->exchange = (dlc_exchange){.size = sizeof f->exchange,
                                 .context = f,
                                 .ranks = 1,
                                 .buckets = TRAINING_BUCKETS,
                                 .bucket_begin = training_borders,
                                 .start = count_start,
                                 .wait = count_wait};
}

static void open_slots(training_fixture *f) {
    for (int32_t i = 0; i < f->solver.slots; i++) {
        f->slots[i] = device_fixture_floats(f->run, &f->device, TRAINING_COUNT);
        for (size_t j = 0; j < TRAINING_COUNT; j++)
            f->slots[i][j] = f->solver.needs.slot_initial[i];
    }
}

void training_fixture_open(suite_run *run, training_fixture *f) {
    *f = (training_fixture){.run = run, .loss = 0.5f, .vote = 0.5f};
    make_solver(f);
    device_fixture_open(run, &f->device);
    f->weights = device_fixture_floats(run, &f->device, TRAINING_COUNT);
    f->gradients = device_fixture_floats(run, &f->device, TRAINING_COUNT);
    f->goal = device_fixture_floats(run, &f->device, TRAINING_COUNT);
    open_slots(f);
    lay_out(f);
    f->accumulator = (dlc_accumulator){.ops = f->device.ops,
                                       .device = f->device.handle,
                                       .steps = f->solver.accumulation_steps,
                                       .gradients = f->gradients,
                                       .count = TRAINING_COUNT -
                                                TRAINING_CONTROL_WORDS};
    suite_must(run, dlc_accumulator_open(&f->accumulator), "the device's alloc");
}

dlc_status training_fixture_create(training_fixture *f, int64_t iteration) {
    dlc_update_target target = {.solver = &f->solver,
                                .device_ops = f->device.ops,
                                .device = f->device.handle,
                                .segment = f->segment,
                                .segments = TRAINING_SEGMENTS,
                                .count = TRAINING_COUNT - TRAINING_CONTROL_WORDS};
    if (!f->updater)
        DLC_TRY(dlc_solver_updater_open(&target, &f->updater));
    dlc_consistency_args args = {.size = sizeof args,
                                 .settings = f->settings,
                                 .device_ops = f->device.ops,
                                 .device = f->device.handle,
                                 .count = TRAINING_COUNT,
                                 .control_words = TRAINING_CONTROL_WORDS,
                                 .weights = f->weights,
                                 .gradients = f->gradients,
                                 .updater = dlc_solver_updater_table(f->updater),
                                 .exchange = &f->exchange,
                                 .iteration = iteration};
    for (int32_t i = 0; i < f->solver.slots; i++)
        args.slots[i] = f->slots[i];
    return f->ops->create(&args, &f->model);
}

void training_fixture_use_synchronous(training_fixture *f) {
    f->ops = &dlc_synchronous_ops;
    f->needs = (dlc_consistency_needs){.size = sizeof f->needs};
    suite_must(f->run, f->ops->needs(f->settings, &f->needs), "needs");
}

void training_fixture_destroy(training_fixture *f) {
    f->ops->destroy(f->model);
    f->model = NULL;
}

void training_fixture_begin(suite_run *run, training_fixture *f) {
    training_fixture_open(run, f);
    suite_must(run, training_fixture_create(f, 0), "create");
}

/* ---- An iteration ----------------------------------------------------------- */

static void fill_gradients(const training_fixture *f) {
    memset(f->gradients, 0, TRAINING_COUNT * sizeof(float));
    for (int s = 0; s < TRAINING_SEGMENTS; s++)
        for (size_t i = training_offsets[s];
             i < training_offsets[s] + training_counts[s]; i++)
            f->gradients[i] = (f->weights[i] - f->goal[i]) / (float)f->exchange.ranks;
    for (size_t i = TRAINING_COUNT - TRAINING_CONTROL_WORDS; i < TRAINING_COUNT; i++)
        f->gradients[i] = f->vote;
    f->gradients[TRAINING_COUNT - TRAINING_CONTROL_WORDS] = f->loss;
    f->gradients[TRAINING_COUNT - 1] = 0.5f;
}

void training_fixture_backward(training_fixture *f, int64_t iteration) {
    memset(f->started, 0, sizeof f->started);
    memset(f->waited, 0, sizeof f->waited);
    for (int32_t micro = 0; micro < f->accumulator.steps; micro++) {
        fill_gradients(f);
        suite_must(f->run, dlc_accumulate(&f->accumulator, micro, 0, TRAINING_COUNT),
                   "accumulation");
    }
    for (int32_t b = 0; b < TRAINING_BUCKETS; b++)
        suite_must(f->run, f->ops->ready(f->model, iteration, b), "ready");
}

void training_fixture_finish(training_fixture *f, int64_t iteration) {
    suite_must(f->run, f->ops->finish(f->model, iteration), "finish");
}

void training_fixture_step(training_fixture *f, int64_t iteration) {
    training_fixture_backward(f, iteration);
    training_fixture_finish(f, iteration);
}

void training_fixture_run(training_fixture *f, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++)
        training_fixture_step(f, i);
}

/* ---- Looking at the result -------------------------------------------------- */

double training_fixture_distance(const training_fixture *f) {
    double sum = 0;
    for (size_t i = 0; i < training_offsets[TRAINING_SEGMENTS - 1]; i++)
        if (training_fixture_is_parameter(i))
            sum += pow((double)f->weights[i] - (double)f->goal[i], 2);
    return sqrt(sum);
}

int training_fixture_is_parameter(size_t element) {
    for (int i = 0; i < TRAINING_SEGMENTS; i++)
        if (element >= training_offsets[i] &&
            element < training_offsets[i] + training_counts[i])
            return 1;
    return 0;
}

int training_fixture_is_trained(size_t element) {
    return element < training_offsets[TRAINING_SEGMENTS - 1] &&
           training_fixture_is_parameter(element);
}

/* ---- Checks of solvers and of consistency models ----------------------------- */

static void train_once(void *context) {
    training_fixture *f = context;
    training_fixture_step(f, f->done++);
}

void suite_digest_training(suite_run *run, uint64_t *digest) {
    training_fixture f;
    training_fixture_begin(run, &f);
    training_fixture_run(&f, 0, TRAINING_STEPS / 2);
    suite_must(run, f.ops->synchronize(f.model, TRAINING_STEPS / 2), "synchronize");
    suite_digest_add(digest, f.weights, TRAINING_COUNT * sizeof(float));
    for (int32_t i = 0; i < f.solver.slots; i++)
        suite_digest_add(digest, f.slots[i], TRAINING_COUNT * sizeof(float));
}

void training_keeps_nothing(suite_run *run) {
    training_fixture f;
    training_fixture_begin(run, &f);
    suite_repeat(run, 24, "an iteration", train_once, &f);
}

void training_repeats(suite_run *run) {
    training_fixture a, b;
    training_fixture_begin(run, &a);
    training_fixture_begin(run, &b);
    for (int64_t i = 0; i < TRAINING_STEPS; i++) {
        training_fixture_step(&a, i);
        training_fixture_step(&b, i);
    }
    if (!suite_same(a.weights, b.weights, TRAINING_COUNT))
        suite_fail(run, "two runs from the same weights give different weights");
}

/* Copies weights and saved slots, as a checkpoint does. */
static void carry_over(const training_fixture *from, training_fixture *to) {
    memcpy(to->weights, from->weights, TRAINING_COUNT * sizeof(float));
    for (int32_t i = 0; i < from->solver.slots; i++)
        if (dlc_solver_saves(&from->solver, i))
            memcpy(to->slots[i], from->slots[i], TRAINING_COUNT * sizeof(float));
}

static void carry_blob(const training_fixture *from, training_fixture *to) {
    suite_run *run = from->run;
    size_t bytes = 0;
    if (!DLC_CAN(from->ops, save))
        return;
    suite_must(run, from->ops->save(from->model, NULL, &bytes),
               "save (number of bytes)");
    unsigned char *blob = dlc_alloc(bytes + 1, 1);
    if (!blob)
        suite_skip(run, "out of memory");
    blob[bytes] = 0xa5;
    suite_must(run, from->ops->save(from->model, blob, &bytes), "save");
    if (blob[bytes] != 0xa5)
        suite_fail(run, "save writes more bytes than it reported");
    suite_must(run, to->ops->load(to->model, blob, bytes), "load of a saved state");
}

void training_resumes(suite_run *run) {
    enum { HALF = TRAINING_STEPS / 2 };
    training_fixture whole, first, second;
    training_fixture_begin(run, &whole);
    training_fixture_begin(run, &first);
    training_fixture_run(&whole, 0, HALF);
    suite_must(run, whole.ops->synchronize(whole.model, HALF), "synchronize");
    training_fixture_run(&whole, HALF, TRAINING_STEPS);
    training_fixture_run(&first, 0, HALF);
    suite_must(run, first.ops->synchronize(first.model, HALF), "synchronize");
    training_fixture_open(run, &second);
    carry_over(&first, &second);
    suite_must(run, training_fixture_create(&second, HALF), "create");
    carry_blob(&first, &second);
    training_fixture_run(&second, HALF, TRAINING_STEPS);
    if (!suite_same(whole.weights, second.weights, TRAINING_COUNT))
        suite_fail(run,
                   "a run that is saved and resumed gives other weights than a run "
                   "without interruption; is all state that it needs saved?");
}
