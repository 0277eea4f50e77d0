/* Runs solver sgd with a traced exchange and a CPU device whose momentum calls are
 * traced. */
#include "fixture.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

static test_fixture
    *current; /* device calls have no argument for a context of the test */
static const dlc_device_ops *real;

static void trace(test_fixture *fixture, const char *what, int number) {
    size_t used = strlen(fixture->trace);
    snprintf(fixture->trace + used, sizeof fixture->trace - used,
             number < 0 ? "%s " : "%s%d ", what, number);
}

static dlc_status counted_momentum(dlc_device *device, dlc_queue *queue, size_t n,
                                   const dlc_momentum *how, const float *gradient,
                                   float *velocity, float *weight) {
    trace(current, "u", (int)n);
    return real->momentum(device, queue, n, how, gradient, velocity, weight);
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

static const dlc_feature *find(test_fixture *fixture, dlc_kind kind, const char *name) {
    const dlc_feature *feature = NULL;
    ck_assert_msg(dlc_registry_find(fixture->registry, kind, name, NULL, &feature) ==
                      DLC_OK,
                  "%s", dlc_detail());
    return feature;
}

static void open_device(test_fixture *fixture) {
    const dlc_feature *feature = find(fixture, DLC_KIND_DEVICE, "cpu");
    dlc_device_args args = {.size = sizeof args, .threads = 1};
    real = feature->ops;
    ck_assert_uint_ge(real->size, sizeof fixture->device_ops);
    fixture->device_ops = *real;
    fixture->device_ops.momentum = counted_momentum;
    ck_assert_int_eq(real->open(&args, &fixture->device), DLC_OK);
}

void fixture_open(test_fixture *fixture, const char *const *sets, size_t nsets,
                  dlc_status *needs) {
    static const char *const reserved[] = {"solver", NULL};
    memset(fixture, 0, sizeof *fixture);
    current = fixture;
    setenv("DLCORE_PLUGIN_PATH", FIXTURE_PLUGINS, 1);
    ck_assert_int_eq(dlc_registry_open(&fixture->registry), DLC_OK);
    open_device(fixture);
    const dlc_feature *feature = find(fixture, DLC_KIND_SOLVER, "sgd");
    fixture->ops = feature->ops;

    ck_assert_int_eq(dlc_config_load(NULL, reserved, sets, nsets, &fixture->problems,
                                     &fixture->config),
                     DLC_OK);
    ck_assert_int_eq(dlc_settings_make(fixture->config, "solver", &feature->options, 1,
                                       &fixture->problems, &fixture->settings),
                     DLC_OK);
    ck_assert_msg(dlc_problems_report(&fixture->problems) == DLC_OK, "%s",
                  dlc_detail());
    fixture->needs = (dlc_solver_needs){.size = sizeof fixture->needs,
                                        .accumulation_steps = 1};
    fixture->max_iterations = -1;
    fixture->epoch_iterations = 100;
    *needs = fixture->ops->needs(fixture->settings, &fixture->needs);
}

void fixture_segment(test_fixture *fixture, size_t gap, size_t count, double rate,
                     double decay) {
    ck_assert_int_lt(fixture->segments, FIXTURE_SEGMENTS_MAX);
    ck_assert_uint_le(fixture->count + gap + count, FIXTURE_ELEMENTS_MAX);
    fixture->segment[fixture->segments++] = (dlc_segment){.size = sizeof(dlc_segment),
                                                          .name = "any",
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

dlc_status fixture_create(test_fixture *fixture) {
    if (!fixture->segments) {
        fixture_segment(fixture, 0, 4, 1, 1);
        fixture_buckets(fixture, 0, 0, NULL);
    }
    dlc_solver_args args = {
        .size = sizeof args,
        .settings = fixture->settings,
        .device_ops = &fixture->device_ops,
        .device = fixture->device,
        .count = fixture->count,
        .control_words = fixture->control_words,
        .weights = fixture->weights,
        .gradients = fixture->gradients,
        .slots = {fixture->slots[0],
                  fixture->needs.slots > 1 ? fixture->slots[1] : NULL},
        .segments = fixture->segments,
        .segment = fixture->segment,
        .exchange = &fixture->exchange,
        .max_iterations = fixture->max_iterations,
        .epoch_iterations = fixture->epoch_iterations,
        .schedule = fixture->schedule,
    };
    return fixture->ops->create(&args, &fixture->solver);
}

dlc_status fixture_iterate(test_fixture *fixture, int64_t iteration,
                           fixture_gradient *gradient) {
    for (int32_t micro = 0; micro < fixture->needs.accumulation_steps; micro++) {
        for (size_t i = 0; i < fixture->count; i++)
            fixture->gradients[i] = fixture->used[i] ? gradient(i, micro) : 0;
        for (int32_t b = 0; b < fixture->exchange.buckets; b++)
            DLC_TRY(fixture->ops->ready(fixture->solver, iteration, micro, b));
    }
    return fixture->ops->finish(fixture->solver, iteration);
}

void fixture_close(test_fixture *fixture) {
    fixture->ops->destroy(fixture->solver);
    dlc_settings_free(fixture->settings);
    dlc_config_free(fixture->config);
    dlc_problems_free(&fixture->problems);
    real->close(fixture->device);
    dlc_registry_close(fixture->registry);
}
