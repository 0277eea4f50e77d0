/* See rig.h. */
#include "rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

static test_rig *current; /* device calls have no place for a context of ours */
static const dlc_device_ops *real;

static void trace(test_rig *rig, const char *what, int number) {
    size_t used = strlen(rig->trace);
    snprintf(rig->trace + used, sizeof rig->trace - used, number < 0 ? "%s " : "%s%d ",
             what, number);
}

static dlc_status counted_momentum(dlc_device *device, dlc_queue *queue, size_t n,
                                   const dlc_momentum *how, const float *gradient,
                                   float *velocity, float *weight) {
    trace(current, "u", (int)n);
    return real->momentum(device, queue, n, how, gradient, velocity, weight);
}

static dlc_status exchange_start(void *context, int32_t bucket) {
    test_rig *rig = context;
    trace(rig, "s", bucket);
    for (size_t i = rig->bucket_begin[bucket]; i < rig->bucket_begin[bucket + 1]; i++)
        rig->gradients[i] += rig->peer[i];
    return DLC_OK;
}

static dlc_status exchange_wait(void *context, int32_t bucket) {
    trace(context, "w", bucket);
    return DLC_OK;
}

static const dlc_feature *find(test_rig *rig, dlc_kind kind, const char *name) {
    const dlc_feature *feature = NULL;
    ck_assert_msg(dlc_registry_find(rig->registry, kind, name, NULL, &feature) ==
                      DLC_OK,
                  "%s", dlc_detail());
    return feature;
}

static void open_device(test_rig *rig) {
    const dlc_feature *feature = find(rig, DLC_KIND_DEVICE, "cpu");
    dlc_device_args args = {.size = sizeof args, .threads = 1};
    real = feature->ops;
    ck_assert_uint_ge(real->size, sizeof rig->device_ops);
    rig->device_ops = *real;
    rig->device_ops.momentum = counted_momentum;
    ck_assert_int_eq(real->open(&args, &rig->device), DLC_OK);
}

void rig_open(test_rig *rig, const char *const *sets, size_t nsets, dlc_status *needs) {
    static const char *const standing[] = {"solver", NULL};
    memset(rig, 0, sizeof *rig);
    current = rig;
    setenv("DLCORE_PLUGIN_PATH", RIG_PLUGINS, 1);
    ck_assert_int_eq(dlc_registry_open(&rig->registry), DLC_OK);
    open_device(rig);
    const dlc_feature *feature = find(rig, DLC_KIND_SOLVER, "sgd");
    rig->ops = feature->ops;

    ck_assert_int_eq(
        dlc_config_load(NULL, standing, sets, nsets, &rig->problems, &rig->config),
        DLC_OK);
    ck_assert_int_eq(dlc_settings_make(rig->config, "solver", &feature->options, 1,
                                       &rig->problems, &rig->settings),
                     DLC_OK);
    ck_assert_msg(dlc_problems_report(&rig->problems) == DLC_OK, "%s", dlc_detail());
    rig->needs = (dlc_solver_needs){.size = sizeof rig->needs, .micro_batches = 1};
    rig->max_iterations = -1;
    rig->epoch_iterations = 100;
    *needs = rig->ops->needs(rig->settings, &rig->needs);
}

void rig_segment(test_rig *rig, size_t gap, size_t count, double rate, double decay) {
    ck_assert_int_lt(rig->segments, RIG_SEGMENTS_MAX);
    ck_assert_uint_le(rig->count + gap + count, RIG_ELEMENTS_MAX);
    rig->segment[rig->segments++] = (dlc_segment){.size = sizeof(dlc_segment),
                                                  .name = "any",
                                                  .offset = rig->count + gap,
                                                  .count = count,
                                                  .rate = rate,
                                                  .decay = decay};
    memset(rig->used + rig->count + gap, 1, count);
    rig->count += gap + count;
}

void rig_buckets(test_rig *rig, size_t tail, int32_t borders, const size_t *border) {
    ck_assert_uint_le(rig->count + tail, RIG_ELEMENTS_MAX);
    memset(rig->used + rig->count, 1, tail);
    rig->tail = tail;
    rig->count += tail;
    for (int32_t b = 0; b < borders; b++)
        rig->bucket_begin[b + 1] = border[b];
    rig->bucket_begin[borders + 1] = rig->count;
    rig->exchange = (dlc_exchange){.size = sizeof rig->exchange,
                                   .context = rig,
                                   .ranks = 2,
                                   .buckets = borders + 1,
                                   .bucket_begin = rig->bucket_begin,
                                   .start = exchange_start,
                                   .wait = exchange_wait};
}

dlc_status rig_create(test_rig *rig) {
    if (!rig->segments) {
        rig_segment(rig, 0, 4, 1, 1);
        rig_buckets(rig, 0, 0, NULL);
    }
    dlc_solver_args args = {
        .size = sizeof args,
        .settings = rig->settings,
        .device_ops = &rig->device_ops,
        .device = rig->device,
        .count = rig->count,
        .tail = rig->tail,
        .weights = rig->weights,
        .gradients = rig->gradients,
        .slots = {rig->slots[0], rig->needs.slots > 1 ? rig->slots[1] : NULL},
        .segments = rig->segments,
        .segment = rig->segment,
        .exchange = &rig->exchange,
        .max_iterations = rig->max_iterations,
        .epoch_iterations = rig->epoch_iterations,
        .schedule = rig->schedule,
    };
    return rig->ops->create(&args, &rig->solver);
}

dlc_status rig_iterate(test_rig *rig, int64_t iteration, rig_gradient *gradient) {
    for (int32_t micro = 0; micro < rig->needs.micro_batches; micro++) {
        for (size_t i = 0; i < rig->count; i++)
            rig->gradients[i] = rig->used[i] ? gradient(i, micro) : 0;
        for (int32_t b = 0; b < rig->exchange.buckets; b++)
            DLC_TRY(rig->ops->ready(rig->solver, iteration, micro, b));
    }
    return rig->ops->finish(rig->solver, iteration);
}

void rig_close(test_rig *rig) {
    rig->ops->destroy(rig->solver);
    dlc_settings_free(rig->settings);
    dlc_config_free(rig->config);
    dlc_problems_free(&rig->problems);
    real->close(rig->device);
    dlc_registry_close(rig->registry);
}
