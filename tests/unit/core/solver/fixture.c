/* Runs synchronous training with a traced exchange and a CPU device whose updates are
 * traced. */
#include "fixture.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "support/plugins.h"

static test_fixture
    *current; /* device calls have no argument for a context of the test */
static const dlc_device_ops *real;

static void trace(test_fixture *fixture, const char *what, int number) {
    size_t used = strlen(fixture->trace);
    snprintf(fixture->trace + used, sizeof fixture->trace - used,
             number < 0 ? "%s " : "%s%d ", what, number);
}

static dlc_status counted_update(dlc_device *device, dlc_queue *queue, size_t n,
                                 const dlc_update *update, const float *gradient,
                                 float *const *slots, float *weight) {
    trace(current, "u", (int)n);
    return real->update(device, queue, n, update, gradient, slots, weight);
}

static dlc_status exchange_start(void *context, int32_t bucket) {
    test_fixture *fixture = context;
    trace(fixture, "s", bucket);
    for (size_t i = fixture->bucket_begin[bucket];
         i < fixture->bucket_begin[bucket + 1]; i++)
        fixture->gradients[i] += fixture->peer[i];
    return DLC_OK;
}

static dlc_status exchange_wait(void *context, int32_t bucket) {
    trace(context, "w", bucket);
    return DLC_OK;
}

static void open_device(test_fixture *fixture) {
    const dlc_feature *feature = plugin_find(DLC_KIND_DEVICE, "cpu");
    dlc_device_args args = {.size = sizeof args, .threads = 1};
    real = feature->ops;
    ck_assert_uint_ge(real->size, sizeof fixture->device_ops);
    fixture->device_ops = *real;
    fixture->device_ops.update = counted_update;
    ck_assert_int_eq(real->open(&args, &fixture->device), DLC_OK);
}

void fixture_open(test_fixture *fixture, const dlc_feature *feature,
                  const char *const *sets, size_t nsets, dlc_status *made) {
    static const char *const reserved[] = {"solver", NULL};
    memset(fixture, 0, sizeof *fixture);
    current = fixture;
    open_device(fixture);
    fixture->feature = feature ? feature : plugin_find(DLC_KIND_SOLVER, "sgd");
    const dlc_option *tables[] = {fixture->feature->options, dlc_solver_options};

    ck_assert_int_eq(dlc_config_load(NULL, reserved, sets, nsets, &fixture->problems,
                                     &fixture->config),
                     DLC_OK);
    ck_assert_int_eq(dlc_settings_make(fixture->config, "solver", tables, 2,
                                       &fixture->problems, &fixture->settings),
                     DLC_OK);
    ck_assert_msg(dlc_problems_report(&fixture->problems) == DLC_OK, "%s",
                  dlc_detail());
    dlc_lr_job job = {.max_iterations = -1,
                      .epoch_iterations = 100,
                      .batch = 1,
                      .effective_batch = 1};
    *made = dlc_solver_make(fixture->feature, fixture->settings, &fixture->solver);
    if (*made == DLC_OK)
        ck_assert_int_eq(dlc_solver_set_schedule(&fixture->solver, &job), DLC_OK);
}

void fixture_segment(test_fixture *fixture, size_t gap, size_t count, double rate,
                     double decay) {
    ck_assert_int_lt(fixture->segments, FIXTURE_SEGMENTS_MAX);
    ck_assert_uint_le(fixture->count + gap + count, FIXTURE_ELEMENTS_MAX);
    fixture->segment[fixture->segments++] = (dlc_segment){.name = "any",
                                                          .offset = fixture->count +
                                                                    gap,
                                                          .count = count,
                                                          .lr_mult = rate,
                                                          .decay_mult = decay};
    memset(fixture->used + fixture->count + gap, 1, count);
    fixture->count += gap + count;
}

