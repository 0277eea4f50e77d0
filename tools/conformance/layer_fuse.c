/* The check of fuse: a layer that takes over an elementwise layer after it must give
 * what the two give one after the other. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "layer_values.h"

#define ROUNDING 1e-4

/* The layer that is taken over, and its settings. */
static suite_run next;
static int fused; /* inputs of the grid for which the layer has taken over `next` */

/* Runs `next` alone on the output of `f`, which is its input `at`, and the other input,
 * and takes from it the output and gradients that the fused layer should have. */
static void run_next(layer_fixture *f, int32_t at, const float *other,
                     const layer_fixture *both, float *y, float *dother) {
    int32_t inputs = both->prepared.inputs - f->prepared.inputs + 1;
    layer_inputs given = {.count = inputs};
    layer_fixture after;
    for (int32_t i = 0; i < inputs; i++) {
        given.shape[i] = f->plain_out[0].shape;
        given.dtype[i] = DLC_F32;
    }
    if (layer_fixture_open(&next, &f->build, &given, &after) != DLC_OK)
        suite_fail(f->run, "fuse takes over '%s', which refuses its output: %s",
                   next.feature->name, dlc_detail());
    memcpy(after.x[at], f->y, f->y_count * sizeof(float));
    if (inputs == 2)
        memcpy(after.x[1 - at], other, f->y_count * sizeof(float));
    memcpy(after.dy, both->dy, both->y_count * sizeof(float));
    layer_values_pass(&after);
    memcpy(y, after.y, after.y_count * sizeof(float));
    if (layer_fixture_has_backward(f)) {
        memcpy(f->dy, after.dx[at], f->y_count * sizeof(float));
        if (inputs == 2)
            memcpy(dother, after.dx[1 - at], f->y_count * sizeof(float));
    }
    layer_fixture_close(&after);
}

/* The results of the two layers one after the other are compared with those of both,
 * whose last input is that of the binary layer which does not come from the first. */
static void compare_order(layer_fixture *f, layer_fixture *both, int32_t at) {
    char why[120];
    int32_t last = both->prepared.inputs - 1;
    layer_values wanted;
    layer_values_keep(both, &wanted);
    layer_fixture_forward(f);
    run_next(f, at, both->x[last], both, wanted.y, wanted.dx[last]);
    if (layer_fixture_has_backward(f))
        layer_fixture_backward(f);
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        memcpy(wanted.dx[i], f->dx[i], f->x_count[i] * sizeof(float));
    for (int32_t i = 0; i < f->prepared.params; i++)
        memcpy(wanted.dp[i], f->dp[i], f->p_count[i] * sizeof(float));
    (void)snprintf(why, sizeof why, "where fuse has taken over '%.60s'",
                   next.feature->name);
    layer_values_near(both, &wanted, ROUNDING, why);
    layer_values_drop(&wanted);
}

/* Seeds are those of each input, so the last input of `both` has one of its own. */
static void show_both(layer_fixture *f, layer_fixture *both) {
    layer_values_show(both, 21);
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        memcpy(f->x[i], both->x[i], f->x_count[i] * sizeof(float));
    for (int32_t i = 0; i < f->prepared.params; i++)
        memcpy(f->p[i], both->p[i], f->p_count[i] * sizeof(float));
}

static void try_fused(layer_fixture *f) {
    layer_build build = f->build;
    layer_fixture both;
    if (f->prepared.outputs != 1 || f->prepared.inputs == FIXTURE_INPUTS)
        return;
    build.fused = next.feature;
    build.fused_settings = next.settings;
    if (layer_fixture_open(f->run, &build, &f->inputs, &both) != DLC_OK)
        return;
    fused++;
    show_both(f, &both);
    layer_values_pass(&both);
    compare_order(f, &both, 0);
    if (both.prepared.inputs > f->prepared.inputs)
        compare_order(f, &both, 1);
    layer_fixture_close(&both);
}

static int can_follow(const suite_run *run, const dlc_feature *feature) {
    uint64_t elementwise = DLC_LAYER_POINTWISE | DLC_LAYER_BINARY;
    const char *a = run->feature->device, *b = feature->device;
    return feature->kind == DLC_KIND_LAYER && feature->caps & elementwise &&
           (a == b || (a && b && strcmp(a, b) == 0));
}

static void takes_over(suite_run *run) {
    const dlc_layer_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, fuse))
        suite_skip(run, "it has no fuse");
    fused = 0;
    for (const dlc_feature *f = NULL; (f = suite_accepted(run, f));) {
        if (!can_follow(run, f))
            continue;
        next = *run;
        next.feature = f;
        suite_make_settings(&next);
        layer_over_grid(run, DLC_PHASE_TRAIN, try_fused);
        layer_over_grid(run, DLC_PHASE_TEST, try_fused);
    }
    if (!fused)
        suite_skip(run, "it takes over no layer of its plugin");
}

const suite_check suite_layer_fuse_checks[] = {
    {"layer.fuse", "a layer that is taken over gives what it gives alone",
     DLC_KIND_LAYER, 0, SUITE_LOADED, 60, takes_over},
    {.name = NULL},
};