void fixture_buckets(test_fixture *fixture, size_t control_words, int32_t borders,
                     const size_t *border) {
    ck_assert_uint_le(fixture->count + control_words, FIXTURE_ELEMENTS_MAX);
    memset(fixture->used + fixture->count, 1, control_words);
    fixture->control_words = control_words;
    fixture->count += control_words;
    for (int32_t b = 0; b < borders; b++)
        fixture->bucket_begin[b + 1] = border[b];
    fixture->bucket_begin[borders + 1] = fixture->count;
    fixture->exchange = (dlc_exchange){.size = sizeof fixture->exchange,
                                       .context = fixture,
                                       .ranks = 2,
                                       .buckets = borders + 1,
                                       .bucket_begin = fixture->bucket_begin,
                                       .start = exchange_start,
                                       .wait = exchange_wait};
}

static dlc_status create(test_fixture *fixture) {
    if (!fixture->segments) {
        fixture_segment(fixture, 0, 4, 1, 1);
        fixture_buckets(fixture, 0, 0, NULL);
    }
    size_t trained = fixture->count - fixture->control_words;
    dlc_update_target target = {.solver = &fixture->solver,
                                .device_ops = &fixture->device_ops,
                                .device = fixture->device,
                                .segment = fixture->segment,
                                .segments = fixture->segments,
                                .count = trained,
                                .loss_scale = fixture->loss_scale};
    fixture->accumulator = (dlc_accumulator){
        .ops = &fixture->device_ops,
        .device = fixture->device,
        .steps = fixture->solver.accumulation_steps,
        .gradients = fixture->gradients,
        .count = trained};
    DLC_TRY(dlc_accumulator_open(&fixture->accumulator));
    DLC_TRY(dlc_solver_updater_open(&target, &fixture->updater));
    dlc_consistency_args args = {.size = sizeof args,
                                 .device_ops = &fixture->device_ops,
                                 .device = fixture->device,
                                 .count = fixture->count,
                                 .control_words = fixture->control_words,
                                 .weights = fixture->weights,
                                 .gradients = fixture->gradients,
                                 .updater = dlc_solver_updater_table(fixture->updater),
                                 .exchange = &fixture->exchange};
    for (int32_t i = 0; i < fixture->solver.slots; i++)
        args.slots[i] = fixture->slots[i];
    return dlc_synchronous_ops.create(&args, &fixture->model);
}

/* What fixture_create has made. */
static void destroy(test_fixture *fixture) {
    dlc_synchronous_ops.destroy(fixture->model);
    dlc_solver_updater_close(fixture->updater);
    dlc_accumulator_close(&fixture->accumulator);
    fixture->model = NULL;
    fixture->updater = NULL;
}

dlc_status fixture_create(test_fixture *fixture) {
    dlc_status status = create(fixture);
    if (status != DLC_OK)
        destroy(fixture);
    return status;
}

dlc_status fixture_ready(test_fixture *fixture, int64_t iteration, int32_t micro,
                         int32_t bucket) {
    DLC_TRY(dlc_accumulate(&fixture->accumulator, micro, fixture->bucket_begin[bucket],
                           fixture->bucket_begin[bucket + 1]));
    return micro == fixture->solver.accumulation_steps - 1
               ? dlc_synchronous_ops.ready(fixture->model, iteration, bucket)
               : DLC_OK;
}

dlc_status fixture_iterate(test_fixture *fixture, int64_t iteration,
                           fixture_gradient *gradient) {
    for (int32_t micro = 0; micro < fixture->solver.accumulation_steps; micro++) {
        for (size_t i = 0; i < fixture->count; i++)
            fixture->gradients[i] = fixture->used[i] ? gradient(i, micro) : 0;
        for (int32_t b = 0; b < fixture->exchange.buckets; b++)
            DLC_TRY(fixture_ready(fixture, iteration, micro, b));
    }
    return dlc_synchronous_ops.finish(fixture->model, iteration);
}

void fixture_close(test_fixture *fixture) {
    destroy(fixture);
    dlc_settings_free(fixture->settings);
    dlc_config_free(fixture->config);
    dlc_problems_free(&fixture->problems);
    real->close(fixture->device);
}
